"""Tests of `SequenceLoader`: shapes, truncation, and special tokens in texts."""

import json

import numpy as np
import pytest

import tokjax
from tests.support.loader_cases import PAD, TOKENIZER, WITHOUT_SPECIAL
from tests.support.rejections import rejects


@pytest.mark.parametrize(
    ("options", "boundaries"),
    [({}, [64, 128, 256, 300]), ({"length": 200}, [200]), ({"multiple_of": 100}, [100, 200, 300])],
)
def test_batches_are_padded_to_the_boundary_above_their_longest_document(tmp_path, options, boundaries):
    lengths = [64, 1, 65, 0, 128, 129, 5, 257, 999, 2]
    field = tokjax.TokenizedTextField(WITHOUT_SPECIAL, 300, add_special_tokens=False)
    tokjax.write_dataset(["x" * length for length in lengths], field, tmp_path / "data")
    loader = tokjax.datasets.SequenceLoader(
        tokjax.open_dataset(tmp_path / "data"), batch_size=2, shuffle=False, pad_id=0, **options
    )
    longest = np.minimum(np.reshape(lengths, (5, 2)).max(axis=1), boundaries[-1])
    expected = [next(each for each in boundaries if each >= length) for length in longest]
    assert [batch.ids.shape[1] for batch in loader] == expected
    assert [batch.ids.shape[1] for batch in loader.shard(1, 2)] == expected
    assert {spec.ids.shape for spec in loader.element_specs} >= {(2, length) for length in expected}


def test_long_documents_are_truncated(datasets):
    batch = tokjax.datasets.SequenceLoader(datasets["raw"], batch_size=97, length=5, shuffle=False).batch_at(
        0
    )
    assert batch.ids.shape == (97, 5)
    assert batch.ids[40].tolist() == [256, *b"040"[:3], 257]  # only the text is truncated, not the template


class TestSpecialTokensInTexts:
    @pytest.fixture
    def raw(self, tmp_path):
        tokjax.write_dataset(["a", "b", "hello </s> x", "c"], tokjax.RawTextField(), tmp_path / "raw")
        return tokjax.open_dataset(tmp_path / "raw", TOKENIZER)

    def test_rejection_names_the_document(self, raw):
        for seed in range(3):
            loader = tokjax.datasets.SequenceLoader(raw, batch_size=4, length=8, seed=seed)
            with pytest.raises(
                tokjax.errors.DisallowedSpecialTokenError,
                match=r"in document 2 of .*/raw, the text holds .*'</s>'.*pass disallowed_special=\(\)",
            ):
                loader.batch_at(0)

    def test_special_token_options(self, raw):
        def row(**options):
            loader = tokjax.datasets.SequenceLoader(raw, batch_size=4, length=20, shuffle=False, **options)
            assert json.loads(json.dumps(loader.get_state())) == loader.get_state()
            return loader.batch_at(0).ids[2].tolist(), loader.get_state()

        ids, state = row(allowed_special={"</s>"})
        assert ids == [256, *b"hello ", 257, *b" x", 257] + [PAD] * 9
        assert row(disallowed_special=())[0] == [256, *b"hello </s> x", 257] + [PAD] * 6
        other = tokjax.datasets.SequenceLoader(
            raw, batch_size=4, length=20, shuffle=False, allowed_special="all"
        )
        with pytest.raises(tokjax.errors.DatasetMismatchError, match="the state's allowed_special is"):
            other.set_state(state)


class TestTruncation:
    @pytest.mark.parametrize("name", ["tokenized", "bucketed", "packed"])
    @pytest.mark.parametrize("length", [2, 3, 7, 20])
    def test_stored_ids_are_truncated_like_texts(self, datasets, name, length):
        options = {"batch_size": 97, "length": length, "shuffle": False}
        raw, stored = (
            tokjax.open_dataset(datasets["raw"].path, TOKENIZER),
            tokjax.open_dataset(datasets[name].path),
        )
        order = np.argsort(stored.documents["doc_id"])
        expected = tokjax.datasets.SequenceLoader(raw, **options).batch_at(0)
        actual = tokjax.datasets.SequenceLoader(stored, **options).batch_at(0)
        assert np.array_equal(actual.ids[order], expected.ids)
        assert np.array_equal(actual.attention_mask[order], expected.attention_mask)
        with rejects("length is 1, and 2 special tokens surround"):
            tokjax.datasets.SequenceLoader(stored, batch_size=2, length=1)
        with rejects("length is 1, and 2 special tokens surround"):
            tokjax.datasets.SequenceLoader(raw, batch_size=2, length=1)

    def test_missing_eos_is_not_added(self, tmp_path):
        # Converted rows of other programs have no EOS.
        np.save(tmp_path / "x.npy", np.arange(20).reshape(2, 10))
        tokjax.datasets.convert_dataset(tmp_path / "x.npy", WITHOUT_SPECIAL, tmp_path / "data")
        loader = tokjax.datasets.SequenceLoader(
            tokjax.open_dataset(tmp_path / "data"), batch_size=2, length=4, shuffle=False, pad_id=0
        )
        assert loader.batch_at(0).ids.tolist() == [[0, 1, 2, 3], [10, 11, 12, 13]]

    def test_truncation_without_template(self, tmp_path):
        field = tokjax.TokenizedTextField(TOKENIZER, add_special_tokens=False)
        tokjax.write_dataset(["abcdef"], field, tmp_path / "data")
        loader = tokjax.datasets.SequenceLoader(
            tokjax.open_dataset(tmp_path / "data"), batch_size=1, length=1
        )
        assert loader.batch_at(0).ids.tolist() == [[97]]
