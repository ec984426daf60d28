"""Tests of custom fields: the field checks, and writing, reading and merging datasets."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import ClassVar

import numpy as np
import pytest

import tokjax
from tests.datasets.test_fields import FIELDS
from tests.support.rejections import rejects
from tokjax.datasets.fields.registry import CUSTOM_FIELDS
from tokjax.testing import FIELD_CHECKS, check_field

TOKENIZER = tokjax.byte_level(["<en>", "<de>"])


@tokjax.datasets.register_field
@dataclass(frozen=True)
class TaggedField(tokjax.datasets.TokenField):
    """Language token followed by the last ids of a document."""

    TYPE_ID: ClassVar[int] = 1000

    language: str = "<en>"
    max_ids: int = 8

    def encode_rows(self, texts, *, threads=None):
        tag = tokjax.token_to_id(self.tokenizer, self.language)
        encoded = tokjax.encode_batch_result(
            self.tokenizer, texts, add_special_tokens=False, disallowed_special=(), threads=threads
        )
        return tokjax.ragged_from_rows([[tag, *row.ids[-self.max_ids :]] for row in encoded])


FIELD = TaggedField(TOKENIZER, "<de>", max_ids=5)


@pytest.mark.parametrize("check", FIELD_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", [*FIELDS, "custom"])
def test_fields_pass_the_checks(name, check):
    check({**FIELDS, "custom": FIELD}[name])


def encode_expected(text):
    return [tokjax.token_to_id(TOKENIZER, "<de>"), *(byte + 2 for byte in text.encode()[-5:])]


def test_datasets_are_written_and_read(corpus, tmp_path):
    tokjax.write_dataset(corpus * 2, FIELD, tmp_path / "custom", shard_size=20)
    dataset = tokjax.open_dataset(tmp_path / "custom")
    assert isinstance(dataset, tokjax.datasets.TokenDataset)
    assert dataset.field == FIELD
    assert [dataset[i].tolist() for i in range(len(dataset))] == [
        encode_expected(text) for text in corpus * 2
    ]
    loader = tokjax.datasets.SequenceLoader(dataset, batch_size=3, length=4, pad_id=0)
    assert loader.batch_at(0).ids.shape == (3, 4)
    tokjax.datasets.merge_datasets([tmp_path / "custom"] * 2, tmp_path / "merged")
    assert len(tokjax.open_dataset(tmp_path / "merged")) == 4 * len(corpus)


def test_worker_processes_write_the_same_dataset(corpus, tmp_path):
    tokjax.write_dataset(corpus, FIELD, tmp_path / "local")
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        tokjax.write_dataset(corpus, FIELD, tmp_path / "pool", executor=pool)
    fingerprints = {tokjax.open_dataset(tmp_path / name).fingerprint for name in ("local", "pool")}
    assert len(fingerprints) == 1


def test_unregistered_fields(corpus, tmp_path, monkeypatch):
    tokjax.write_dataset(corpus, FIELD, tmp_path / "custom")
    monkeypatch.delitem(CUSTOM_FIELDS, 1000)
    dataset = tokjax.open_dataset(tmp_path / "custom")
    assert dataset[0].tolist() == encode_expected(corpus[0])
    dataset.verify()
    message = r"no field has TYPE_ID 1000; this tokjax has .*; import the module that registers it first"
    with pytest.raises(tokjax.errors.DatasetMismatchError, match=message):
        dataset.field  # noqa: B018
    with rejects(r"TaggedField is not registered under its TYPE_ID, 1000: derive"):
        tokjax.write_dataset(corpus, FIELD, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_other_versions_of_the_class(corpus, tmp_path, monkeypatch):
    tokjax.write_dataset(corpus, FIELD, tmp_path / "custom")

    @dataclass(frozen=True)
    class WithNewOption(TaggedField):
        added: int = 7

    @dataclass(frozen=True)
    class WithRequiredOption(tokjax.datasets.TokenField):
        kind: str
        encode_rows = TaggedField.encode_rows
        language: str = ""
        max_ids: int = 0

    @dataclass(frozen=True)
    class WithoutOption(tokjax.datasets.TokenField):
        encode_rows = TaggedField.encode_rows
        max_ids: int = 0

    monkeypatch.setitem(CUSTOM_FIELDS, 1000, WithNewOption)
    assert tokjax.open_dataset(tmp_path / "custom").field == WithNewOption(TOKENIZER, "<de>", 5, added=7)
    for field_type, message in (
        (WithRequiredOption, "WithRequiredOption: missing a required argument: 'kind'"),
        (WithoutOption, "WithoutOption: got an unexpected keyword argument 'language'"),
    ):
        monkeypatch.setitem(CUSTOM_FIELDS, 1000, field_type)
        with pytest.raises(tokjax.errors.DatasetMismatchError, match=f"{message}; the dataset records"):
            tokjax.open_dataset(tmp_path / "custom").field  # noqa: B018


def test_subclasses_need_a_separate_type_id(tmp_path):
    @dataclass(frozen=True)
    class Other(TaggedField):
        pass

    @dataclass(frozen=True)
    class Packed(tokjax.PackedTokenField):
        pass

    for field in (Other(TOKENIZER), Packed(tokjax.byte_level(["</s>"], eos_token="</s>"))):
        with rejects(f"{type(field).__name__} is not registered under its TYPE_ID"):
            tokjax.write_dataset(["a"], field, tmp_path / "custom")
    assert not (tmp_path / "custom").exists()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.int64(3), "can't be written as JSON"),
        (float("nan"), "can't be written as JSON"),
        ({1, 2}, "can't be written as JSON"),
        ((1, 2), r"becomes \[1, 2\] in JSON; convert it in __post_init__"),
        ({1: 2}, "becomes {'1': 2} in JSON"),
    ],
)
def test_options_must_be_json_values(tmp_path, value, message):
    with rejects(f"TaggedField's option max_ids=.*{message}"):
        tokjax.write_dataset(["a"], TaggedField(TOKENIZER, "<de>", value), tmp_path / "custom")
    assert not (tmp_path / "custom").exists()


def test_invalid_fields_are_not_registered():
    with rejects(r"must be a subclass of tokjax.datasets.TokenField, not <class 'int'>"):
        tokjax.datasets.register_field(int)

    class Plain(TaggedField):
        TYPE_ID = 1002

    with rejects(r"Plain must be a frozen dataclass; decorate it with @dataclass\(frozen=True\)"):
        tokjax.datasets.register_field(Plain)
    for type_id, message in (
        (999, r"Plain.TYPE_ID must be at least 1000, not 999"),
        (1000, "TaggedField already has TYPE_ID 1000; choose another one for Plain"),
    ):
        with rejects(message):
            tokjax.datasets.register_field(
                dataclass(frozen=True)(type("Plain", (TaggedField,), {"TYPE_ID": type_id}))
            )
    assert tokjax.datasets.register_field(TaggedField) is TaggedField
    assert CUSTOM_FIELDS[1000] is TaggedField
    with pytest.raises(TypeError, match="abstract"):
        tokjax.datasets.TokenField(TOKENIZER)


def make_faulty_field(**members):
    number = max(CUSTOM_FIELDS) + 1
    field_type = dataclass(frozen=True)(
        type(f"Faulty{number}", (TaggedField,), {"TYPE_ID": number, **members})
    )
    field_type.__module__ = __name__
    globals()[field_type.__name__] = field_type  # Makes it picklable.
    return tokjax.datasets.register_field(field_type)(TOKENIZER)


def make_rows_field(make_rows):
    """Makes a field with the rows that a function returns for texts."""
    return make_faulty_field(encode_rows=lambda _, texts, **__: make_rows(texts))


def test_checks_detect_faulty_fields():
    for members, message in (
        ({"options": property(lambda _: {"language": "<en>", "max_ids": 3})}, "the options construct"),
        ({"__reduce__": lambda _: (TaggedField, (TOKENIZER, "<de>"))}, "pickle round trip"),
    ):
        with pytest.raises(AssertionError, match=message):
            check_field(make_faulty_field(**members))


ONE_ID = tokjax.ragged_from_rows([[1]])


@pytest.mark.parametrize(
    ("make_rows", "message"),
    [
        (lambda texts: tokjax.ragged_from_rows([[len(texts)] for _ in texts]), "but as .* in a batch"),
        (lambda texts: tokjax.ragged_from_rows([[0]] * (len(texts) > 0)), "returned 1 rows for"),
        (lambda texts: tokjax.ragged_from_rows([[999]] * len(texts)), "has the id 999"),
        (lambda _: None, r"must return a Ragged, such as ragged_from_rows\(rows\), not None"),
        (lambda _: tokjax.Ragged(np.array([1.5]), np.array([0, 1])), "returned an invalid Ragged"),
        (lambda _: tokjax.Ragged(np.array([1]), np.array([0, 9])), "returned an invalid Ragged"),
        (
            lambda _: tokjax.datasets.RowsWithColumns(ONE_ID, {}, [-1]),
            r"returned num_dropped with shape \(1,\) and minimum -1; it must be \(1,\)",
        ),
    ],
)
def test_checks_detect_faulty_rows(make_rows, message):
    with pytest.raises((AssertionError, tokjax.errors.InvalidArgumentError), match=message):
        check_field(make_rows_field(make_rows))


def test_invalid_ids_write_no_dataset(tmp_path):
    field = make_rows_field(lambda texts: tokjax.ragged_from_rows([[300]] * len(texts)))
    with rejects("has the id 300, but the vocabulary size of the tokenizer is 258"):
        tokjax.write_dataset(["a"], field, tmp_path / "custom")
    assert not (tmp_path / "custom").exists()
