"""Tests of the base class of loaders: vocabularies, state, sharding, iteration and errors."""

import copy
import pickle

import numpy as np
import pytest

import tokjax
from tests.support.loader_cases import (
    FIELDS,
    LOADERS,
    TEXTS,
    TOKENIZER,
    WITHOUT_SPECIAL,
    are_equal,
)
from tests.support.rejections import rejects
from tokjax.datasets.loaders.base import make_state
from tokjax.errors import DatasetIncompleteError, DatasetMismatchError, MissingSpecialTokenError

OTHER = tokjax.byte_level_bpe(
    {bytes([255 - i]): i for i in range(256)},
    special_tokens={"<s>": 256, "</s>": 257, "<pad>": 258},
    bos_token="<s>",
    eos_token="</s>",
    pad_token="<pad>",
)


loaders = pytest.mark.parametrize("name", LOADERS)


class TestOneVocabulary:
    def loader(self, *datasets, **options):
        return tokjax.datasets.SequenceLoader(
            list(datasets), batch_size=97, length=20, shuffle=False, **options
        )

    def test_texts_and_ids(self, datasets):
        # For any order of datasets. The error is raised before a batch is loaded.
        raw, other = (tokjax.open_dataset(datasets["raw"].path, each) for each in (TOKENIZER, OTHER))
        without_tokenizer, stored = (
            tokjax.open_dataset(datasets["raw"].path),
            tokjax.open_dataset(datasets["tokenized"].path),
        )
        for pair in ((other, stored), (raw, other)):
            for passed in (pair, pair[::-1]):
                with pytest.raises(DatasetMismatchError, match="ids would be of 2 tokenizers"):
                    self.loader(*passed)
        with pytest.raises(DatasetMismatchError, match="ids would be of 2 tokenizers"):
            self.loader(without_tokenizer, stored, tokenizer=OTHER)
        with pytest.raises(DatasetMismatchError, match="ids would be of 2 tokenizers"):
            self.loader(stored, tokenizer=OTHER)
        expected = self.loader(stored).batch_at(0)
        expected_state = make_state(0, {"tokenizer": tokjax.fingerprint(TOKENIZER)})
        for passed in (
            (raw, stored),
            (stored, raw),
            (without_tokenizer, stored),
            (stored, without_tokenizer),
            (without_tokenizer, raw),
        ):
            assert np.array_equal(self.loader(*passed).batch_at(0).ids, expected.ids)
            assert np.array_equal(self.loader(*passed).batch_at(1).ids, expected.ids)
            assert self.loader(*passed).get_state()["tokenizer"] == expected_state["tokenizer"]

    def test_missing_tokenizer(self, datasets):
        with pytest.raises(DatasetIncompleteError, match=r"raw holds texts and no tokenizer; open"):
            self.loader(tokjax.open_dataset(datasets["raw"].path))

    def test_maximum_length_defaults_to_that_of_any_dataset(self, datasets):
        both = [tokjax.open_dataset(datasets[name].path) for name in ("packed", "tokenized")]
        assert [tokjax.datasets.SequenceLoader(each, batch_size=4).length for each in (both, both[::-1])] == [
            50,
            50,
        ]


