"""The array engine: its table, its chunks, and what it remembers."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokjax
from tests.strategies import byte_strings, hard_texts
from tokjax.models import _chunks, _engine
from tokjax.models._batch_merging import BatchMerger
from tokjax.models._engine import ArrayEngine
from tokjax.models._merging import merge_word
from tokjax.models._word_table import ABSENT, WordTable
from tokjax.text.patterns import PATTERNS, word_splitter


@pytest.fixture(autouse=True)
def arrays_for_short_texts_too(monkeypatch):
    monkeypatch.setattr(_engine, "FEW_CHARACTERS", -1)


numbers = st.integers(0, 2**64 - 1)


@given(
    st.dictionaries(st.tuples(numbers, st.integers(1, 2**64 - 1)), st.integers(0, 2**31 - 1), max_size=60),
    st.booleans(),
)
def test_the_table_is_a_dictionary(entries, two_keys):
    if not two_keys:
        entries = {(0, tail): value for (_, tail), value in entries.items()}
    table = WordTable(two_keys=two_keys, bits=2)
    expected = {}
    keys = list(entries)
    for start in range(0, len(keys), 7):
        part = keys[start : start + 7]
        head, tail = (np.array([key[i] for key in part], np.uint64) for i in (0, 1))
        table.add(head, tail, np.array([entries[key] for key in part], np.int32))
        table.add(head, tail, np.zeros(len(part), np.int32))  # known already: nothing changes
        expected |= {key: entries[key] for key in part}
        head, tail = (np.array([key[i] for key in keys], np.uint64) for i in (0, 1))
        assert table.find(head, tail).tolist() == [expected.get(key, ABSENT) for key in keys]
    assert len(table) == len(expected)


@given(
    tokens=st.sets(st.text("abc", min_size=2, max_size=5).map(str.encode), max_size=25),
    words=st.lists(st.text("abc", min_size=1, max_size=15).map(str.encode), min_size=1, max_size=40),
    data=st.data(),
)
def test_merging_together_is_merging_one_by_one(tokens, words, data):
    """With ranks in any order, so that a merge can bring forth a pair of lower rank."""
    ordered = data.draw(st.permutations(sorted(tokens)))
    ranks = {bytes([i]): i for i in range(256)} | {token: 256 + i for i, token in enumerate(ordered)}
    words = [word for word in words if word not in ranks] or [b"abcabcabcabcabc"]
    lengths = np.array([len(word) for word in words])
    merged = BatchMerger(ranks).merge(
        np.frombuffer(b"".join(words), np.uint8), np.cumsum(lengths) - lengths, lengths
    )
    expected = [merge_word(word, ranks) for word in words]
    assert merged.counts.tolist() == [len(ids) for ids in expected]
    assert merged.ids.tolist() == [id_ for ids in expected for id_ in ids]


def words_one_by_one(tokenizer, texts):
    """Ids a text, word by word, with no table and no array."""
    splitter = word_splitter(tokenizer.pattern)
    ranks = tokenizer.vocabulary.ordinary
    return [
        [
            id_
            for word in splitter.words(text)
            for id_ in merge_word(word.encode("utf-8", "surrogateescape"), ranks)
        ]
        for text in texts
    ]


@pytest.fixture(scope="module", params=[*PATTERNS, r"\w+|\W"])
def any_tokenizer(request, tokenizer):
    return tokjax.byte_level_bpe(dict(tokenizer.vocabulary.ordinary), pattern=request.param, normalizer=None)


@given(texts=st.lists(hard_texts, max_size=5), size=st.integers(1, 30))
def test_chunks_of_any_size(any_tokenizer, texts, size):
    """Every place where a chunk can end, between texts and inside them."""
    whole = _chunks.CHUNK_CHARACTERS
    _chunks.CHUNK_CHARACTERS = size
    try:
        batch = tokjax.encode_batch_result(any_tokenizer, texts)
    finally:
        _chunks.CHUNK_CHARACTERS = whole
    assert [row.ids.tolist() for row in batch] == words_one_by_one(any_tokenizer, texts)
    assert batch == tokjax.encode_batch_result(any_tokenizer, texts)


@given(data=byte_strings)
def test_any_bytes(any_tokenizer, data):
    text = data.decode("utf-8", "surrogateescape")
    assert tokjax.encode(any_tokenizer, data).tolist() == words_one_by_one(any_tokenizer, [text])[0]


@pytest.mark.parametrize("length", [*range(1, 20), 31, 127, 128, 129, 1000])
def test_words_of_every_length(tokenizer, length):
    """On both sides of every border between the tables, with bytes that are 0 and 255."""
    texts = [letter * length for letter in ("a", "\0", "é", "日")] + ["\0" * (length - 1) + "!"]
    plain = tokjax.byte_level_bpe(dict(tokenizer.vocabulary.ordinary), pattern=r"(?s).+")
    for _ in range(2):  # new, then known
        assert [row.ids.tolist() for row in tokjax.encode_batch_result(plain, texts)] == words_one_by_one(
            plain, texts
        )


def test_forgetting_changes_no_id(tokenizer, corpus, monkeypatch):
    expected = tokjax.encode_batch_result(tokenizer, corpus * 3).ids.tolist()
    monkeypatch.setattr("tokjax.models._engine.MAX_KNOWN_WORDS", 10)
    monkeypatch.setattr(_chunks, "CHUNK_CHARACTERS", 15)
    engine = ArrayEngine(tokenizer.vocabulary.ordinary, word_splitter("gpt2"))
    ids = engine.encode_segments(corpus * 3).ids
    assert [i for i in expected if i != tokjax.eos_id(tokenizer)] == ids.tolist()
    known = engine._known
    assert len(known.short) + len(known.medium) + len(known.long) < known.vocabulary + 40


def test_the_ids_of_long_words_do_not_pile_up(tokenizer, monkeypatch):
    monkeypatch.setattr("tokjax.models._engine.MAX_KNOWN_TOKENS", 1000)
    engine = ArrayEngine(tokenizer.vocabulary.ordinary, word_splitter("gpt2"))
    for i in range(30):
        engine.encode_segments(["xq" * 300 + str(i)])
        assert engine._known.several.pooled < 3000


def test_threads_learn_together(tokenizer, corpus, monkeypatch):
    monkeypatch.setattr("tokjax.models._engine.MAX_KNOWN_WORDS", 50)
    monkeypatch.setattr(_chunks, "CHUNK_CHARACTERS", 60)
    plain = tokjax.byte_level_bpe(dict(tokenizer.vocabulary.ordinary))
    texts = [text[i:] for text in corpus for i in range(0, 40, 3)]
    expected = words_one_by_one(plain, texts)
    with ThreadPoolExecutor(4) as threads:
        for _ in range(5):
            assert list(threads.map(lambda text: tokjax.encode(plain, text).tolist(), texts)) == expected


def test_a_long_document_without_ascii_is_cut(tokenizer):
    text = "слово ещё\n" * 100_000
    pieces = list(_chunks.gather([text], safe_cuts=True))
    assert len(pieces) == 4
    assert "".join(part for piece in pieces for part in piece.texts) == text
    assert [ends for piece in pieces for ends in piece.ends_segment] == [False, False, False, True]


def test_slots_are_drawn_anew_for_each_table():
    keys = np.arange(1, 100, dtype=np.uint64)
    orders = set()
    for _ in range(3):
        table = WordTable(two_keys=False)
        table.add(keys, keys, np.zeros(99, np.int32))
        orders.add(tuple(np.flatnonzero(table._slots.tail).tolist()))
    assert len(orders) == 3


def test_many_empty_texts(tokenizer):
    batch = tokjax.encode_batch_result(tokenizer, [""] * 10_000, add_special_tokens=False)
    assert len(batch) == 10_000
    assert len(batch.ids) == 0


@given(texts=st.lists(hard_texts | byte_strings, max_size=4))
def test_the_loop_equals_the_arrays(any_tokenizer, texts):
    by_arrays = tokjax.encode_batch_result(any_tokenizer, texts)
    _engine.FEW_CHARACTERS = 10**9
    try:
        assert tokjax.encode_batch_result(any_tokenizer, texts) == by_arrays
    finally:
        _engine.FEW_CHARACTERS = -1


def test_the_loop_forgets(tokenizer, corpus, monkeypatch):
    expected = tokjax.encode_batch_result(tokenizer, corpus)
    monkeypatch.setattr(_engine, "FEW_CHARACTERS", 10**9)
    monkeypatch.setattr(_engine, "MAX_KNOWN_TO_LOOP", 3)
    fresh = tokjax.byte_level_bpe(
        dict(tokenizer.vocabulary.ordinary),
        special_tokens=dict(tokenizer.vocabulary.special),
        eos_token="<|endoftext|>",
    )
    assert tokjax.encode_batch_result(fresh, corpus) == expected
    assert len(fresh._engine._known_to_loop) <= 3
