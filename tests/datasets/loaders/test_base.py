"""What loaders are asked for: one vocabulary, special tokens in texts, cut documents, and clear refusals."""

import json

import numpy as np
import pytest

import tokjax
from tests.support.loader_cases import FIELDS, PAD, TEXTS, TOKENIZER
from tokjax.datasets.loaders.base import make_state

OTHER = tokjax.byte_level_bpe(
    {bytes([255 - i]): i for i in range(256)},
    special_tokens={"<s>": 256, "</s>": 257, "<pad>": 258},
    bos_token="<s>",
    eos_token="</s>",
    pad_token="<pad>",
)
WITHOUT_SPECIAL = tokjax.byte_level_bpe(
    {bytes([i]): i for i in range(256)}, special_tokens={"</s>": 256}, eos_token="</s>"
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("options")
    for name, field in FIELDS.items():
        tokjax.write_dataset(TEXTS, field, directory / name)
    tokjax.write_dataset(["one", "two", "three"], FIELDS["raw"], directory / "raw others")
    return directory


class TestOneVocabulary:
    def loader(self, *datasets, **options):
        return tokjax.SequenceLoader(list(datasets), batch_size=97, length=20, shuffle=False, **options)

    def test_of_texts_and_ids(self, directory):
        """In any order, whatever is given; the error comes before a batch."""
        raw, other = (tokjax.open_dataset(directory / "raw", each) for each in (TOKENIZER, OTHER))
        untold, stored = tokjax.open_dataset(directory / "raw"), tokjax.open_dataset(directory / "tokenized")
        for pair in ((other, stored), (raw, other)):
            for passed in (pair, pair[::-1]):
                with pytest.raises(tokjax.errors.DatasetMismatchError, match="ids would be of 2 tokenizers"):
                    self.loader(*passed)
        with pytest.raises(tokjax.errors.DatasetMismatchError, match="ids would be of 2 tokenizers"):
            self.loader(untold, stored, tokenizer=OTHER)
        with pytest.raises(tokjax.errors.DatasetMismatchError, match="ids would be of 2 tokenizers"):
            self.loader(stored, tokenizer=OTHER)
        expected = self.loader(stored).batch_at(0)
        expected_state = make_state(0, {"tokenizer": tokjax.fingerprint(TOKENIZER)})
        for passed in ((raw, stored), (stored, raw), (untold, stored), (stored, untold), (untold, raw)):
            assert np.array_equal(self.loader(*passed).batch_at(0).ids, expected.ids)
            assert np.array_equal(self.loader(*passed).batch_at(1).ids, expected.ids)
            assert self.loader(*passed).get_state()["tokenizer"] == expected_state["tokenizer"]

    def test_each_of_several_texts_is_tokenized_by_it(self, directory):
        both = [tokjax.open_dataset(directory / name, OTHER) for name in ("raw others", "raw")]
        batch = self.loader(*both).batch_at(0)
        assert batch.ids[0, :5].tolist() == [256, *(255 - byte for byte in b"one"), 257]
        assert batch.ids[3, 1:4].tolist() == [255 - byte for byte in b"000"]
        chosen = self.loader(*both, tokenizer=TOKENIZER).batch_at(0)
        assert chosen.ids[0, :5].tolist() == [256, *b"one", 257]

    def test_missing_special_token(self, directory):
        with pytest.raises(
            tokjax.errors.DatasetIncompleteError, match=r"raw holds texts and no tokenizer; open"
        ):
            self.loader(tokjax.open_dataset(directory / "raw"))

    def test_a_length_of_any_of_them(self, directory):
        both = [tokjax.open_dataset(directory / name) for name in ("raw", "tokenized")]
        assert [tokjax.SequenceLoader(each, batch_size=4).length for each in (both, both[::-1])] == [50, 50]


class TestSpecialTokensInTexts:
    @pytest.fixture
    def raw(self, tmp_path):
        tokjax.write_dataset(["a", "b", "hello </s> x", "c"], tokjax.RawTextField(), tmp_path / "raw")
        return tokjax.open_dataset(tmp_path / "raw", TOKENIZER)

    def test_rejection_names_the_document(self, raw):
        for seed in range(3):
            loader = tokjax.SequenceLoader(raw, batch_size=4, length=8, seed=seed)
            with pytest.raises(
                tokjax.errors.DisallowedSpecialTokenError,
                match=r"in document 2 of .*/raw, the text holds .*'</s>'.*pass disallowed_special=\(\)",
            ):
                loader.batch_at(0)

    def test_special_token_options(self, raw):
        def row(**options):
            loader = tokjax.SequenceLoader(raw, batch_size=4, length=20, shuffle=False, **options)
            assert json.loads(json.dumps(loader.get_state())) == loader.get_state()
            return loader.batch_at(0).ids[2].tolist(), loader.get_state()

        ids, state = row(allowed_special={"</s>"})
        assert ids == [256, *b"hello ", 257, *b" x", 257] + [PAD] * 9
        assert row(disallowed_special=())[0] == [256, *b"hello </s> x", 257] + [PAD] * 6
        other = tokjax.SequenceLoader(raw, batch_size=4, length=20, shuffle=False, allowed_special="all")
        with pytest.raises(tokjax.errors.DatasetMismatchError, match="the state's allowed_special is"):
            other.set_state(state)


class TestCutDocuments:
    @pytest.mark.parametrize("name", ["tokenized", "bucketed", "packed"])
    @pytest.mark.parametrize("length", [2, 3, 7, 20])
    def test_stored_ids_are_truncated_like_texts(self, directory, name, length):
        options = {"batch_size": 97, "length": length, "shuffle": False}
        raw, stored = tokjax.open_dataset(directory / "raw", TOKENIZER), tokjax.open_dataset(directory / name)
        order = np.argsort(stored.documents["doc_id"])
        expected = tokjax.SequenceLoader(raw, **options).batch_at(0)
        found = tokjax.SequenceLoader(stored, **options).batch_at(0)
        assert np.array_equal(found.ids[order], expected.ids)
        assert np.array_equal(found.attention_mask[order], expected.attention_mask)
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="length is 1, and 2 ids stand around"):
            tokjax.SequenceLoader(stored, batch_size=2, length=1)
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="length is 1, and 2 ids stand around"):
            tokjax.SequenceLoader(raw, batch_size=2, length=1)

    def test_missing_eos_is_not_added(self, tmp_path):
        """Rows of another program have no EOS."""
        np.save(tmp_path / "x.npy", np.arange(20).reshape(2, 10))
        tokjax.datasets.convert_dataset(tmp_path / "x.npy", WITHOUT_SPECIAL, tmp_path / "data")
        loader = tokjax.SequenceLoader(
            tokjax.open_dataset(tmp_path / "data"), batch_size=2, length=4, shuffle=False, pad_id=0
        )
        assert loader.batch_at(0).ids.tolist() == [[0, 1, 2, 3], [10, 11, 12, 13]]

    def test_without_a_template_nothing_stays(self, tmp_path):
        field = tokjax.TokenizedTextField(TOKENIZER, add_special_tokens=False)
        tokjax.write_dataset(["abcdef"], field, tmp_path / "data")
        loader = tokjax.SequenceLoader(tokjax.open_dataset(tmp_path / "data"), batch_size=1, length=1)
        assert loader.batch_at(0).ids.tolist() == [[97]]


