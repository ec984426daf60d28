"""Loader of padded batches with one document per row: of stored ids, or of texts that are encoded on loading.

Both give the same rows. A text that is too long is truncated by `encode_batch_result`, which keeps the
special tokens of the template. Stored ids have their special tokens already, so `_truncate` keeps those at
the end. With `length=5`:

    text "abcdef", template `<s> $A </s>`       <s> a b c </s>
    stored ids <s> a b c d e f </s>             <s> a b c </s>
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.checks import MAX_INT32, check_int
from tokjax.batching.collate import PaddedBatch
from tokjax.batching.length_buckets import LengthBuckets
from tokjax.core import protocol
from tokjax.datasets.dataset_types import RawTextDataset, TokenDataset
from tokjax.datasets.document_encoding import encode_named, get_surrounding_ids
from tokjax.datasets.fields.base import sort_special_names
from tokjax.datasets.loaders.base import Loader
from tokjax.datasets.loaders.batch_columns import DocumentRow
from tokjax.encoding.encode import encode_batch_result, get_template_ids
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Unpack

    from numpy.typing import NDArray

    from tokjax.core.encode_options import Special
    from tokjax.datasets.dataset import Dataset
    from tokjax.datasets.loaders.base import LoaderOptions
    from tokjax.datasets.loaders.item_order import ItemSlots

SequenceDataset = RawTextDataset | TokenDataset
_MIN_LENGTH = 64
"""Smallest length that batches are padded to by default. The others are its doubles."""


class SequenceLoader(Loader[SequenceDataset, PaddedBatch]):
    """Loader of batches with one document per row, in an order that depends only on the seed and the step.

    By default, a batch is padded to the smallest of a few lengths that holds its longest document, and a
    training step compiles once for each of them. With `length`, all batches have one shape. With several
    datasets and no weights, each document occurs once per epoch. With weights, the datasets are mixed in an
    endless stream.

    Batches are `PaddedBatch`es: `ids` and `attention_mask`, NumPy arrays, `int32`, shape
    `(batch_size, padded_length)`, and the side columns.

    Attributes:
        batch_size: number of documents of a batch, of all processes together.
        length: maximum number of ids of a row; longer documents are truncated at their end.
    """

    _reads_documents = True

    def __init__(
        self,
        dataset: Dataset | Sequence[Dataset],
        *,
        batch_size: int,
        length: int | None = None,
        multiple_of: int | None = None,
        tokenizer: Any = None,
        allowed_special: Special = (),
        disallowed_special: Special = "all",
        **options: Unpack[LoaderOptions],
    ) -> None:
        """Initializes the loader. Documents are read by `batch_at`.

        Args:
            dataset: an open dataset, or several.
            batch_size: number of documents of a batch.
            length: number of ids that all rows are padded to. Longer documents are truncated as in
                `encode_batch_result`, which keeps inserted special tokens. `None` for 64, 128, 256 and so on,
                whichever is the smallest that holds the longest document of the batch, but at most the
                `max_tokens` of the first dataset that has it. Texts need `length`, because they are encoded
                when they are loaded.
            multiple_of: pad a batch to the smallest multiple of this number that holds its longest document,
                but at most to `length`, or to `max_tokens` without it. Texts do not support it.
            tokenizer: tokenizer of texts; `None` for the one that their datasets were opened with or, without
                one, that of the datasets of ids.
            allowed_special: special tokens that are recognized in texts, as in `encode_batch_result`.
            disallowed_special: special tokens that raise an error in texts, as in `encode_batch_result`.
            **options: options of all loaders, as for `PackedTokenLoader`, but `drop_last` omits documents.

        Raises:
            DatasetIncompleteError: there are texts without a tokenizer.
            DatasetMismatchError: the ids would be of several tokenizers, or the datasets have different side
                columns.
            InvalidArgumentError: an argument is invalid, or the documents do not fill a batch.
        """
        self._tokenizer_override = tokenizer
        super().__init__(dataset, **options)
        self.batch_size = check_int("batch_size", batch_size, minimum=1)
        self._tokenizer = self._find_tokenizer() if any(map(_is_text, self.datasets)) else None
        self._special: dict[str, Any] = {
            "allowed_special": sort_special_names(allowed_special),
            "disallowed_special": sort_special_names(disallowed_special),
        }
        self._multiple_of = None if multiple_of is None else check_int("multiple_of", multiple_of, minimum=1)
        if (length is None or multiple_of is not None) and any(map(_is_text, self.datasets)):
            raise InvalidArgumentError(
                "texts are encoded when they are loaded, so the longest one of a batch is unknown; pass "
                "length=LENGTH to pad all batches to it" + (", without multiple_of" if multiple_of else "")
            )
        longest = _get_length(self.datasets) if length is None else length
        self.length = check_int("length", longest, minimum=1, maximum=MAX_INT32)
        self._boundaries = _choose_boundaries(self.length, self._multiple_of, is_exact=length is not None)
        self._ends = [self._get_end_ids(each) for each in self.datasets]
        self._set_order([len(each) for each in self.datasets], self.batch_size)

    def _load(self, step: int) -> PaddedBatch:
        slots = self._order.compute_items(step)
        length = self._compute_padded_length(slots)
        rows: list[DocumentRow | None] = [None] * self.batch_size
        own = self._select_rows(self.batch_size)
        for index, dataset_rows in slots.select(own).group_by_dataset():
            documents = self._load_rows(index, slots.items[own][dataset_rows], length)
            for row, document in zip(dataset_rows.tolist(), documents, strict=True):
                rows[row] = document
        return self._pad_rows(rows[: own.stop - own.start], length)

    def _find_shards(self, step: int) -> Iterator[tuple[int, int]]:
        slots = self._order.compute_items(step).select(self._select_rows(self.batch_size))
        for index, rows in slots.group_by_dataset():
            for shard in self.datasets[index]._find_document_shards(slots.items[rows]):
                yield index, shard

    def _make_examples(self) -> Iterator[PaddedBatch]:
        """Returns an empty batch of each length that a batch can have."""
        lengths = self._boundaries
        if len(lengths) > 1:
            documents = np.concatenate([each.document_lengths for each in self.datasets])
            lengths = np.unique(self._pad_lengths(documents))
        return (self._make_empty(self.batch_size, length) for length in lengths.tolist())

    def _find_fingerprints(self) -> set[str]:
        return super()._find_fingerprints() | {protocol.fingerprint(each) for each in self._find_overrides()}

    def _find_overrides(self) -> list[Any]:
        """Returns the tokenizers of texts that were passed to the loader or to `open_dataset`."""
        if self._tokenizer_override is not None:
            return [self._tokenizer_override]
        tokenizers = [dataset.tokenizer_override for dataset in self.datasets if _is_text(dataset)]
        return [tokenizer for tokenizer in tokenizers if tokenizer is not None]

    def _find_tokenizer(self) -> Any:
        """Returns the tokenizer of all ids: the one that was passed, or that of a dataset."""
        tokenizers = self._find_overrides()
        return tokenizers[0] if tokenizers else min(self.datasets, key=_is_text).tokenizer

    def _get_end_ids(self, dataset: SequenceDataset) -> list[int]:
        """Returns the ids at the end of a document that truncation keeps.

        Raises:
            InvalidArgumentError: `length` is too small for the special tokens around a text.
        """
        if isinstance(dataset, RawTextDataset):
            before, after = get_template_ids(self._tokenizer, add_special_tokens=True)
        else:
            maximum = dataset.manifest.plan.options.get("max_tokens")
            before, after = (
                ([], []) if maximum and maximum <= self.length else get_surrounding_ids(dataset.field)
            )
        around = len(before) + len(after)
        if self.length < around:
            raise InvalidArgumentError(
                f"length is {self.length}, and {around} special tokens surround each text; pass a "
                "larger length"
            )
        return after

    def _load_rows(self, index: int, items: NDArray[np.int64], length: int) -> list[DocumentRow]:
        """Returns documents of one dataset, truncated to `length`."""
        dataset, documents = self.datasets[index], items.tolist()
        stored = dataset._read_column_rows((column.name for column in self._columns), documents)
        if isinstance(dataset, TokenDataset):
            rows = []
            for ids, values in zip(dataset._read_ids(documents), stored, strict=True):
                end = _count_kept_end(ids, length, self._ends[index])
                truncated = (_truncate(value, length, end) if np.ndim(value) else value for value in values)
                rows.append(DocumentRow(_truncate(ids, length, end), tuple(truncated)))
            return rows
        texts = [text.tobytes() for text in dataset._read_documents(documents)]
        encode = partial(
            encode_batch_result,
            self._tokenizer,
            max_length=length,
            return_offsets=False,
            return_masks=False,
            **self._special,
        )
        batch = encode_named(encode, texts, lambda i: f"document {items[i]} of {dataset.location}")
        return [DocumentRow(row.ids, values) for row, values in zip(batch, stored, strict=True)]

    def _compute_padded_length(self, slots: ItemSlots) -> int:
        """Returns the length of a batch. It depends on the rows of all processes, so that they agree."""
        if len(self._boundaries) == 1:
            return self.length
        longest = max(
            int(self.datasets[index].document_lengths[slots.items[rows]].max())
            for index, rows in slots.group_by_dataset()
        )
        return int(self._pad_lengths(np.array(longest)))

    def _pad_lengths(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the length of a batch for each number of ids of its longest document."""
        found = np.searchsorted(self._boundaries, np.minimum(lengths, self.length))
        padded: NDArray[np.int64] = self._boundaries[found]
        return padded

    def _get_options(self) -> dict[str, Any]:
        return {
            "batch_size": self.batch_size,
            "length": self.length,
            "tokenizer": None if self._tokenizer is None else protocol.fingerprint(self._tokenizer),
            **self._special,
            "multiple_of": self._multiple_of,
            **super()._get_options(),
        }


