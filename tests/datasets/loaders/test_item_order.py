"""Tests of the order of items: permutations, mixtures, and loaders of several datasets."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.loader_cases import are_equal, read_document_numbers
from tests.support.rejections import rejects
from tokjax._util.permutation import permute
from tokjax.datasets.loaders.item_order import build_mixture


@given(st.one_of(st.integers(1, 600), st.integers(4090, 4200)), st.integers(0, 2**64 - 1), st.integers(0, 5))
def test_permutation(size, seed, epoch):
    order = permute(np.arange(size), size, seed, epoch)
    assert sorted(order.tolist()) == list(range(size))
    subset = np.arange(0, size, 3)
    assert permute(subset, size, seed, epoch).tolist() == order[::3].tolist()


@given(
    size=st.one_of(st.integers(1, 40), st.integers(4090, 4200)),
    epochs=st.lists(st.integers(0, 2**62), max_size=30),
    seed=st.integers(-(2**70), 2**70),
)
def test_permutation_with_one_key_per_index(size, epochs, seed):
    indices = np.arange(len(epochs)) * 7 % size
    together = permute(indices, size, seed, np.array(epochs, np.int64), 3)
    separate = [
        int(permute(index, size, seed, epoch, 3)) for index, epoch in zip(indices, epochs, strict=True)
    ]
    assert together.tolist() == separate


def test_permutations_are_stable():
    # Saved states depend on them.
    assert permute(np.arange(7), 7, 5, 1).tolist() == [2, 3, 1, 5, 4, 6, 0]
    assert permute(np.arange(4), 5000, 5, 1).tolist() == [2275, 1943, 4196, 2284]
    assert permute(np.arange(4), 5000, -1, 2**40, 3).tolist() == [2657, 4480, 2707, 4558]


def test_positions_are_uniform():
    hits = np.zeros((6, 6))
    for seed in range(3000):
        hits[np.arange(6), permute(np.arange(6), 6, seed)] += 1
    expected = 3000 / 6
    assert ((hits - expected) ** 2 / expected).sum() < 60  # chi-squared with 25 degrees of freedom


def test_permutations_differ_and_look_random():
    size = 5000
    orders = [permute(np.arange(size), size, seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert (np.abs(np.corrcoef([np.arange(size), *orders]) - np.eye(5)) < 0.06).all()
    assert all((order == other).sum() < 12 for i, order in enumerate(orders) for other in orders[:i])


def test_permutation_of_a_huge_range():
    permuted = permute(np.arange(10), 10**15, 3)
    assert len(set(permuted.tolist())) == 10
    with rejects("from 0 to 9"):
        permute([10], 10)


@given(weights=st.lists(st.floats(0.01, 1), min_size=1, max_size=6), first=st.integers(0, 10**15))
def test_mixture_positions(weights, first):
    mixture = build_mixture(weights, len(weights))
    datasets, counts = mixture.locate(np.arange(200))
    for dataset in range(len(weights)):
        assert counts[datasets == dataset].tolist() == list(range((datasets == dataset).sum()))
    datasets, counts = mixture.locate(np.arange(first, first + 50))
    for dataset in range(len(weights)):
        dataset_counts = counts[datasets == dataset]
        assert (np.diff(dataset_counts) == 1).all()


class TestSeveralDatasets:
    def make(self, datasets, **options):
        both = [datasets["tokenized"], datasets["tokenized others"]]
        return tokjax.datasets.SequenceLoader(both, batch_size=10, **options)

    def test_documents_occur_once_per_epoch_without_weights(self, datasets):
        loader = self.make(datasets, drop_last=False)
        for _ in range(2):
            numbers = [number for batch in loader for number in read_document_numbers(batch)]
            assert sorted(numbers) == [*range(97), *range(500, 537)]

    @get_max_examples(20)
    @given(weights=st.lists(st.floats(0.02, 1), min_size=2, max_size=2), seed=st.integers(0, 100))
    def test_weights_are_shares_of_the_stream(self, datasets, weights, seed):
        loader = self.make(datasets, weights=weights, seed=seed)
        stream = loader.repeat()
        numbers = [number for _ in range(60) for number in read_document_numbers(next(stream))]
        share = weights[0] / sum(weights)
        assert abs(sum(number < 500 for number in numbers) - 600 * share) < 2
        for first, size in ((0, 97), (500, 37)):
            single = [number for number in numbers if first <= number < first + size]
            for start in range(0, len(single) - size + 1, size):
                assert sorted(single[start : start + size]) == list(range(first, first + size))
        assert loader.steps_per_epoch is None
        with pytest.raises(TypeError, match="a mixture has no end"):
            len(loader)

    @pytest.mark.parametrize(
        ("kind", "name", "options"),
        [
            (tokjax.PackedTokenLoader, "packed", {"batch_size": 4}),
            (tokjax.datasets.BucketedLoader, "bucketed", {"batch_size": 4}),
            (tokjax.datasets.TokenBudgetLoader, "tokenized", {"budget": 400}),
        ],
    )
    def test_all_loader_kinds(self, datasets, kind, name, options):
        loader = kind([datasets[name], datasets[f"{name} others"]], weights=[1, 1], **options)
        has_y = [(loader.batch_at(step).ids == ord("y")).any() for step in range(20)]
        # Each batch has documents of one dataset, or chunks of both.
        assert sum(has_y) >= 10 if name == "packed" else sum(has_y) == 10

    def test_packed_datasets_without_weights(self, datasets):
        both = [datasets["packed"], datasets["packed others"]]
        packed = tokjax.PackedTokenLoader(both, batch_size=3, shuffle=False, drop_last=False)
        chunks, batches = sum(dataset.num_tokens // 16 for dataset in both), list(packed)
        assert [int(batch.total_tokens) for batch in batches[:-1]] == [48] * (chunks // 3)
        assert int(batches[-1].total_tokens) == 16 * (chunks % 3)
        assert batches[-1].document_ids.max() == 97 + 36

    def test_weights_of_any_iterable(self, datasets):
        loader, expected = self.make(datasets, weights=iter((2, 1))), self.make(datasets, weights=[2.0, 1.0])
        assert are_equal(loader.batch_at(3), expected.batch_at(3))
        loader.set_state(json.loads(json.dumps(expected.get_state())))

    def test_too_large_steps(self, datasets):
        loader = self.make(datasets, weights=[2, 1])
        with rejects(r"step is \d+; steps are below \d+"):
            loader.batch_at(2**62)

    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            ([1], "there are 2 datasets and 1 weights"),
            ([1, 0], "weights must be above 0"),
            ([1, 1e-9], "at least 1/16384 of their sum"),
            ([1, float("nan")], "weights must be a number"),
            ("12", "weights must be numbers, one for each dataset"),
            (2, "weights must be numbers, one for each dataset"),
        ],
    )
    def test_invalid_weights(self, datasets, weights, message):
        with rejects(message):
            self.make(datasets, weights=weights)