class TestPadding:
    def test_of_packed_batches_is_the_tokenizer_s(self, directory):
        loader = tokjax.PackedTokenLoader(
            tokjax.open_dataset(directory / "packed"), batch_size=60, drop_last=False, shuffle=False
        )
        last = loader.batch_at(len(loader) - 1)
        assert set(last.ids[last.attention_mask == 0].tolist()) == {PAD}

    def test_pad_id_without_token(self, tmp_path):
        tokjax.write_dataset(
            TEXTS, tokjax.PackedTokenField(WITHOUT_SPECIAL, chunk_tokens=8), tmp_path / "data"
        )
        dataset = tokjax.open_dataset(tmp_path / "data")
        with pytest.raises(
            tokjax.errors.MissingSpecialTokenError, match="loader without pad_id=ID needs .* pad"
        ):
            tokjax.PackedTokenLoader(dataset, batch_size=2, drop_last=False)
        assert tokjax.PackedTokenLoader(dataset, batch_size=2, drop_last=False, pad_id=3).batch_at(0)
        assert tokjax.PackedTokenLoader(dataset, batch_size=2).batch_at(0)


class TestErrors:
    def test_rows_that_processes_can_not_share(self, directory):
        budget = tokjax.TokenBudgetLoader(tokjax.open_dataset(directory / "tokenized"), budget=700)
        with pytest.raises(
            tokjax.errors.InvalidArgumentError,
            match="rows_multiple_of is 1, and 2 processes can't share rows equally; make it a multiple of 2",
        ):
            budget.shard(0, 2)

    def test_datasets_without_documents(self, directory, tmp_path):
        tokjax.write_dataset([], FIELDS["tokenized"], tmp_path / "none")
        none, some = tokjax.open_dataset(tmp_path / "none"), tokjax.open_dataset(directory / "tokenized")
        for make in (
            lambda **options: tokjax.TokenBudgetLoader(budget=700, **options),
            lambda **options: tokjax.SequenceLoader(batch_size=2, **options),
            lambda **options: tokjax.BucketedLoader(batch_size=2, bucket_boundaries=[50], **options),
        ):
            with pytest.raises(
                tokjax.errors.InvalidArgumentError, match="none has no documents; there is nothing"
            ):
                make(dataset=none)
            assert make(dataset=[none, some]).steps_per_epoch > 0
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="none fills no batch: it has no documents"
        ):
            tokjax.TokenBudgetLoader([some, none], budget=700, weights=[1, 1])

    @pytest.mark.parametrize("boundaries", [8, "64", b"8"])
    def test_invalid_boundaries(self, directory, boundaries):
        message = "bucket_boundaries must be integers, for instance .*, not "
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=f"{message}{boundaries!r}"):
            tokjax.BucketedTokenField(TOKENIZER, bucket_boundaries=boundaries)
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=f"{message}{boundaries!r}"):
            tokjax.BucketedLoader(
                tokjax.open_dataset(directory / "tokenized"), batch_size=2, bucket_boundaries=boundaries
            )

    @pytest.mark.parametrize("value", [float("nan"), np.float32("nan"), None, "3"])
    def test_invalid_costs(self, directory, value):
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match=r"cost\(1, 64\) gave .*, which is no number"
        ):
            tokjax.TokenBudgetLoader(
                tokjax.open_dataset(directory / "tokenized"), budget=700, cost=lambda *_: value
            )

    def test_a_cost_that_is_infinite_is_above_any_budget(self, directory):
        loader = tokjax.TokenBudgetLoader(
            tokjax.open_dataset(directory / "tokenized"),
            budget=700,
            cost=lambda rows, length: rows * length if rows < 5 else float("inf"),
        )
        assert {batch.ids.shape[0] for batch in loader} <= {1, 2, 3, 4}


def test_a_loader_says_what_it_is(tmp_path):
    tokenizer = tokjax.byte_level(["</s>"], eos_token="</s>")
    tokjax.write_dataset(["abc"] * 9, tokjax.PackedTokenField(tokenizer, 4), tmp_path / "data")
    dataset = tokjax.open_dataset(tmp_path / "data")
    loader = tokjax.PackedTokenLoader(dataset, batch_size=2, seed=7)
    next(iter(loader))
    assert repr(loader) == f"PackedTokenLoader([{dataset!r}], batch_size=2, seed=7), at step 1"