class TestStateAndSharding:
    def test_other_datasets_and_tokenizers(self, datasets):
        other = tokjax.byte_level(["</s>", "<pad>"], eos_token="</s>", pad_token="<pad>")
        for kind, options in ((tokjax.PackedTokenLoader, {}), (tokjax.PlannedLoader, {"block_size": 64})):
            with rejects("loads a .*Dataset, .* not a RawTextDataset"):
                kind(datasets["raw"], batch_size=2, **options)
            with rejects(r"not a WrittenDataset; pass open_dataset\(result\.path\)"):
                kind(tokjax.datasets.WrittenDataset(5, 1, 5, 0, 1, "data"), batch_size=2, **options)
        raw = LOADERS["raw"](datasets)
        with pytest.raises(DatasetMismatchError, match="the state's tokenizer is"):
            raw.set_state(LOADERS["raw"](datasets, tokenizer=other, pad_id=0).get_state())

    def test_state_of_another_loader(self, datasets):
        loader = LOADERS["tokenized"](datasets)
        for other in (
            LOADERS["raw"](datasets),
            LOADERS["tokenized"](datasets, seed=1),
            LOADERS["budget"](datasets),
        ):
            with pytest.raises(DatasetMismatchError, match=r"the state's \w+ is .*, this loader's is"):
                loader.set_state(other.get_state())
        for step in (-1, "3", None, 1.5):
            with rejects("the state's step must be"):
                loader.set_state(loader.get_state() | {"step": step})
        with pytest.raises(DatasetMismatchError, match="version"):
            loader.set_state({})
        with rejects("state must be a value of get_state.*got None"):
            loader.set_state(None)

    @loaders
    def test_copies_continue(self, datasets, name):
        loader = LOADERS[name](datasets)
        next(iter(loader))
        for copied in (copy.copy(loader), pickle.loads(pickle.dumps(loader))):
            assert copied.get_state() == loader.get_state()
            assert are_equal(next(iter(copied)), loader.batch_at(1))
            assert (copied.step, loader.step) == (2, 1)

    def test_invalid_processes(self, datasets):
        loader = LOADERS["tokenized"](datasets)
        with rejects("batch_size is 12, and 5 processes can't share rows equally; make it a multiple of 5"):
            loader.shard(0, 5)
        with rejects("process_index is 2, and must be less than process_count, 2"):
            loader.shard(2, 2)
        budget = tokjax.datasets.TokenBudgetLoader(datasets["tokenized"], budget=700)
        with rejects(
            "rows_multiple_of is 1, and 2 processes can't share rows equally; make it a multiple of 2"
        ):
            budget.shard(0, 2)

    def test_repeat(self, datasets):
        loader = LOADERS["tokenized"](datasets)
        next(iter(loader))
        assert len(list(loader.repeat(2))) == 2 * len(loader) - 1
        with rejects("epochs must be at least 1"):
            next(loader.repeat(0))

    def test_invalid_options(self, datasets):
        with rejects("PackedTokenField has no limit of ids"):
            tokjax.datasets.SequenceLoader(datasets["packed"], batch_size=2)
        with rejects("TokenizedTextField has no buckets"):
            tokjax.datasets.BucketedLoader(datasets["tokenized"], batch_size=2)
        with rejects(r"pass length=LENGTH to pad all batches to it"):
            tokjax.datasets.SequenceLoader(datasets["raw"], batch_size=2, length=4, multiple_of=2)
        with rejects(r"pass length=LENGTH to pad all batches to it"):
            tokjax.datasets.SequenceLoader([datasets["tokenized"], datasets["raw"]], batch_size=2)
        with rejects("a loader needs a dataset; got none"):
            tokjax.datasets.SequenceLoader([], batch_size=2)
        with rejects("batch_size must be at least 1"):
            tokjax.PackedTokenLoader(datasets["packed"], batch_size=0)
        with rejects("must be a function of a batch, not 3"):
            LOADERS["packed"](datasets).map(3)
        with rejects(r"bucketed fills no batch: its fullest bucket"):
            tokjax.datasets.BucketedLoader(datasets["bucketed"], batch_size=98)
        with pytest.raises(
            TypeError, match="SequenceLoader has no option 'sed'; all loaders have seed, shuf"
        ):
            tokjax.datasets.SequenceLoader(datasets["tokenized"], batch_size=2, sed=1)
        with rejects("97 items, fewer than one batch of 98"):
            tokjax.datasets.SequenceLoader(datasets["tokenized"], batch_size=98)


class TestPadding:
    def test_pad_id_without_token(self, tmp_path):
        tokjax.write_dataset(
            TEXTS, tokjax.PackedTokenField(WITHOUT_SPECIAL, chunk_tokens=8), tmp_path / "data"
        )
        dataset = tokjax.open_dataset(tmp_path / "data")
        with pytest.raises(MissingSpecialTokenError, match="loader without pad_id=ID needs .* pad"):
            tokjax.PackedTokenLoader(dataset, batch_size=2, drop_last=False)
        options = {"batch_size": 60, "drop_last": False, "shuffle": False}
        assert tokjax.PackedTokenLoader(dataset, **options, pad_id=3)[-1].ids[-1].tolist() == [3] * 8
        assert tokjax.PackedTokenLoader(dataset, batch_size=2).batch_at(0)


