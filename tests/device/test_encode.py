"""Tests of encoding and decoding under jit, against the host."""

from functools import partial
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st
from jax import export
from jax.sharding import Mesh, PartitionSpec

import tokjax
from tests.support.device_texts import NUM_BYTES, NUM_ROWS, PIECES, fit, to_arrays
from tests.support.hypothesis_profiles import get_max_examples, is_thorough
from tokjax.bpe.merge_rules import make_rules_from_ranks
from tokjax.bpe.sequential_merging import merge_pretoken
from tokjax.device import (
    Capacities,
    decode_jit,
    encode_jit,
    merging,
    suggest_capacities,
    tokenizer_tables,
)

CAPACITIES = suggest_capacities(NUM_BYTES, any_text=True)
WORDS = [b" the", b" lowest", b"newest", b"=====", b"aaaa", b"ab" * 20, b"abcabc" * 15, b"x" * 200]
SPECIAL = [b"<|endoftext|>", b"<|pad|>", b"<|endoftext|><|endoftext|>", b"<|", b"<|endof", b"<|pad|"]
texts = st.lists(
    st.lists(st.sampled_from([*PIECES, *WORDS, *SPECIAL]), max_size=30).map(b"".join), max_size=NUM_ROWS
).map(fit)


def _make_tokenizer(tokenizer, pattern):
    vocabulary = tokenizer.vocabulary
    return tokjax.byte_level_bpe(
        dict(vocabulary.ordinary), special_tokens=dict(vocabulary.special), pattern=pattern
    )


@pytest.fixture(scope="module", params=["o200k", pytest.param("gpt2", marks=pytest.mark.slow)])
def any_pattern(request, tokenizer):
    return _make_tokenizer(tokenizer, request.param)


@pytest.fixture(scope="module")
def tables(any_pattern):
    return tokenizer_tables(any_pattern)


@pytest.fixture(scope="module")
def o200k(tokenizer):
    """For tests that do not depend on the pattern: they run once, and share a compiled program."""
    return _make_tokenizer(tokenizer, "o200k")


@pytest.fixture(scope="module")
def o200k_tables(o200k):
    return tokenizer_tables(o200k)


def assert_equals_host(tokenizer, tables, rows, *, capacities=CAPACITIES, **special):
    """Asserts that ids, offsets and row splits equal those of the host, and that decoding gives the texts."""
    data, splits = to_arrays(rows)
    tokens = encode_jit(tables, data, splits, capacities=capacities)
    assert not tokens.exceeded
    bounds = np.asarray(tokens.row_splits).tolist()
    for i, row in enumerate(rows):
        options = {"add_special_tokens": False, "disallowed_special": ()} | special
        expected = tokjax.encode_result(tokenizer, row, **options)
        part = slice(bounds[i], bounds[i + 1])
        assert np.asarray(tokens.ids)[part].tolist() == expected.ids.tolist()
        assert np.asarray(tokens.offsets)[part].tolist() == expected.offsets.tolist()
    assert bounds[len(rows) :] == [int(tokens.num_tokens)] * (NUM_ROWS + 1 - len(rows))
    assert (np.asarray(tokens.ids)[bounds[-1] :] == -1).all()
    assert (np.asarray(tokens.offsets)[bounds[-1] :] == 0).all()
    decoded = decode_jit(tables, tokens.ids, tokens.row_splits, capacity=NUM_BYTES)
    assert bytes(np.asarray(decoded.data)) == bytes(np.asarray(data))
    assert np.asarray(decoded.row_splits).tolist() == np.asarray(splits).tolist()
    assert not decoded.exceeded


@get_max_examples(100)
@given(rows=texts)
def test_ids_and_offsets_equal_the_host(any_pattern, tables, rows):
    assert_equals_host(any_pattern, tables, rows)


@pytest.mark.parametrize(("index", "split"), [(0, 1), (1, 3), (NUM_ROWS, NUM_BYTES + 1)])
def test_invalid_row_splits(tables, index, split):
    data, splits = to_arrays([b"low lower"] * NUM_ROWS)
    splits = np.array(splits)
    splits[index] = split if index != 1 else splits[2] + split
    tokens = encode_jit(tables, data, splits, capacities=CAPACITIES)
    assert tokens.exceeded
    assert {*map(int, tokens.needed)} == {-1}


