"""Conversion of token files of other programs into datasets (`convert_dataset`), and back."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.atomic_files import check_path, resolve
from tokjax._util.checks import check_int
from tokjax._util.urls import reject_urls
from tokjax.core import protocol
from tokjax.corpus.decompression import open_source
from tokjax.datasets.conversion import array_record, token_streams
from tokjax.datasets.conversion.token_streams import (
    check_ids,
    detect_format,
    has_megatron_index,
    iter_documents,
)
from tokjax.datasets.dataset_types import RawTextDataset, TokenDataset
from tokjax.datasets.document_sources import SourceHash, compute_digests
from tokjax.datasets.fields.text_fields import PackedTokenField
from tokjax.datasets.shard_writing import ShardWriter
from tokjax.datasets.writer import (
    DEFAULT_SHARD_SIZE,
    WrittenDataset,
    finish_dataset,
    make_plan,
    write_once,
)
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tokjax.datasets.conversion.token_streams import TokenFormat, TokenStream
    from tokjax.datasets.manifest import Manifest, Shard


_READERS = {
    "nanogpt": token_streams.read_nanogpt,
    "megatron": token_streams.read_megatron,
    "npy": token_streams.read_npy,
    "array_record": array_record.read,
}
_WRITERS: dict[TokenFormat, Callable[..., tuple[Path, ...]]] = {
    "nanogpt": token_streams.write_nanogpt,
    "megatron": token_streams.write_megatron,
    "npy": token_streams.write_npy,
    "array_record": array_record.write,
}


def convert_dataset(
    path: str | os.PathLike[str],
    tokenizer: Any,
    out: str | os.PathLike[str],
    *,
    format: TokenFormat | None = None,  # noqa: A002 (the usual name of this parameter)
    chunk_tokens: int = 4096,
    shard_size: int = DEFAULT_SHARD_SIZE,
    overwrite: bool = False,
) -> WrittenDataset:
    """Converts a token file of another program into a packed dataset. The ids are stored unchanged.

    | format | file | documents |
    |---|---|---|
    | `"nanogpt"` | `.bin`, `uint16` without a header | end with the tokenizer's EOS token |
    | `"megatron"` | `.idx` or `.bin`, next to each other | as recorded in the index |
    | `"npy"` | `.npy` of integers, one or two dimensions | rows; in one dimension, as for nanoGPT |
    | `"array_record"` | `.array_record` with `input_ids` (needs `tokjax[arrayrecord]`) | its records |

    Args:
        path: path of the token file.
        tokenizer: tokenizer that produced the ids. It determines the vocabulary size and the EOS token.
        out: path of the dataset directory to write.
        format: format of the file; `None` to detect it from the file name, and for a `.bin` from the header
            of an `.idx` of the same name.
        chunk_tokens: number of ids that a loader returns per chunk, as in `PackedTokenField`.
        shard_size: number of ids at which a shard is closed, as in `write_dataset`.
        overwrite: whether to replace an existing dataset, as in `write_dataset`.

    Returns:
        The counts of the dataset, and its path.

    Raises:
        DatasetExistsError: `out` holds another dataset, or finished shards of another interrupted writer, and
            `overwrite` is not set. The same dataset is left unchanged.
        FileNotFoundError: the path does not exist.
        DatasetMismatchError: an id is not in the tokenizer's vocabulary. Nothing was written.
        InvalidArgumentError: the path is that of a directory, a pipe or a device.
        SourceError: the file is damaged or has another format.
    """
    reject_urls(path, out)
    source = check_path(path)
    kind = _detect_contents(source, format)
    if source.exists():
        open_source(source).close()  # (raises an error unless it is a regular file)
    stream = _READERS[kind](source, tokenizer)
    field = PackedTokenField(
        tokenizer, chunk_tokens, add_eos_between_docs=protocol.eos_id(tokenizer) is not None
    )
    check_ids(stream, protocol.vocab_size(tokenizer), source)
    plan = make_plan(field, check_int("shard_size", shard_size, minimum=1))
    described = {
        "converted": str(source.resolve()),
        "num_bytes": source.stat().st_size if source.is_file() else 0,
    }

    def is_same(manifest: Manifest) -> bool:
        return (manifest.plan, manifest.source) == (plan, described) and _have_same_documents(
            manifest.shards, stream, field.data_dtype
        )

    def write(directory: Path) -> Manifest:
        with ShardWriter(directory, field, shard_size, (), lambda _: None, counts_text=False) as writer:
            for documents, encoded in iter_documents(stream, field.data_dtype):
                writer.add(compute_digests(documents), encoded)
        return finish_dataset(directory, field, plan, described, writer.shards)

    return write_once(resolve(out), is_same, write, overwrite=overwrite)


def _have_same_documents(shards: Sequence[Shard], stream: TokenStream, dtype: np.dtype[Any]) -> bool:
    """Returns whether the documents of shards are those of a stream, by their digests."""
    stops = np.cumsum([0, *(shard.num_documents for shard in shards)]).tolist()
    if stops[-1] != len(stream.splits) - 1:
        return False
    digest = SourceHash()
    for shard, start, stop in zip(shards, stops, stops[1:], strict=False):
        for documents, _ in iter_documents(stream, dtype, start, stop):
            digest.add(compute_digests(documents))
        if digest.pop() != shard.source_sha256:
            return False
    return True


def _detect_contents(path: Path, named: TokenFormat | None) -> TokenFormat:
    """Returns the format that the caller named, or that the contents or the name of a file indicate."""
    if named is None and not (path.exists() or path.with_suffix(".bin").exists()):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    is_cache = named is None and (path / "shard_ledger.json").is_file()
    kind = detect_format(path, "levanter" if is_cache else named)
    return "megatron" if named is None and kind == "nanogpt" and has_megatron_index(path) else kind


def export_dataset(
    dataset: TokenDataset | RawTextDataset,
    path: str | os.PathLike[str],
    format: TokenFormat | None = None,  # noqa: A002 (the usual name of this parameter)
    *,
    max_tokens: int | None = None,
    overwrite: bool = False,
) -> tuple[Path, ...]:
    """Writes the ids of a dataset in the format of another program. `convert_dataset` lists the formats.

    `"array_record"` (needs `tokjax[arrayrecord]`) writes an ArrayRecord file for Grain and MaxText: one
    record per document, a `tf.train.Example` with the ids in the feature `input_ids`, or of a dataset of
    texts, with the text in the feature `text`. Side columns are not exported.

    Args:
        dataset: open dataset of token ids; for `"array_record"` also of texts.
        path: path of the file to write; for `"megatron"` that of the `.idx`, next to which a `.bin` is
            written.
        format: format to write; `None` to detect it from the file name.
        max_tokens: for `"array_record"`, maximum number of ids of a record; longer documents become several
            records. `None` for no limit.
        overwrite: whether to replace existing files.

    Returns:
        The paths of the files that were written.

    Raises:
        DatasetExistsError: a file exists and `overwrite` is not set.
        InvalidArgumentError: the format can't represent these ids.
    """
    reject_urls(path)
    target = check_path(path)
    kind = detect_format(target, format)
    holds_ids, writes_records = isinstance(dataset, TokenDataset), kind == "array_record"
    if not holds_ids and not (writes_records and isinstance(dataset, RawTextDataset)):
        raise InvalidArgumentError(
            f"dataset must be a TokenDataset, not a {type(dataset).__name__}, to write the format {kind!r}"
        )
    options = {}
    if max_tokens is not None:
        if not (holds_ids and writes_records):
            raise InvalidArgumentError(
                f"max_tokens is for format='array_record' and datasets of ids, and the format is {kind!r}, "
                f"of a {type(dataset).__name__}"
            )
        options["max_tokens"] = check_int("max_tokens", max_tokens, minimum=1)
    return _WRITERS[kind](dataset, target, overwrite=overwrite, **options)