class TestErrors:
    def test_datasets_without_documents(self, datasets, tmp_path):
        tokjax.write_dataset([], FIELDS["tokenized"], tmp_path / "none")
        empty, nonempty = (
            tokjax.open_dataset(tmp_path / "none"),
            tokjax.open_dataset(datasets["tokenized"].path),
        )
        for make in (
            lambda **options: tokjax.datasets.TokenBudgetLoader(budget=700, **options),
            lambda **options: tokjax.datasets.SequenceLoader(batch_size=2, **options),
            lambda **options: tokjax.datasets.BucketedLoader(batch_size=2, bucket_boundaries=[50], **options),
        ):
            with rejects("none has no documents; there is nothing"):
                make(dataset=empty)
            assert make(dataset=[empty, nonempty]).steps_per_epoch > 0
        with rejects("none fills no batch: it has no documents"):
            tokjax.datasets.TokenBudgetLoader([nonempty, empty], budget=700, weights=[1, 1])


def negate(batch):
    return {"ids": -batch.ids}


class TestMap:
    @loaders
    def test_view_of_a_loader(self, datasets, name):
        loader = LOADERS[name](datasets)
        view = loader.map(negate)
        count = len(loader)
        assert (len(view), view.batch_rows) == (count, loader.batch_rows)
        assert are_equal(view.batch_at(count + 1), negate(loader.batch_at(count + 1)))
        assert are_equal(view[-1], negate(loader[-1]))
        specs = {str(negate_spec.ids) for negate_spec in loader.element_specs}
        assert {str(spec["ids"]) for spec in view.element_specs} == specs
        assert are_equal(list(view), [negate(loader[step]) for step in range(count)])
        assert loader.step == view.step == count

    def test_position_is_shared(self, datasets):
        loader = LOADERS["planned"](datasets)
        view = loader.map(negate)
        batches = view.repeat()
        next(batches)
        next(iter(loader))
        assert batches.get_state() == view.get_state() == loader.get_state()
        assert loader.step == view.step == 2
        view.set_state(LOADERS["planned"](datasets).get_state())
        assert loader.step == 0
        assert are_equal(next(batches), negate(loader[0]))
        with tokjax.datasets.prefetch_to_device(view) as on_device:
            assert are_equal(next(on_device), negate(loader[1]))
            assert on_device.get_state()["step"] == 2

    def test_shards_and_pickles(self, datasets):
        loader = LOADERS["planned"](datasets)
        view = loader.map(negate)
        next(iter(view))
        shard = view.shard(1, 3)
        assert are_equal(shard[3], negate(loader.shard(1, 3)[3]))
        assert shard.step == 1
        next(iter(shard))
        assert view.step == 1
        restored = pickle.loads(pickle.dumps(view))
        assert are_equal(next(iter(restored)), negate(loader[1]))
        assert (restored.step, view.step) == (2, 1)


def test_every_loader_is_true(datasets):
    for loader in (LOADERS["packed"](datasets), LOADERS["packed"](datasets, weights=[1])):
        assert all([loader, loader.map(negate)])


def test_repr(tmp_path):
    tokenizer = tokjax.byte_level(["</s>"], eos_token="</s>")
    tokjax.write_dataset(["abc"] * 9, tokjax.PackedTokenField(tokenizer, 4), tmp_path / "data")
    dataset = tokjax.open_dataset(tmp_path / "data")
    loader = tokjax.PackedTokenLoader(dataset, batch_size=2, seed=7)
    next(iter(loader))
    expected = f"PackedTokenLoader([{dataset!r}], batch_size=2, seed=7), at step 1"
    assert repr(loader) == expected
    to_maxtext = tokjax.PackedBlocks.to_maxtext
    assert repr(loader.map(negate)) == f"{expected}, mapped by negate"
    assert repr(loader.map(to_maxtext)) == f"{expected}, mapped by PackedBlocks.to_maxtext"
