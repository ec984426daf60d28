"""Tests of merging repetitive texts by their parts, against merging one pair at a time."""

import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers

import tokjax
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.variants import mark_slow_except
from tokjax.bpe import sequential_merging
from tokjax.bpe.merge_rules import make_rules_from_merges, make_rules_from_ranks
from tokjax.bpe.sequential_merging import RepetitiveMerger, merge_by_scanning

BYTES = {bytes([i]): i for i in range(256)}
runs = st.tuples(st.text("ab", min_size=1, max_size=3), st.integers(1, 40)).map(lambda run: run[0] * run[1])
texts = st.lists(runs, min_size=1, max_size=6).map("".join).map(str.encode)


@st.composite
def merge_rules(draw):
    """Draws rules from ranks in any order, or from a list of merges, also of tokens that come later."""
    tokens = draw(st.sets(st.text("ab", min_size=2, max_size=9).map(str.encode), max_size=25))
    ids = BYTES | {token: 256 + i for i, token in enumerate(draw(st.permutations(sorted(tokens))))}
    if draw(st.booleans()):
        return make_rules_from_ranks(ids)
    merges = [(token[:i], token[i:]) for token in sorted(tokens) for i in range(1, len(token))]
    merges = [merge for merge in merges if set(merge) <= ids.keys()]
    return make_rules_from_merges(ids, draw(st.permutations(merges)), ignore_merges=False)


@given(merge_rules(), st.lists(texts, min_size=1, max_size=3), st.integers(1, 12), st.integers(1, 4))
@get_max_examples(500)
def test_repetitive_merging_equals_sequential(rules, texts, part, attempts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequential_merging, "_PART", part)
        patch.setattr(sequential_merging, "_MAX_ATTEMPTS", attempts)
        patch.setattr(sequential_merging, "is_repetitive", lambda _: True)
        merger = RepetitiveMerger(rules)
        merged = [merger.merge(text) for text in texts]
    assert merged == [merge_by_scanning(text, rules.get_rank) for text in texts]


def make_space_tokenizers(longest, order):
    """Returns tokenizers with tokens of up to `longest` spaces, that of the library and the built-in one."""
    forms = (
        [f"<0x{i:02X}>" for i in range(256)] + ["a", "▁a", "a▁"] + ["▁" * i for i in range(1, longest + 1)]
    )
    lengths = range(longest, 1, -1) if order == "longest first" else range(2, longest + 1)
    merges = [("▁" * left, "▁" * (length - left)) for length in lengths for left in range(length - 1, 0, -1)]
    merges[longest:longest] = [("▁", "a"), ("a", "▁")]
    ids = {form: i for i, form in enumerate(forms)}
    reference = Tokenizer(models.BPE(ids, merges, byte_fallback=True))
    reference.normalizer = normalizers.Replace(" ", "▁")
    reference.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer = tokjax.formats.from_huggingface(reference)
    assert isinstance(tokenizer, tokjax.models.MetaspaceBPE)
    return reference, tokenizer


@pytest.mark.parametrize("order", ["longest first", "shortest first"])
@pytest.mark.parametrize("longest", mark_slow_except([2, 7, 31], [7]))
def test_runs_of_spaces(longest, order):
    """As in Gemma, whose merges make long runs of spaces first, so that all pairs of a run wait for one."""
    reference, tokenizer = make_space_tokenizers(longest, order)
    lengths = [*range(500, 600, 7), 1023, 1024, 1025, 2500, 4999]
    texts = [f"a{' ' * length}{' a' * (length % 2)}" for length in lengths]
    texts += ["".join(f"{' ' * length}a" for length in lengths), " " * 70_000 + "a" + " " * 40_000]
    expected = [encoding.ids for encoding in reference.encode_batch(texts)]
    assert [row.ids.tolist() for row in tokjax.encode_batch_result(tokenizer, texts)] == expected
    assert tokjax.encode(tokenizer, texts[-3]).tolist() == expected[-3]