def _is_text(dataset: SequenceDataset) -> bool:
    return isinstance(dataset, RawTextDataset)


def _get_length(datasets: Sequence[SequenceDataset]) -> int:
    """Returns the `max_tokens` of the first dataset that has it."""
    for dataset in datasets:
        length = dataset.manifest.plan.options.get("max_tokens")
        if length is not None:
            return int(length)
    raise InvalidArgumentError(
        f"{datasets[0].manifest.plan.field} has no limit of ids per document; pass length=LENGTH"
    )


def _choose_boundaries(length: int, multiple_of: int | None, *, is_exact: bool) -> NDArray[np.int64]:
    """Returns the lengths that batches are padded to, ascending, `int64`; the last one is `length`."""
    if multiple_of is not None:
        return np.append(np.arange(multiple_of, length, multiple_of), length)
    if is_exact:
        return np.array([length])
    return np.array(LengthBuckets.geometric(min(_MIN_LENGTH, length), length).boundaries)


def _count_kept_end(ids: NDArray[np.int32], length: int, end: list[int]) -> int:
    """Returns the number of ids at the end of a document that truncation keeps: those of `end`, or 0."""
    return len(end) if len(ids) > length and end and ids[-len(end) :].tolist() == end else 0


def _truncate(values: NDArray[Any], length: int, num_end: int) -> NDArray[Any]:
    """Returns the values of a document truncated to a length, of which the last `num_end` are its last."""
    if len(values) <= length:
        return values
    return np.concatenate([values[: length - num_end], values[len(values) - num_end :]])
