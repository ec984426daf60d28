"""Tests of the pre-token cache."""

import numpy as np

from tokjax.bpe import pretoken_cache
from tokjax.bpe.batched_merging import BatchMerger
from tokjax.bpe.hash_tables import make_pretokens
from tokjax.bpe.merge_rules import make_rules_from_ranks
from tokjax.bpe.sequential_merging import merge_pretoken


def test_entries_survive_cache_reset(tokenizer, monkeypatch):
    """Values from before a reset mean nothing afterwards. Such lookups are repeated."""
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
