"""Datasets of all fields, and loaders of them, for parametrized tests."""

import jax
import numpy as np

import tokjax
from tests.support.byte_tokenizers import make_byte_tokenizer

TOKENIZER = make_byte_tokenizer("<s>", "</s>", "<pad>")
PAD = 258
TEXTS = [f"{i:03d}" + "x" * (i * 7 % 41) for i in range(97)]
OTHER_TEXTS = [f"{i:03d}" + "y" * (i * 5 % 23) for i in range(500, 537)]
FIELDS = {
    "raw": tokjax.RawTextField(),
    "tokenized": tokjax.TokenizedTextField(TOKENIZER, max_tokens=50),
    "packed": tokjax.PackedTokenField(TOKENIZER, chunk_tokens=16),
    "bucketed": tokjax.datasets.BucketedTokenField(TOKENIZER, bucket_boundaries=[16, 32], max_tokens=50),
}
WITHOUT_SPECIAL = make_byte_tokenizer("</s>")
"""Tokenizer without special tokens but EOS."""


def write_datasets(directory):
    """Writes two datasets per field, of `TEXTS` and of `OTHER_TEXTS`, and returns all by directory name."""
    for name, field in FIELDS.items():
        for texts, path in ((TEXTS, directory / name), (OTHER_TEXTS, directory / f"{name} others")):
            tokjax.write_dataset(texts, field, path, shard_size=500)
    return {path.name: tokjax.open_dataset(path, TOKENIZER) for path in directory.iterdir()}


LOADERS = {
    "packed": lambda data, **options: tokjax.PackedTokenLoader(data["packed"], batch_size=12, **options),
    "chunks": lambda data, **options: tokjax.PackedTokenLoader(
        data["packed"], batch_size=12, documents=False, **options
    ),
    "raw": lambda data, **options: tokjax.datasets.SequenceLoader(
        data["raw"], batch_size=12, length=20, **options
    ),
    "tokenized": lambda data, **options: tokjax.datasets.SequenceLoader(
        data["tokenized"], batch_size=12, **options
    ),
    "multiples": lambda data, **options: tokjax.datasets.SequenceLoader(
        data["tokenized"], batch_size=12, multiple_of=8, **options
    ),
    "bucketed": lambda data, **options: tokjax.datasets.BucketedLoader(
        data["bucketed"], batch_size=12, **options
    ),
    "buckets": lambda data, **options: tokjax.datasets.BucketedLoader(
        data["tokenized"], batch_size=12, bucket_boundaries=[20, 50], **options
    ),
    "budget": lambda data, **options: tokjax.datasets.TokenBudgetLoader(
        data["tokenized"], budget=700, multiple_of=8, rows_multiple_of=12, **options
    ),
    "planned": lambda data, **options: load_planned(data["tokenized"], **options),
}


def load_planned(dataset, *, drop_last=False, **options):
    """Returns a loader of planned rows. It has no `drop_last`: each epoch has all documents."""
    del drop_last
    return tokjax.PlannedLoader(dataset, batch_size=12, block_size=64, **options)


def are_equal(one, other):
    """Returns whether two pytrees of arrays are equal."""
    return jax.tree.all(jax.tree.map(lambda a, b: a.dtype == b.dtype and np.array_equal(a, b), one, other))


def read_document_numbers(batch):
    """Returns the document numbers of a batch: the three digits at the start of each document."""
    ids, mask = np.asarray(batch.ids), np.asarray(batch.attention_mask)
    return [int(bytes(row[1:4].tolist())) for row, row_mask in zip(ids, mask, strict=True) if row_mask.any()]
