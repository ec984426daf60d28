"""Tests of the array engine, against encoding with a loop."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given, strategies as st

import tokjax
from tests.support.small_chunks import use_small_chunks
from tests.support.text_strategies import byte_strings, hard_texts
from tests.support.variants import mark_slow_except
from tokjax.bpe import array_engine, pretoken_cache
from tokjax.bpe.array_engine import ArrayEngine
from tokjax.bpe.chunks import as_segments
from tokjax.bpe.merge_rules import make_rules_from_ranks
from tokjax.bpe.pre_tokenizers import PatternPreTokenizer
from tokjax.bpe.sequential_merging import merge_pretoken
from tokjax.pretokenize.patterns import PATTERNS, make_pattern_splitter


@pytest.fixture(autouse=True)
def use_arrays_for_short_texts():
    with use_small_chunks(size=1 << 19):
        yield


def make_engine(tokenizer):
    rules = make_rules_from_ranks(tokenizer.vocabulary.ordinary)
    return ArrayEngine(rules, PatternPreTokenizer(make_pattern_splitter("gpt2")))


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


@pytest.fixture(
    scope="module", params=mark_slow_except([*PATTERNS, r"\w+|\W"], ["gpt2", "deepseek_v3", r"\w+|\W"])
)
def any_tokenizer(request, tokenizer):
    return tokjax.byte_level_bpe(dict(tokenizer.vocabulary.ordinary), pattern=request.param, normalizer=None)


@given(texts=st.lists(hard_texts, max_size=5), size=st.integers(1, 30))
def test_chunk_size_changes_no_id(any_tokenizer, texts, size):
    """Chunks end at every possible position, between texts and inside of them."""
    with use_small_chunks(size):
        batch = tokjax.encode_batch_result(any_tokenizer, texts)
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
    engine = make_engine(tokenizer)
    with use_small_chunks(15):
        ids = engine.encode_segments(as_segments(corpus * 3)).ids
    assert [i for i in expected if i != tokjax.eos_id(tokenizer)] == ids.tolist()
    entries = engine._caches[0].entries
    assert entries.tables.nbytes < entries._vocabulary_nbytes + 3000


def test_caches_are_bounded(tokenizer, monkeypatch):
    monkeypatch.setattr(pretoken_cache, "MAX_CACHE_TOKENS", 1000)
    monkeypatch.setattr(pretoken_cache, "MAX_CACHE_BYTES", 3000)
    engine = make_engine(tokenizer)
    for length in (20, 50, 300):
        for i in range(40):
            engine.encode_segments(as_segments(["xq" * length + chr(97 + i % 26) * (i // 26)]))
            entries = engine._caches[0].entries
            assert entries.pool.used < 2000
            assert entries.tables.nbytes < entries._vocabulary_nbytes + 4000


def test_threads_share_the_cache(tokenizer, corpus, monkeypatch):
    monkeypatch.setattr(pretoken_cache, "MAX_CACHE_BYTES", 4000)
    plain = tokjax.byte_level_bpe(dict(tokenizer.vocabulary.ordinary))
    texts = [text[i:] for text in corpus for i in range(0, 40, 3)]
    expected = encode_sequentially(plain, texts)
    with use_small_chunks(60), ThreadPoolExecutor(4) as threads:
        for _ in range(5):
            assert list(threads.map(lambda text: tokjax.encode(plain, text).tolist(), texts)) == expected


@given(texts=st.lists(hard_texts | byte_strings, max_size=4))
@example(texts=["low" * 300 + "日" * 600])  # long pre-tokens, which the loop merges by arrays
def test_loop_equals_arrays(any_tokenizer, texts):
    expected = tokjax.encode_batch_result(any_tokenizer, texts)
    with use_small_chunks(few=10**9):
        assert tokjax.encode_batch_result(any_tokenizer, texts) == expected


def test_loop_cache_is_reset(tokenizer, corpus, monkeypatch):
    expected = tokjax.encode_batch_result(tokenizer, corpus)
    monkeypatch.setattr(array_engine, "MAX_DICT_CACHE_CHARACTERS", 20)
    fresh = tokjax.byte_level_bpe(
        dict(tokenizer.vocabulary.ordinary),
        special_tokens=dict(tokenizer.vocabulary.special),
        eos_token="<|endoftext|>",
    )
    with use_small_chunks(few=10**9):
        assert tokjax.encode_batch_result(fresh, corpus) == expected
    cache = fresh._engine._dicts[0]
    assert sum(map(len, cache)) <= 20 or len(cache) == 1
    engine = make_engine(tokenizer)
    engine.encode_short("x" * 1000 + " short")
    assert list(engine._dicts[0]) == [" short"]  # a long pre-token is not cached
