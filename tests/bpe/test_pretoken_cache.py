"""Tests of the pre-token cache."""

import pickle

import numpy as np
from hypothesis import given, strategies as st

from tokjax._util.cache_exchange import collect_queues
from tokjax.bpe import pretoken_cache
from tokjax.bpe.batched_merging import BatchMerger
from tokjax.bpe.hash_tables import ABSENT, make_pretokens
from tokjax.bpe.merge_rules import make_rules_from_ranks
from tokjax.bpe.sequential_merging import merge_pretoken


def test_cache_reset_between_lookup_and_merge(tokenizer, monkeypatch):
    """Values from before a reset mean nothing afterwards. Such lookups are repeated."""
    cache, copy, *_ = make_copied_cache(tokenizer)
    rules = make_rules_from_ranks(tokenizer.vocabulary.ordinary)
    texts = [b"xqxq%d" % i for i in range(50)]
    get_ids(copy, make_pretokens(texts[20:]))
    get_ids(cache, make_pretokens(texts[:30]))
    monkeypatch.setattr(cache, "_get_entries", lambda: copy.entries)
    batches = [make_pretokens(texts[10:]), make_pretokens(texts[:5])]
    expected = [
        [id_ for text in part for id_ in merge_pretoken(text, rules)] for part in (texts[10:], texts[:5])
    ]
    assert [ids.ids.tolist() for ids in cache.encode(batches)] == expected


def make_copied_cache(tokenizer):
    """Returns a cache, its copy as a worker has it, and the queues of both."""
    rules = make_rules_from_ranks(tokenizer.vocabulary.ordinary)
    cache = pretoken_cache.PretokenCache(rules.atomic_ids, BatchMerger(rules))
    with collect_queues() as queues:
        pickled = pickle.dumps(cache)
    with collect_queues() as queues_of_copy:
        copy = pickle.loads(pickled)
    return cache, copy, *queues, *queues_of_copy


def get_ids(cache, pretokens):
    [ids] = cache.encode([pretokens])
    return ids.ids.tolist()


@given(texts=st.lists(st.binary(min_size=1, max_size=150), min_size=1, max_size=30), data=st.data())
def test_copies_exchange_pretokens(tokenizer, texts, data):
    cache, copy, queue, queue_of_copy = make_copied_cache(tokenizer)
    pretokens = make_pretokens(texts)
    expected = [merge_pretoken(text, make_rules_from_ranks(tokenizer.vocabulary.ordinary)) for text in texts]
    expected = [id_ for ids in expected for id_ in ids]
    indices = np.array(data.draw(st.lists(st.integers(0, len(texts) - 1))), np.int64)
    get_ids(cache, pretokens.take(indices))
    get_ids(copy, pretokens.take(indices[::2]))  # some pre-tokens arrive where they are known
    queue_of_copy.deliver(queue.take())
    assert get_ids(copy, pretokens) == expected
    queue.deliver(queue_of_copy.take())
    assert (cache.entries.tables.find(pretokens) != ABSENT).all()
    assert get_ids(cache, pretokens) == expected


def test_full_cache_takes_and_sends_nothing(tokenizer, monkeypatch):
    cache, copy, queue, queue_of_copy = make_copied_cache(tokenizer)
    get_ids(cache, make_pretokens([b"xqxq%d" % i for i in range(50)]))
    monkeypatch.setattr(pretoken_cache, "MAX_CACHE_BYTES", 0)
    get_ids(copy, make_pretokens([b"qxqx"]))
    queue_of_copy.deliver(queue.take())
    assert copy.entries.tables.find(make_pretokens([b"xqxq7"])).tolist() == [ABSENT]
    get_ids(copy, make_pretokens([b"xqxq7"]))  # resets the cache of the copy
    queue_of_copy.take()
    get_ids(copy, make_pretokens([b"xqxq8"]))
    assert queue_of_copy.take() == []
