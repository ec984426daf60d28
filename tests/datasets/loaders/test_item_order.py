"""Loaders of several datasets; their states, copies and shares, and what makes no sense."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.loader_cases import LOADERS, TEXTS, are_equal, read_document_numbers, write_datasets
from tokjax.datasets.loaders.item_order import build_mixture


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    return write_datasets(tmp_path_factory.mktemp("loaders"))


loaders = pytest.mark.parametrize("name", LOADERS)


class TestSeveralDatasets:
    def make(self, datasets, **options):
        both = [datasets["tokenized"], datasets["tokenized others"]]
        return tokjax.SequenceLoader(both, batch_size=10, **options)

    def test_without_weights_each_document_comes_once(self, datasets):
        loader = self.make(datasets, drop_last=False)
        for _ in range(2):
            numbers = [number for batch in loader for number in read_document_numbers(batch)]
            assert sorted(numbers) == [*range(97), *range(500, 537)]

    @get_max_examples(20)
    @given(weights=st.lists(st.floats(0.02, 1), min_size=2, max_size=2), seed=st.integers(0, 100))
    def test_with_weights_they_are_mixed(self, datasets, weights, seed):
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

    def test_all_loader_kinds(self, datasets):
        for kind, options in (
            (tokjax.PackedTokenLoader, {"batch_size": 4}),
            (tokjax.BucketedLoader, {"batch_size": 4}),
            (tokjax.TokenBudgetLoader, {"budget": 400}),
        ):
            name = {"PackedTokenLoader": "packed", "BucketedLoader": "bucketed"}.get(
                kind.__name__, "tokenized"
            )
            both = [datasets[name], datasets[f"{name} others"]]
            loader = kind(both, weights=[1, 1], **options)
            marks = [(batch.ids == ord("y")).any() for batch in (loader.batch_at(step) for step in range(20))]
            assert any(marks)
            if name != "packed":  # (a batch is of one dataset)
                assert sum(marks) == 10
        packed = tokjax.PackedTokenLoader(
            [datasets["packed"], datasets["packed others"]],
            batch_size=3,
            shuffle=False,
            drop_last=False,
        )
        chunks = sum(dataset.num_tokens // 16 for dataset in packed.datasets)
        batches = list(packed)
        assert sum(int((batch.attention_mask.any(axis=1)).sum()) for batch in batches) == chunks
        assert batches[-1].document_ids.max() == 97 + 36
        assert [int(batch.total_tokens) for batch in batches[:-1]] == [48] * (len(batches) - 1)

    def test_weights_of_any_iterable(self, datasets):
        given, listed = self.make(datasets, weights=iter((2, 1))), self.make(datasets, weights=[2.0, 1.0])
        assert are_equal(given.batch_at(3), listed.batch_at(3))
        given.set_state(json.loads(json.dumps(listed.get_state())))

    def test_steps_that_are_too_far(self, datasets):
        loader = self.make(datasets, weights=[2, 1])
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"step is \d+; steps are below \d+"):
            loader.batch_at(2**62)

    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            ([1], "there are 2 datasets and 1 weights"),
            ([1, 0], "weights are above 0"),
            ([1, 1e-9], "no less than 1/16384 of all"),
            ([1, float("nan")], "weights must be a number"),
            ("12", "weights must be numbers, one for each dataset"),
            (2, "weights must be numbers, one for each dataset"),
        ],
    )
    def test_invalid_weights(self, datasets, weights, message):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            self.make(datasets, weights=weights)


@given(weights=st.lists(st.floats(0.01, 1), min_size=1, max_size=6), place=st.integers(0, 10**15))
def test_mixture_positions(weights, place):
    mixed = build_mixture(weights, len(weights))
    some = np.arange(200)
    datasets, counts = mixed.at(some)
    for dataset in range(len(weights)):
        assert counts[datasets == dataset].tolist() == list(range((datasets == dataset).sum()))
    datasets, counts = mixed.at(np.arange(place, place + 50))
    for dataset in range(len(weights)):
        here = counts[datasets == dataset]
        assert (np.diff(here) == 1).all()


class TestPositions:
    def test_datasets_of_several_tokenizers(self, datasets, tmp_path):
        other = tokjax.byte_level(["</s>", "<pad>"], eos_token="</s>", pad_token="<pad>")
        tokjax.write_dataset(TEXTS, tokjax.TokenizedTextField(other, 50), tmp_path / "other")
        both = [datasets["tokenized"], tokjax.open_dataset(tmp_path / "other")]
        for weights in (None, [1, 1]):
            with pytest.raises(tokjax.errors.DatasetMismatchError, match="ids would be of 2 tokenizers"):
                tokjax.SequenceLoader(both, batch_size=2, weights=weights)
        for kind, options in ((tokjax.PackedTokenLoader, {}), (tokjax.BucketedLoader, {})):
            with pytest.raises(
                tokjax.errors.InvalidArgumentError, match="loads a .*Dataset, .* not a RawTextDataset"
            ):
                kind(datasets["raw"], batch_size=2, **options)
        raw = LOADERS["raw"](datasets)
        with pytest.raises(tokjax.errors.DatasetMismatchError, match="the state's tokenizer is"):
            raw.set_state(LOADERS["raw"](datasets, tokenizer=other, pad_id=0).get_state())

    def test_a_state_of_another_loader(self, datasets):
        loader = LOADERS["tokenized"](datasets)
        for other in (
            LOADERS["raw"](datasets),
            LOADERS["tokenized"](datasets, seed=1),
            LOADERS["budget"](datasets),
        ):
            with pytest.raises(
                tokjax.errors.DatasetMismatchError, match=r"the state's \w+ is .*, this loader's is"
            ):
                loader.set_state(other.get_state())
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="the state's step must be at least 0"):
            loader.set_state(loader.get_state() | {"step": -1})
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="a state is what get_state gave.*got None"
        ):
            loader.set_state(None)

    @loaders
    def test_pickled(self, datasets, name):
        loader = LOADERS[name](datasets)
        next(iter(loader))
        again = pickle.loads(pickle.dumps(loader))
        assert are_equal(again.batch_at(1), loader.batch_at(1))
        assert again.get_state() == loader.get_state()

    def test_invalid_processes(self, datasets):
        loader = LOADERS["tokenized"](datasets)
        with pytest.raises(
            tokjax.errors.InvalidArgumentError,
            match="batch_size is 12, and 5 processes can't share rows equally; make it a multiple of 5",
        ):
            loader.shard(0, 5)
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="process_index is 2; with 2 processes"):
            loader.shard(2, 2)

    def test_repeat(self, datasets):
        loader = LOADERS["tokenized"](datasets)
        next(iter(loader))
        assert len(list(loader.repeat(2))) == 2 * len(loader) - 1
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="epochs must be at least 1"):
            next(loader.repeat(0))

    def test_options_that_make_no_sense(self, datasets):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="PackedTokenField has no limit of ids"):
            tokjax.SequenceLoader(datasets["packed"], batch_size=2)
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="TokenizedTextField has no buckets"):
            tokjax.BucketedLoader(datasets["tokenized"], batch_size=2)
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="multiple_of needs lengths"):
            tokjax.SequenceLoader(datasets["raw"], batch_size=2, length=4, multiple_of=2)
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="a loader needs a dataset; got none"):
            tokjax.SequenceLoader([], batch_size=2)
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match=r"bucketed fills no batch: its fullest bucket"
        ):
            tokjax.BucketedLoader(datasets["bucketed"], batch_size=98)
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="97 items, fewer than one batch of 98"):
            tokjax.SequenceLoader(datasets["tokenized"], batch_size=98)
