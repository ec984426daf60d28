"""Writing a dataset: beside its place first, then renamed to it, so that what is there is finished."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tokjax import protocol
from tokjax._checks import checked_int
from tokjax._directories import DirectoryKind, exclusive_place
from tokjax._files import sha256_of_file, write_atomically
from tokjax._progress import progress_bar
from tokjax.errors import (
    DatasetExistsError,
    DisallowedSpecialTokenError,
    InvalidArgumentError,
    UnsupportedTokenizerError,
)
from tokjax.formats.tokjax_json import TOKENIZER_FILE, save_tokenizer
from tokjax.store.fields import PackedTokenField, smallest_unsigned
from tokjax.store.manifest import Manifest, Shard, read_manifest, write_manifest
from tokjax.text.sources import checked_text
from tokjax.utf8 import Text, nbytes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

Documents: TypeAlias = "Iterable[Text] | Iterable[tuple[int, Text]]"

DEFAULT_SHARD_TOKENS = 100_000_000
_BATCH_BYTES = 1 << 21
_BATCH_DOCUMENTS = 1 << 14
_DATASET = DirectoryKind(
    "dataset",
    read_manifest,
    re.compile(
        r"manifest\.json|tokenizer\.tokjax\.json|shard-\d{5,}\.(tokens|num_tokens|doc_id)\.npy|\..*\.partial"
    ),
    DatasetExistsError,
)


class WrittenDataset(NamedTuple):
    """What `write_dataset` wrote.

    Attributes:
        num_tokens: ids in all shards, EOS and BOS among them.
        num_documents: documents in all shards.
        num_bytes: bytes of UTF-8 that were encoded.
        num_shards: files of ids.
        path: the dataset's directory.
    """

    num_tokens: int
    num_documents: int
    num_bytes: int
    num_shards: int
    path: Path


def write_dataset(
    documents: Documents,
    field: PackedTokenField,
    path: str | os.PathLike[str],
    *,
    shard_tokens: int = DEFAULT_SHARD_TOKENS,
    overwrite: bool = False,
    progress: bool = False,
) -> WrittenDataset:
    """Encode documents and write them as a dataset directory.

    The directory appears at `path` when it is finished, not before: until then it is `PATH.incomplete`,
    and what a killed writer left there is replaced by the next run. A dataset that is replaced is
    `PATH.replaced` for the moment between two renames; should the writer be killed just there, the next run
    puts it back first. Memory is bounded by the shard.

    Args:
        documents: texts, or pairs of a document id (an integer from 0) and a text, all of one kind.
        field: what to store.
        path: where the dataset shall be.
        shard_tokens: a shard is closed by the document that fills it to this many ids.
        overwrite: replace a dataset that is there already.
        progress: show a bar on standard error.

    Returns:
        The counts.

    Raises:
        DatasetExistsError: `path` exists and `overwrite` is not set, or holds anything but a dataset, or
            another process is writing it.
        DisallowedSpecialTokenError: a document holds a special token that the field disallows.
        InvalidArgumentError: a document is no text, or has an id that is no integer from 0.
    """
    if isinstance(documents, (str, bytes, os.PathLike)):
        raise InvalidArgumentError(
            "documents must be an iterable of texts or of (doc_id, text); for one text pass [text], "
            "for a file pass tokjax.read_documents(PATH, separator)"
        )
    shard_tokens = checked_int("shard_tokens", shard_tokens, least=1)
    target = Path(path).resolve()
    with exclusive_place(target, _DATASET, overwrite=overwrite) as directory:
        with progress_bar("packing", None, unit="bytes", enabled=progress) as advance:
            writer = _ShardWriter(directory, field, shard_tokens)
            for batch in _batches(documents):
                writer.add(batch)
                advance(batch.nbytes, f"{writer.num_tokens:,} tokens")
            writer.close_shard()
        write_manifest(directory, _manifest(directory, field, writer))
    return WrittenDataset(
        writer.num_tokens, writer.num_documents, writer.num_bytes, len(writer.shards), target
    )


class _Batch(NamedTuple):
    doc_ids: list[int]
    texts: list[Text]
    nbytes: int


class _ShardWriter:
    """Gathers the ids of whole documents, and writes a shard when there are enough."""

    def __init__(self, directory: Path, field: PackedTokenField, shard_tokens: int) -> None:
        self.shards: list[Shard] = []
        self.num_tokens = self.num_documents = self.num_bytes = 0
        self._directory = directory
        self._field = field
        self._shard_tokens = shard_tokens
        self._ids: list[NDArray[Any]] = []
        self._lengths: list[NDArray[np.int64]] = []
        self._doc_ids: list[NDArray[np.uint64]] = []
        self._gathered = 0
        self._written_documents = 0

    def add(self, batch: _Batch) -> None:
        """Encode the documents, and write the shards that they fill."""
        ids, splits = _encode(self._field, batch)
        doc_ids = np.array(batch.doc_ids, np.uint64)
        self.num_tokens += len(ids)
        self.num_documents += len(doc_ids)
        self.num_bytes += batch.nbytes
        first = 0
        while first < len(doc_ids):
            wanted = self._shard_tokens - self._gathered
            last = int(np.searchsorted(splits, splits[first] + wanted))
            last = min(max(last, first + 1), len(doc_ids))
            self._ids.append(ids[splits[first] : splits[last]])
            self._lengths.append(np.diff(splits[first : last + 1]))
            self._doc_ids.append(doc_ids[first:last])
            self._gathered += int(splits[last] - splits[first])
            first = last
            if self._gathered >= self._shard_tokens:
                self.close_shard()

    def close_shard(self) -> None:
        """Write what was gathered, if anything."""
        if not self._ids:
            return
        name = f"shard-{len(self.shards):05d}"
        lengths, doc_ids = np.concatenate(self._lengths), np.concatenate(self._doc_ids)
        first = self._written_documents
        columns = {"tokens": np.concatenate(self._ids), "num_tokens": _compact(lengths)}
        if not np.array_equal(doc_ids, np.arange(first, first + len(doc_ids), dtype=np.uint64)):
            columns["doc_id"] = _compact(doc_ids)  # the running count needs no file
        digests = {}
        for column, values in columns.items():
            file = self._directory / f"{name}.{column}.npy"
            _save(file, values)
            digests[file.name] = sha256_of_file(file)
        self.shards.append(Shard(name, self._gathered, len(doc_ids), digests))
        self._written_documents += len(doc_ids)
        self._ids, self._lengths, self._doc_ids, self._gathered = [], [], [], 0


def _batches(documents: Documents) -> Iterator[_Batch]:
    """Documents with their ids, some megabytes of text at a time."""
    doc_ids: list[int] = []
    texts: list[Text] = []
    nbytes = 0
    paired: bool | None = None
    for index, document in enumerate(documents):
        is_pair = isinstance(document, tuple)
        if paired not in (None, is_pair):
            raise InvalidArgumentError(
                f"documents mixes texts and (doc_id, text) pairs; document {index} is the first of "
                "another kind"
            )
        paired = is_pair
        doc_id, text = _checked_document(index, document)
        doc_ids.append(doc_id)
        texts.append(text)
        nbytes += nbytes_of(text)
        if nbytes >= _BATCH_BYTES or len(texts) >= _BATCH_DOCUMENTS:
            yield _Batch(doc_ids, texts, nbytes)
            doc_ids, texts, nbytes = [], [], 0
    if texts:
        yield _Batch(doc_ids, texts, nbytes)


def _checked_document(index: int, document: object) -> tuple[int, Text]:
    if not isinstance(document, tuple):
        return index, checked_text(document, f"document {index}")
    if len(document) != 2:
        raise InvalidArgumentError(
            f"document {index} is a tuple of {len(document)}; a pair is (doc_id, text)"
        )
    doc_id, text = document
    if isinstance(doc_id, bool) or not isinstance(doc_id, (int, np.integer)) or not 0 <= doc_id < 2**64:
        raise InvalidArgumentError(
            f"the id of document {index} is {doc_id!r}; ids are integers from 0 to 2**64 - 1"
        )
    return int(doc_id), checked_text(text, f"document {index}")


def _encode(field: PackedTokenField, documents: _Batch) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Ids of the documents with their BOS and EOS, in the dtype of the disk, and row splits."""
    table = protocol.vocabulary_of(field.tokenizer)
    encode = partial(
        protocol.encode_texts,
        field.tokenizer,
        add_special_tokens=False,
        return_offsets=False,
        return_masks=False,
        allowed_special=field.allowed_special,
        disallowed_special=field.disallowed_special,
    )
    try:
        batch = encode(documents.texts)
    except DisallowedSpecialTokenError:
        for doc_id, text in zip(documents.doc_ids, documents.texts, strict=True):
            try:
                encode([text])
            except DisallowedSpecialTokenError as error:
                raise DisallowedSpecialTokenError(f"in document {doc_id}, {error}") from None
        raise
    ids, splits = batch.ids, batch.row_splits
    if len(ids) and not 0 <= ids.min() <= ids.max() < table.size:
        raise InvalidArgumentError(
            f"the tokenizer gave ids from {ids.min()} to {ids.max()}, but its vocabulary size is "
            f"{table.size}; nothing of this batch was written"
        )
    bos, eos = table.role_id("bos"), table.role_id("eos") if field.add_eos_between_docs else None
    rows = np.arange(len(splits))
    if bos is not None:
        ids, splits = np.insert(ids, splits[:-1], bos), splits + rows
    if eos is not None:
        ids, splits = np.insert(ids, splits[1:], eos), splits + rows
    return ids.astype(field.token_dtype), splits


def _compact(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(smallest_unsigned(int(values.max(initial=0))))


def _save(path: Path, values: NDArray[Any]) -> None:
    write_atomically(path, lambda file: np.save(file, values, allow_pickle=False))


def _manifest(directory: Path, field: PackedTokenField, writer: _ShardWriter) -> Manifest:
    saved: Path | None = None
    with suppress(UnsupportedTokenizerError):  # a type of another's: its fingerprint has to do
        saved = save_tokenizer(field.tokenizer, directory / TOKENIZER_FILE)
    return Manifest(
        field=type(field).__name__,
        type_id=field.TYPE_ID,
        options=field.options,
        token_dtype=field.token_dtype.name,
        vocab_size=protocol.vocab_size(field.tokenizer),
        tokenizer_fingerprint=protocol.fingerprint(field.tokenizer),
        tokenizer_file=None if saved is None else saved.name,
        tokenizer_sha256=None if saved is None else sha256_of_file(saved),
        num_tokens=writer.num_tokens,
        num_documents=writer.num_documents,
        num_bytes=writer.num_bytes,
        shards=tuple(writer.shards),
    )