@pytest.fixture(scope="module")
def special_tables(tokenizer):
    return tokenizer_tables(tokenizer, allowed_special="all")


@pytest.mark.slow
@get_max_examples(100)
@given(rows=texts)
def test_special_tokens_equal_the_host(tokenizer, special_tables, rows):
    assert_equals_host(tokenizer, special_tables, rows, allowed_special="all")


def test_corpus_and_words_of_any_length(any_pattern, tables, corpus):
    rows = [text.encode() for text in corpus]
    assert_equals_host(any_pattern, tables, rows)
    long = [b"lowest" * 60, b"a" * 500, b"newest" * 20 + b"-" * 300, bytes(range(97, 123)) * 8]
    assert_equals_host(any_pattern, tables, long)


@pytest.fixture
def merging_of_accelerators(monkeypatch):
    monkeypatch.setattr(merging, "_CPU", merging._ACCELERATOR)
    encode_jit.clear_cache()
    yield
    encode_jit.clear_cache()


@pytest.mark.slow
@pytest.mark.usefixtures("merging_of_accelerators")
def test_merging_of_accelerators(o200k, o200k_tables, corpus):
    assert_equals_host(o200k, o200k_tables, [text.encode() for text in corpus])
    assert_equals_host(o200k, o200k_tables, [b" newest" * 200, b"lowest" * 20, b"a" * 127, b"ab" * 65])


@pytest.mark.slow
def test_megabyte_of_one_letter(o200k, o200k_tables):
    data = jnp.full(1 << 20, ord("a"), jnp.uint8)
    sizes = suggest_capacities(1 << 20)
    sizes = sizes._replace(tokens=1 << 20, miss_bytes=1 << 20, long_symbols=1 << 20)
    tokens = encode_jit(o200k_tables, data, jnp.array([0, 1 << 20]), capacities=sizes)
    expected = tokjax.encode(o200k, b"a" * (1 << 20), add_special_tokens=False)
    assert not tokens.exceeded
    assert np.asarray(tokens.ids)[: int(tokens.num_tokens)].tolist() == expected.tolist()


words_of_letters = st.lists(st.sampled_from("abcéè中丸"), min_size=2, max_size=6).map("".join).map(str.encode)
parts_of_words = st.builds(
    lambda word, first, size: word[first : first + size],
    words_of_letters,
    st.integers(0, 8),
    st.integers(2, 6),
).filter(lambda part: len(part) > 1)
NUM_TOKENS = 24
FILLERS = [bytes([first, second]) for first in range(0xF5, 0x100) for second in range(0xD0, 0xF8)]
"""Tokens of bytes that UTF-8 does not have. With 412 tokens, the tables of all random vocabularies have the
same shapes, and the program is compiled once."""


@pytest.mark.slow
@pytest.mark.parametrize("with_merges", [False, True])
@get_max_examples(50)
@given(
    st.lists(parts_of_words, max_size=NUM_TOKENS, unique=True),
    st.lists(words_of_letters, max_size=6),
    st.randoms(),
)
def test_random_vocabularies(with_merges, tokens, words, random):
    """Ranks in any order, so that merges arise that have to be made before others."""
    tokens = tokens + FILLERS[: 412 - len(tokens)]
    random.shuffle(tokens)
    ranks = {bytes([i]): i for i in range(256)} | {token: 256 + i for i, token in enumerate(tokens)}
    tokenizer = tokjax.byte_level_bpe(ranks, merges=_make_merges(ranks) if with_merges else None)
    rules = make_rules_from_ranks(ranks) if not with_merges else tokenizer.rules
    rows = [b"".join(words[:i]) * (1 + 9 * (i % 2)) for i in range(6)] + [b"abcabcab" * 25]
    data, splits = to_arrays(fit(rows))
    result = encode_jit(_pad_tables(tokenizer_tables(tokenizer)), data, splits, capacities=CAPACITIES)
    assert not result.exceeded
    for i, row in enumerate(fit(rows)):
        part = slice(int(result.row_splits[i]), int(result.row_splits[i + 1]))
        assert np.asarray(result.ids)[part].tolist() == (merge_pretoken(row, rules) if row else [])


