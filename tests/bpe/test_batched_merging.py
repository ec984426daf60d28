"""Tests of batched merging, against sequential merging."""

import pytest
from hypothesis import given, strategies as st

from tokjax.bpe import batched_merging
from tokjax.bpe.batched_merging import BatchMerger
from tokjax.bpe.hash_tables import make_pretokens
from tokjax.bpe.merge_rules import make_rules_from_ranks
from tokjax.bpe.sequential_merging import merge_bytes

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
        patch.setattr(batched_merging, "_FEW_SYMBOLS", few)
        patch.setattr(batched_merging, "_MIN_MERGE_SHARE", share)
        patch.setattr(batched_merging, "_REACH", reach)
        patch.setattr(batched_merging, "_SYMBOLS_PER_BATCH", 100)
        merged = BatchMerger(make_rules_from_ranks(ranks)).merge(make_pretokens(pretokens))
    expected = [merge_bytes(pretoken, make_rules_from_ranks(ranks)) for pretoken in pretokens]
    assert merged.counts.tolist() == [len(tokens) for tokens in expected]
    assert merged.ids.tolist() == [ranks[token] for tokens in expected for token in tokens]
