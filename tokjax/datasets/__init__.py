"""Datasets on disk: fields, writers, readers, manifests, and loaders."""

from tokjax.datasets.caches import CacheStats
from tokjax.datasets.conversion import convert_dataset, export_dataset
from tokjax.datasets.dataset_types import (
    BucketedDataset,
    ChunkSource,
    PackedDataset,
    RawTextDataset,
    TokenDataset,
)
from tokjax.datasets.fields import (
    BucketedTokenField,
    Field,
    PackedTokenField,
    RawTextField,
    SentencePieceTextField,
    TokenField,
    TokenizedTextField,
    register_field,
)
from tokjax.datasets.loaders.bucketed import BucketedLoader, TokenBudgetLoader
from tokjax.datasets.loaders.packed import PackedTokenLoader, TokenChunks
from tokjax.datasets.loaders.prefetch import Prefetched, prefetch_to_device
from tokjax.datasets.loaders.sequences import SequenceLoader
from tokjax.datasets.merging import merge_datasets, rebuild_dataset
from tokjax.datasets.opening import open_dataset
from tokjax.datasets.writer import WrittenDataset, write_dataset

__all__ = [
    "BucketedDataset",
    "BucketedLoader",
    "BucketedTokenField",
    "CacheStats",
    "ChunkSource",
    "Field",
    "PackedDataset",
    "PackedTokenField",
    "PackedTokenLoader",
    "Prefetched",
    "RawTextDataset",
    "RawTextField",
    "SentencePieceTextField",
    "SequenceLoader",
    "TokenBudgetLoader",
    "TokenChunks",
    "TokenDataset",
    "TokenField",
    "TokenizedTextField",
    "WrittenDataset",
    "convert_dataset",
    "export_dataset",
    "merge_datasets",
    "open_dataset",
    "prefetch_to_device",
    "rebuild_dataset",
    "register_field",
    "write_dataset",
]