def _pad_tables(tables, size=2048):
    """Pads the arrays whose lengths depend on the tokens. The values after the last one are not used."""
    pad = lambda values: None if values is None else jnp.pad(values, (0, size - len(values)))  # noqa: E731
    merges = tables.merges._replace(merged=pad(tables.merges.merged))
    names = ("word_ids", "symbol_ids", "token_bytes")
    return tables._replace(merges=merges, **{name: pad(getattr(tables, name)) for name in names})


def _make_merges(ranks):
    """Returns one way to split each token that is the concatenation of two others."""
    merges = []
    for token in ranks:
        splits = [
            (token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks
        ]
        merges += splits[:1]
    return merges


@pytest.mark.slow
def test_sample_texts_are_looked_up(o200k):
    text = b" unseenword otherword"
    data, splits = to_arrays([text])
    needed = []
    for sample in ((), [text]):
        tables = tokenizer_tables(o200k, texts=sample)
        needed.append(int(encode_jit(tables, data, splits, capacities=CAPACITIES).needed.misses))
        assert_equals_host(o200k, tables, [text])
    assert needed == [2, 0]


@pytest.mark.slow
def test_exceeded_capacities(o200k, o200k_tables):
    rows = [b" unseen" * 20, b"q" * 20 + b"z" * 40, b"y" * 100, b"x" * 300, b"12'12" * 9]
    data, splits = to_arrays(rows)
    enough = encode_jit(o200k_tables, data, splits, capacities=CAPACITIES)
    exact = Capacities(*map(int, enough.needed))
    assert_equals_host(o200k, o200k_tables, rows, capacities=exact._replace(special=1))
    names = exact._fields if is_thorough() else ("tokens",)
    for name in names:
        size = getattr(exact, name)
        if size:
            few = encode_jit(o200k_tables, data, splits, capacities=CAPACITIES._replace(**{name: size - 1}))
            assert few.exceeded, name
            assert int(getattr(few.needed, name)) == size
    decoded = decode_jit(o200k_tables, enough.ids, enough.row_splits, capacity=10)
    assert decoded.exceeded
    assert int(decoded.num_bytes) == sum(map(len, rows))


@pytest.mark.slow
def test_default_capacities_hold_prose(o200k, o200k_tables, corpus):
    text = (" ".join(corpus[:2]) * 12).encode()[:NUM_BYTES]
    data, splits = to_arrays([text])
    tokens = encode_jit(o200k_tables, data, splits)
    assert not tokens.exceeded
    assert tokens.ids.shape == (suggest_capacities(NUM_BYTES).tokens,)


def test_empty_batch(any_pattern, tables):
    assert_equals_host(any_pattern, tables, [])
    assert_equals_host(any_pattern, tables, [b"", b"a", b"", b""])


def stack(tokens):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *tokens)


