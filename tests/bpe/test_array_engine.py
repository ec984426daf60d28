"""Tests of the array engine: hash tables, chunks, batched merging and the pre-token cache."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.text_strategies import byte_strings, hard_texts
from tokjax.bpe import array_engine, batch_merging, chunks, pretoken_cache
from tokjax.bpe.array_engine import ArrayEngine
from tokjax.bpe.batch_merging import BatchMerger
from tokjax.bpe.chunks import as_segments
from tokjax.bpe.hash_tables import ABSENT, HashTable, make_pretokens
from tokjax.bpe.merge_rules import make_rules_from_ranks
from tokjax.bpe.pre_tokenizers import PatternPreTokenizer
from tokjax.bpe.sequential_merging import merge_bytes, merge_pretoken
from tokjax.pretokenize.patterns import PATTERNS, make_pattern_splitter


@pytest.fixture(autouse=True)
def use_arrays_for_short_texts(monkeypatch):
    monkeypatch.setattr(array_engine, "FEW_CHARACTERS", -1)


numbers = st.integers(0, 2**64 - 1)


@given(
    st.dictionaries(
        st.tuples(st.integers(1, 2**64 - 1), numbers, numbers), st.integers(-(2**40), 2**40), max_size=60
    ),
    st.integers(1, 3),
)
def test_hash_table_equals_dictionary(entries, columns):
    entries = {key[:columns]: value for key, value in entries.items()}
    table = HashTable(columns, pretokens=1)
    expected = {}
    keys = np.array(list(entries), np.uint64).reshape(-1, columns)
    values = np.array(list(entries.values()), np.int64)
    for start in range(0, len(keys), 7):
        part = np.arange(start, min(start + 7, len(keys)))
        table.add(keys[np.concatenate([part, part])], np.concatenate([values[part], values[part] + 1]))
        table.add(keys[part], np.zeros(len(part), np.int64))  # existing keys keep their values
        expected |= dict(list(entries.items())[start : start + 7])
        assert table.find(keys).tolist() == [expected.get(key, ABSENT) for key in entries]
    assert len(table) == len(expected)


repeated_units = st.builds(
    "{0}{1}{2}".format,
    st.text("abc", max_size=2),
    st.builds(lambda unit, times: unit * times, st.text("abc", min_size=1, max_size=4), st.integers(2, 12)),
    st.text("abc", max_size=2),
)


@given(
    tokens=st.sets(
        st.text("ab\0", min_size=2, max_size=7).map(str.encode)
        | st.text("abc", min_size=2, max_size=4).map(str.encode),
        max_size=40,
    ),
    pretokens=st.lists(
        (st.text("abc\0", min_size=1, max_size=25) | repeated_units).map(str.encode), min_size=1, max_size=40
    ),
    few=st.sampled_from([1, 3, 1000]),
    share=st.sampled_from([2, 64, 10**9]),
    reach=st.sampled_from([0, 1, 3]),
    data=st.data(),
)
def test_batched_merging_equals_sequential(tokens, pretokens, few, share, reach, data):
    """Ranks are in any order, so a merge can form a pair of lower rank."""
    ordered = data.draw(st.permutations(sorted(tokens)))
    ranks = {bytes([i]): i for i in range(256)} | {token: 256 + i for i, token in enumerate(ordered)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_merging, "_FEW_SYMBOLS", few)
        patch.setattr(batch_merging, "_FEW_PRETOKENS", few)
        patch.setattr(batch_merging, "_MIN_MERGE_SHARE", share)
        patch.setattr(batch_merging, "_REACH", reach)
        patch.setattr(batch_merging, "_SYMBOLS_PER_BATCH", 100)
        merged = BatchMerger(make_rules_from_ranks(ranks)).merge(make_pretokens(pretokens))
    expected = [merge_bytes(pretoken, make_rules_from_ranks(ranks)) for pretoken in pretokens]
    assert merged.counts.tolist() == [len(tokens) for tokens in expected]
    assert merged.ids.tolist() == [ranks[token] for tokens in expected for token in tokens]


@given(st.integers(2, 400), st.sampled_from(["a", "ab", "aab", "abc"]), st.integers(1, 6))
def test_long_periodic_pretoken(length, unit, tokens):
    pretoken = (unit * length)[:length].encode()
    ranks = {bytes([i]): i for i in range(256)}
    for i in range(tokens):
        ranks[pretoken[: 2**i + 1] + b"" if pretoken[: 2**i + 1] not in ranks else b"ba" * (i + 1)] = 256 + i
    merged = BatchMerger(make_rules_from_ranks(ranks)).merge(make_pretokens([pretoken]))
    assert merged.ids.tolist() == [
        ranks[token] for token in merge_bytes(pretoken, make_rules_from_ranks(ranks))
    ]


def encode_sequentially(tokenizer, texts):
    """Encodes each text with a loop over pre-tokens, without tables or arrays."""
    splitter = make_pattern_splitter(tokenizer.pattern)
    rules = make_rules_from_ranks(tokenizer.vocabulary.ordinary)
    return [
        [
            id_
            for pretoken in splitter.split(text)
            for id_ in merge_pretoken(pretoken.encode("utf-8", "surrogateescape"), rules)
        ]
        for text in texts
    ]


@pytest.fixture(scope="module", params=[*PATTERNS, r"\w+|\W"])
def any_tokenizer(request, tokenizer):
    return tokjax.byte_level_bpe(dict(tokenizer.vocabulary.ordinary), pattern=request.param, normalizer=None)


@given(texts=st.lists(hard_texts, max_size=5), size=st.integers(1, 30))
def test_chunk_size_changes_no_id(any_tokenizer, texts, size):
    """Chunks end at every possible position, between texts and inside of them."""
    full = array_engine.CHUNK_CHARACTERS
    array_engine.CHUNK_CHARACTERS = size
    try:
        batch = tokjax.encode_batch_result(any_tokenizer, texts)
    finally:
        array_engine.CHUNK_CHARACTERS = full
    assert [row.ids.tolist() for row in batch] == encode_sequentially(any_tokenizer, texts)
    assert batch == tokjax.encode_batch_result(any_tokenizer, texts)


@given(data=byte_strings)
def test_arbitrary_bytes_equal_sequential_encoding(any_tokenizer, data):
    text = data.decode("utf-8", "surrogateescape")
    assert tokjax.encode(any_tokenizer, data).tolist() == encode_sequentially(any_tokenizer, [text])[0]


@pytest.mark.parametrize("length", [*range(1, 20), 31, 127, 128, 129, 1000])
def test_pretokens_of_every_length(tokenizer, length):
    """Lengths on both sides of each limit between the tables, and zero bytes."""
    texts = [letter * length for letter in ("a", "\0", "é", "日")] + ["\0" * (length - 1) + "!"]
    plain = tokjax.byte_level_bpe(dict(tokenizer.vocabulary.ordinary), pattern=r"(?s).+")
    for _ in range(2):  # with a cold and a warm cache
        assert [row.ids.tolist() for row in tokjax.encode_batch_result(plain, texts)] == encode_sequentially(
            plain, texts
        )


def test_cache_reset_changes_no_id(tokenizer, corpus, monkeypatch):
    expected = tokjax.encode_batch_result(tokenizer, corpus * 3).ids.tolist()
    monkeypatch.setattr(pretoken_cache, "MAX_CACHE_BYTES", 1000)
    monkeypatch.setattr(array_engine, "CHUNK_CHARACTERS", 15)
    engine = ArrayEngine(
        make_rules_from_ranks(tokenizer.vocabulary.ordinary),
        PatternPreTokenizer(make_pattern_splitter("gpt2")),
    )
    ids = engine.encode_segments(as_segments(corpus * 3)).ids
    assert [i for i in expected if i != tokjax.eos_id(tokenizer)] == ids.tolist()
    cache = engine._cache._cache
    assert cache.tables.nbytes < cache._vocabulary_nbytes + 3000


def test_long_pretokens_are_not_cached(tokenizer, monkeypatch):
    monkeypatch.setattr(pretoken_cache, "MAX_CACHE_TOKENS", 1000)
    engine = ArrayEngine(
        make_rules_from_ranks(tokenizer.vocabulary.ordinary),
        PatternPreTokenizer(make_pattern_splitter("gpt2")),
    )
    for length in (20, 50, 300):
        for i in range(40):
            engine.encode_segments(as_segments(["xq" * length + chr(97 + i % 26) * (i // 26)]))
            assert engine._cache._cache.pool.used < 2000


def test_threads_share_the_cache(tokenizer, corpus, monkeypatch):
    monkeypatch.setattr(pretoken_cache, "MAX_CACHE_BYTES", 4000)
    monkeypatch.setattr(array_engine, "CHUNK_CHARACTERS", 60)
    plain = tokjax.byte_level_bpe(dict(tokenizer.vocabulary.ordinary))
    texts = [text[i:] for text in corpus for i in range(0, 40, 3)]
    expected = encode_sequentially(plain, texts)
    with ThreadPoolExecutor(4) as threads:
        for _ in range(5):
            assert list(threads.map(lambda text: tokjax.encode(plain, text).tolist(), texts)) == expected


@pytest.mark.parametrize("unit", ["ab", "ba", "abc", "abac", "aab", "abcabd"])
def test_chain_of_equal_pairs_takes_few_rounds(unit):
    """One pair per round would take quadratic time."""
    tokens = [b"ab", b"ba", b"abc", b"aba", b"ca", b"abab", b"abcabd", b"aab", b"bab", b"ac", b"bac"]
    ranks = {bytes([i]): i for i in range(256)} | {token: 300 + i for i, token in enumerate(tokens)}
    merger, rounds = BatchMerger(make_rules_from_ranks(ranks)), 0
    merge_round = merger._merge_round

    def count_and_merge(*arguments):
        nonlocal rounds
        rounds += 1
        return merge_round(*arguments)

    merger._merge_round = count_and_merge
    pretoken = unit.encode() * 2000
    assert merger.merge(make_pretokens([pretoken])).ids.tolist() == merge_pretoken(
        pretoken, make_rules_from_ranks(ranks)
    )
    assert rounds < 30


def test_entries_survive_cache_reset(tokenizer, monkeypatch):
    """Values from before a reset mean nothing afterwards. Such look-ups are repeated."""
    ranks = tokenizer.vocabulary.ordinary
    pretokens = make_pretokens([b"xqxq%d" % i for i in range(50)])
    expected = [merge_pretoken(text, make_rules_from_ranks(ranks)) for text in pretokens.iter_bytes()]
    cache, other_cache = (
        pretoken_cache.PretokenCache(ranks, BatchMerger(make_rules_from_ranks(ranks))) for _ in range(2)
    )
    for part in (pretokens.take(np.arange(20, 50)), pretokens):
        other_cache.insert([other_cache.find(part)])
    lookups = [cache.find(pretokens), other_cache.find(pretokens), cache.find(pretokens.take(np.arange(5)))]
    monkeypatch.setattr(cache, "_get_entries", lambda: other_cache._cache)
    for lookup, count in zip(cache.insert(lookups), (50, 50, 5), strict=True):
        assert cache.get_ids(lookup).ids.tolist() == [id_ for ids in expected[:count] for id_ in ids]


def test_long_non_ascii_document_is_split(tokenizer):
    text = "слово ещё\n" * 100_000
    pieces = list(chunks.group_segments(as_segments([text]), 1 << 18, chunks.find_split_before_space))
    assert len(pieces) == 4
    assert "".join(part for piece in pieces for part in piece.texts) == text
    assert [ends for piece in pieces for ends in piece.ends_segment] == [False, False, False, True]


def test_hash_slots_differ_per_table():
    keys = np.arange(1, 100, dtype=np.uint64)[:, None]
    orders = set()
    for _ in range(3):
        table = HashTable(1)
        table.add(keys, np.zeros(99, np.int64))
        orders.add(tuple(np.flatnonzero(table._slots.rows[:, 0]).tolist()))
    assert len(orders) == 3


def test_many_empty_texts(tokenizer):
    batch = tokjax.encode_batch_result(tokenizer, [""] * 10_000, add_special_tokens=False)
    assert len(batch) == 10_000
    assert len(batch.ids) == 0


@given(texts=st.lists(hard_texts | byte_strings, max_size=4))
def test_loop_equals_arrays(any_tokenizer, texts):
    expected = tokjax.encode_batch_result(any_tokenizer, texts)
    array_engine.FEW_CHARACTERS = 10**9
    try:
        assert tokjax.encode_batch_result(any_tokenizer, texts) == expected
    finally:
        array_engine.FEW_CHARACTERS = -1


def test_loop_cache_is_reset(tokenizer, corpus, monkeypatch):
    expected = tokjax.encode_batch_result(tokenizer, corpus)
    monkeypatch.setattr(array_engine, "FEW_CHARACTERS", 10**9)
    monkeypatch.setattr(array_engine, "MAX_DICT_CACHE_CHARACTERS", 20)
    fresh = tokjax.byte_level_bpe(
        dict(tokenizer.vocabulary.ordinary),
        special_tokens=dict(tokenizer.vocabulary.special),
        eos_token="<|endoftext|>",
    )
    assert tokjax.encode_batch_result(fresh, corpus) == expected
    cache = fresh._engine._dict_cache
    assert sum(map(len, cache)) <= 20 or len(cache) == 1


def test_loop_skips_caching_long_pretokens(tokenizer, monkeypatch):
    monkeypatch.setattr(array_engine, "FEW_CHARACTERS", 10**9)
    engine = ArrayEngine(
        make_rules_from_ranks(tokenizer.vocabulary.ordinary),
        PatternPreTokenizer(make_pattern_splitter("gpt2")),
    )
    engine.encode_short("x" * 1000 + " short")
    assert list(engine._dict_cache) == [" short"]
