"""Batches of whole documents, padded: of ids, or of texts that are tokenized when they are loaded."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.checks import check_id, check_int
from tokjax.batching.collate import PaddedBatch, pad_ragged
from tokjax.core import protocol
from tokjax.core.ragged import ragged_from_rows
from tokjax.datasets.dataset_types import RawTextDataset, TokenDataset
from tokjax.datasets.document_encoding import encode_named, get_surrounding_ids
from tokjax.datasets.fields import sort_special_names
from tokjax.datasets.loaders.base import Loader
from tokjax.datasets.loaders.item_order import ItemOrder, check_weights
from tokjax.encoding.encode import encode_batch_result, get_template_ids
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from tokjax.core.protocol import Special
    from tokjax.datasets.loaders.item_order import ItemSlots

SequenceDataset = RawTextDataset | TokenDataset
_COLUMNS = ("ids", "attention_mask")


class SequenceLoader(Loader[SequenceDataset, PaddedBatch]):
    """Batches of a document a row, in an order that depends on the seed and the step alone.

    All batches have one shape, unless `multiple_of` is given, so that a step compiles once. Of several
    datasets without weights each document comes once an epoch; with weights they are mixed without end.

    Attributes:
        batch_size: documents a batch, of all processes together.
        length: ids a row; longer documents are cut at their end.
    """

    def __init__(
        self,
        dataset: SequenceDataset | Sequence[SequenceDataset],
        *,
        batch_size: int,
        length: int | None = None,
        multiple_of: int | None = None,
        pad_id: int | None = None,
        tokenizer: Any = None,
        allowed_special: Special = (),
        disallowed_special: Special = "all",
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = True,
        weights: Iterable[float] | None = None,
    ) -> None:
        """Plan the batches; nothing is read yet.

        Args:
            dataset: an open dataset, or several.
            batch_size: documents a batch.
            length: ids a row; `None` for the `max_tokens` of the first dataset that has one. Longer documents
                are cut as `encode_batch_result` cuts them: what the tokenizer puts behind a text stays.
            multiple_of: pad to the next multiple of this above the batch's longest document, and to `length`
                at most; `None` always to `length`. (Not for texts.)
            pad_id: the id on padding; `None` for the tokenizer's PAD token.
            tokenizer: what tokenizes texts; `None` for what their datasets were opened with, or else for what
                made the ids of the others.
            allowed_special: special tokens that are recognised in texts, as in `encode_batch_result`.
            disallowed_special: special tokens that are refused in texts, as in `encode_batch_result`.
            seed: names the order.
            shuffle: whether documents come in another order each epoch.
            drop_last: leave out documents that fill no batch; if not, the last batch of an epoch has empty
                rows.
            weights: how often each dataset is drawn from; `None` to go through all of them together.

        Raises:
            DatasetIncompleteError: there are texts, and nothing to tokenize them with.
            DatasetMismatchError: ids would be of several tokenizers.
        """
        self._tokenizer_override = tokenizer
        super().__init__(dataset, seed)
        self.batch_size = check_int("batch_size", batch_size, minimum=1)
        self._tokenizer = self._get_text_tokenizer()
        self._special: dict[str, Any] = {
            "allowed_special": sort_special_names(allowed_special),
            "disallowed_special": sort_special_names(disallowed_special),
        }
        self.length = check_int("length", _get_length(self.datasets) if length is None else length, minimum=1)
        self._ends = [self._get_end_ids(each) for each in self.datasets]
        self._multiple_of = None if multiple_of is None else check_int("multiple_of", multiple_of, minimum=1)
        if self._multiple_of is not None and any(map(_is_text, self.datasets)):
            raise InvalidArgumentError(
                "multiple_of needs lengths, which texts have only when they are loaded"
            )
        self._pad_id = resolve_pad_id(pad_id, self._find_tokenizer)
        self._shuffle, self._drop_last = bool(shuffle), bool(drop_last)
        self._weights = check_weights(weights)
        self._order = ItemOrder(
            [len(each) for each in self.datasets],
            self.batch_size,
            seed=self.seed,
            shuffle=self._shuffle,
            drop_last=self._drop_last,
            weights=self._weights,
        )

    @property
    def batch_rows(self) -> int:
        """Of how many rows the processes take equal parts."""
        return self.batch_size

    def batch_at(self, step: int) -> PaddedBatch:
        """The batch of a step, counted from 0 through all epochs; a pure function of seed and step.

        Returns:
            `ids` and `attention_mask`, NumPy arrays, `int32`, of shape `(batch_size, length)`.
        """
        positions = self._order.at(check_int("step", step, minimum=0))
        length = self.length if self._multiple_of is None else self._compute_padded_length(positions)
        rows: list[NDArray[np.int32]] = [np.zeros(0, np.int32)] * self.batch_size
        own = self._select_rows(self.batch_size)
        for index, row_positions in positions.part(own).group_by_dataset():
            found = self._load_rows(index, positions.items[own][row_positions], length)
            for position, ids in zip(row_positions.tolist(), found, strict=True):
                rows[position] = ids
        ragged = ragged_from_rows(rows[: own.stop - own.start])
        return pad_ragged(ragged, length=length, pad_id=self._pad_id, columns=_COLUMNS)

    def _find_fingerprints(self) -> set[str]:
        return super()._find_fingerprints() | {protocol.fingerprint(each) for each in self._find_overrides()}

    def _find_overrides(self) -> list[Any]:
        """What texts are tokenized by, as far as it was given."""
        if self._tokenizer_override is not None:
            return [self._tokenizer_override]
        tokenizers = [dataset.tokenizer_override for dataset in self.datasets if _is_text(dataset)]
        return [tokenizer for tokenizer in tokenizers if tokenizer is not None]

    def _get_text_tokenizer(self) -> Any:
        """What tokenizes texts; `None` if there are none."""
        return self._find_tokenizer() if any(map(_is_text, self.datasets)) else None

    def _find_tokenizer(self) -> Any:
        """The one tokenizer of all ids, wherever it is found."""
        tokenizers = self._find_overrides()
        return tokenizers[0] if tokenizers else min(self.datasets, key=_is_text).tokenizer

    def _get_end_ids(self, dataset: SequenceDataset) -> list[int]:
        """The ids that stay behind a document that is cut."""
        if isinstance(dataset, RawTextDataset):
            before, after = get_template_ids(self._tokenizer, add_special_tokens=True)
        else:
            maximum = dataset.manifest.plan.options.get("max_tokens")
            before, after = (
                ([], []) if maximum and maximum <= self.length else get_surrounding_ids(dataset.field)
            )
        around = len(before) + len(after)
        if self.length < around:
            raise InvalidArgumentError(f"length is {self.length}, and {around} ids stand around each text")
        return after

    def _load_rows(self, index: int, items: NDArray[np.int64], length: int) -> list[NDArray[np.int32]]:
        dataset = self.datasets[index]
        if isinstance(dataset, TokenDataset):
            return [_truncate(dataset.document(item), length, self._ends[index]) for item in items.tolist()]
        texts = [dataset.text_bytes(item) for item in items.tolist()]
        encode = partial(
            encode_batch_result,
            self._tokenizer,
            max_length=length,
            return_offsets=False,
            return_masks=False,
            **self._special,
        )
        batch = encode_named(encode, texts, lambda i: f"document {items[i]} of {dataset.location}")
        return [row.ids for row in batch]

    def _compute_padded_length(self, positions: ItemSlots) -> int:
        """The length of a batch, which all processes must agree on."""
        assert self._multiple_of is not None
        longest = max(
            int(self.datasets[index].document_lengths[positions.items[rows]].max())
            for index, rows in positions.group_by_dataset()
        )
        return min(-(-max(longest, 1) // self._multiple_of) * self._multiple_of, self.length)

    def _get_options(self) -> dict[str, Any]:
        return {
            "batch_size": self.batch_size,
            "length": self.length,
            "tokenizer": None if self._tokenizer is None else protocol.fingerprint(self._tokenizer),
            **{option: _as_json(names) for option, names in self._special.items()},
            "multiple_of": self._multiple_of,
            "shuffle": self._shuffle,
            "drop_last": self._drop_last,
            "weights": self._weights,
        }


def resolve_pad_id(pad_id: int | None, tokenizer: Callable[[], Any]) -> int:
    """The id to pad with: the one that is given, or that of a tokenizer, which is only then asked for."""
    chosen = pad_id
    if chosen is None:
        chosen = protocol.get_vocabulary(tokenizer()).require_role("pad", "a loader without pad_id=ID")
    check_id("pad_id", chosen)
    return chosen


def _is_text(dataset: SequenceDataset) -> bool:
    return isinstance(dataset, RawTextDataset)


def _get_length(datasets: Sequence[SequenceDataset]) -> int:
    for dataset in datasets:
        length = dataset.manifest.plan.options.get("max_tokens")
        if length is not None:
            return int(length)
    raise InvalidArgumentError(
        f"{datasets[0].manifest.plan.field} has no limit of ids a document; pass length=LENGTH"
    )


def _truncate(ids: NDArray[np.int32], length: int, end: list[int]) -> NDArray[np.int32]:
    """A document cut to a length; if it ends with `end`, that stays."""
    if len(ids) <= length:
        return ids
    truncated = ids[:length]
    if end and ids[-len(end) :].tolist() == end:
        truncated[-len(end) :] = end
    return truncated


def _as_json(names: str | tuple[str, ...]) -> str | list[str]:
    return names if isinstance(names, str) else list(names)