@pytest.mark.slow
def test_vmap_and_shard_map(o200k, o200k_tables):
    batches = [
        to_arrays([b"the lowest", b"\xff it's"]),
        to_arrays([b"x" * 150]),
        to_arrays([]),
        to_arrays([b"12345 67"]),
    ]
    expected = stack([encode_jit(o200k_tables, *batch, capacities=CAPACITIES) for batch in batches])
    data, splits = map(jnp.stack, zip(*batches, strict=True))
    encode = jax.vmap(partial(encode_jit, capacities=CAPACITIES), in_axes=(None, 0, 0))
    mesh = Mesh(np.array(jax.devices()[:4]), ("rows",))
    rows = PartitionSpec("rows")
    shard_map = getattr(jax, "shard_map", None)
    if shard_map is None:  # old versions of JAX, whose check of replication rejects loops
        old = import_module("jax.experimental.shard_map")
        shard_map = partial(old.shard_map, check_rep=False)
    sharded = jax.jit(shard_map(encode, mesh=mesh, in_specs=(PartitionSpec(), rows, rows), out_specs=rows))
    for tokens in (encode(o200k_tables, data, splits), sharded(o200k_tables, data, splits)):
        jax.tree.map(np.testing.assert_array_equal, tokens, expected)
    if jax.__version_info__ >= (0, 9):  # (meshes with explicit axes)
        with jax.set_mesh(jax.make_mesh((4,), ("bytes",))):
            on_mesh = jax.device_put(data[0], PartitionSpec("bytes"))
            tokens = encode_jit(o200k_tables, on_mesh, splits[0], capacities=CAPACITIES)
            text = decode_jit(o200k_tables, tokens.ids, tokens.row_splits, capacity=NUM_BYTES)
        jax.tree.map(np.testing.assert_array_equal, tokens, jax.tree.map(lambda leaf: leaf[0], expected))
        assert bytes(np.asarray(text.data)[: text.num_bytes]) == b"the lowest\xff it's"


@pytest.mark.slow
def test_export_for_all_platforms(o200k, o200k_tables):
    data, splits = to_arrays([b"it's the lowest"])
    exported = export.export(encode_jit, platforms=["cpu", "cuda", "tpu"])(o200k_tables, data, splits)
    assert exported.platforms == ("cpu", "cuda", "tpu")
    tokens = exported.call(o200k_tables, data, splits)
    jax.tree.map(np.testing.assert_array_equal, tokens, encode_jit(o200k_tables, data, splits))
    assert export.export(decode_jit, platforms=["cpu", "cuda", "tpu"])(
        o200k_tables, tokens.ids, tokens.row_splits, capacity=100
    )


@pytest.mark.slow
def test_decode_text_encode_again_on_the_device(o200k, o200k_tables):
    """A loop of reinforcement learning: decode, append text, and encode without a copy to the host."""

    @jax.jit
    def extend(tokens):
        text = decode_jit(o200k_tables, tokens.ids, tokens.row_splits, capacity=NUM_BYTES - 4)
        suffix = jnp.frombuffer(b" low", jnp.uint8)
        data = jnp.zeros(NUM_BYTES, jnp.uint8).at[: NUM_BYTES - 4].set(text.data)
        data = jax.lax.dynamic_update_slice(data, suffix, (text.num_bytes,))
        return encode_jit(o200k_tables, data, jnp.stack([0, text.num_bytes + 4]), capacities=CAPACITIES)

    data, _ = to_arrays([b"the newest"])
    with jax.transfer_guard_device_to_host("disallow"):
        tokens = extend(encode_jit(o200k_tables, data, jnp.array([0, 10]), capacities=CAPACITIES))
    expected = tokjax.encode(o200k, "the newest low", add_special_tokens=False)
    assert np.asarray(tokens.ids)[: int(tokens.num_tokens)].tolist() == expected.tolist()


class TestErrors:
    def reject(self, tokenizer, message):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            tokenizer_tables(tokenizer)

    def test_unsupported_tokenizers(self, plain_tokenizer):
        ranks = dict(plain_tokenizer.vocabulary.ordinary)
        self.reject(tokjax.byte_level(), "takes a byte-level BPE tokenizer, not a .*; encode on the host")
        self.reject(tokjax.byte_level_bpe(ranks, pattern="qwen2"), "does not support normalizer='nfc'")
        self.reject(tokjax.byte_level_bpe(ranks, add_prefix_space=True), "add_prefix_space=True")
        self.reject(tokjax.byte_level_bpe(ranks, trim_offsets="all"), "trim_offsets='all'")
        self.reject(tokjax.byte_level_bpe(ranks, pattern=r"(?<=a)b|\w+|\W"), "has no boundary tables")

    def test_long_token_that_merging_does_not_make(self):
        ranks = {bytes([i]): i for i in range(256)} | {b"abcdefghijklmnopqrst": 256}
        self.reject(tokjax.byte_level_bpe(ranks), "a token of more than 16 bytes is not what its")
