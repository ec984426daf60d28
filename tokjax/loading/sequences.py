"""Batches of whole documents, padded: of ids, or of texts that are tokenized when they are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax import protocol
from tokjax._checks import check_id, checked_int
from tokjax.batching.collate import PaddedBatch, pad_ragged
from tokjax.encoding import encode_batch_result
from tokjax.errors import InvalidArgumentError
from tokjax.loading.loader import Loader
from tokjax.loading.mixing import checked_weights
from tokjax.loading.order import Order
from tokjax.ragged import ragged_from_rows
from tokjax.store.kinds import RawTextDataset, TokenDataset

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tokjax.loading.order import Places

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
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = True,
        weights: Iterable[float] | None = None,
    ) -> None:
        """Plan the batches; nothing is read yet.

        Args:
            dataset: an open dataset, or several.
            batch_size: documents a batch.
            length: ids a row; `None` for the `max_tokens` of the first dataset's field.
            multiple_of: pad to the next multiple of this above the batch's longest document, and to `length`
                at most; `None` always to `length`. (Not for texts.)
            pad_id: the id on padding; `None` for the tokenizer's PAD token.
            tokenizer: what tokenizes texts; `None` for what their dataset was opened with.
            seed: names the order.
            shuffle: whether documents come in another order each epoch.
            drop_last: leave out documents that fill no batch; if not, the last batch of an epoch has empty
                rows.
            weights: how often each dataset is drawn from; `None` to go through all of them together.
        """
        super().__init__(dataset, seed)
        self.batch_size = checked_int("batch_size", batch_size, least=1)
        first = self.datasets[0]
        self._tokenizer = first.tokenizer if tokenizer is None and _is_text(first) else tokenizer
        self.length = checked_int("length", _length_of(first) if length is None else length, least=1)
        self._multiple_of = None if multiple_of is None else checked_int("multiple_of", multiple_of, least=1)
        if self._multiple_of is not None and any(map(_is_text, self.datasets)):
            raise InvalidArgumentError(
                "multiple_of needs lengths, which texts have only when they are loaded"
            )
        self._pad_id = pad_id_of(self._tokenizer or first.tokenizer, pad_id)
        self._shuffle, self._drop_last = bool(shuffle), bool(drop_last)
        self._weights = checked_weights(weights)
        self._order = Order(
            [len(each) for each in self.datasets],
            self.batch_size,
            seed=self.seed,
            shuffle=self._shuffle,
            drop_last=self._drop_last,
            weights=self._weights,
        )

    @property
    def steps_per_epoch(self) -> int | None:
        """Batches an epoch; `None` for a mixture, which has no end."""
        return self._order.steps_per_epoch

    @property
    def batch_rows(self) -> int:
        """Of how many rows the processes take equal parts."""
        return self.batch_size

    def batch_at(self, step: int) -> PaddedBatch:
        """The batch of a step, counted from 0 through all epochs; a pure function of seed and step.

        Returns:
            `ids` and `attention_mask`, NumPy arrays, `int32`, of shape `(batch_size, length)`.
        """
        places = self._order.at(checked_int("step", step, least=0))
        length = self.length if self._multiple_of is None else self._padded_length(places)
        rows: list[NDArray[np.int32]] = [np.zeros(0, np.int32)] * self.batch_size
        own = self._own(self.batch_size)
        for index, places_of in places.part(own).by_dataset():
            found = self._rows(self.datasets[index], places.items[own][places_of], length)
            for place, ids in zip(places_of.tolist(), found, strict=True):
                rows[place] = ids
        ragged = ragged_from_rows(rows[: own.stop - own.start])
        return pad_ragged(ragged, length=length, pad_id=self._pad_id, columns=_COLUMNS)

    def _rows(
        self, dataset: SequenceDataset, items: NDArray[np.int64], length: int
    ) -> list[NDArray[np.int32]]:
        if isinstance(dataset, TokenDataset):
            return [dataset.document(item) for item in items.tolist()]
        texts = [dataset.text_bytes(item) for item in items.tolist()]
        batch = encode_batch_result(
            self._tokenizer, texts, max_length=length, return_offsets=False, return_masks=False
        )
        return [row.ids for row in batch]

    def _padded_length(self, places: Places) -> int:
        """The length of a batch, which all processes must agree on."""
        assert self._multiple_of is not None
        longest = max(
            int(self.datasets[index].document_lengths[places.items[rows]].max())
            for index, rows in places.by_dataset()
        )
        return min(-(-max(longest, 1) // self._multiple_of) * self._multiple_of, self.length)

    def _options(self) -> dict[str, Any]:
        return {
            "batch_size": self.batch_size,
            "length": self.length,
            "tokenizer": None if self._tokenizer is None else protocol.fingerprint(self._tokenizer),
            "multiple_of": self._multiple_of,
            "shuffle": self._shuffle,
            "drop_last": self._drop_last,
            "weights": self._weights,
        }


def pad_id_of(tokenizer: Any, pad_id: int | None) -> int:
    """The id to pad with: the one that is given, or the tokenizer's."""
    chosen = pad_id
    if chosen is None:
        chosen = protocol.vocabulary_of(tokenizer).require_role("pad", "a loader without pad_id=ID")
    check_id("pad_id", chosen)
    return chosen


def _is_text(dataset: SequenceDataset) -> bool:
    return isinstance(dataset, RawTextDataset)


def _length_of(dataset: SequenceDataset) -> int:
    length = getattr(dataset.field, "max_tokens", None)
    if length is None:
        raise InvalidArgumentError(
            f"{type(dataset.field).__name__} has no limit of ids a document; pass length=LENGTH"
        )
    return int(length)
