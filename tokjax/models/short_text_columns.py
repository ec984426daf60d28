"""Columns of the result of one short text, which are computed when they are first read."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.core import protocol
from tokjax.core.records import freeze

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.core.records import TokenizationResult
    from tokjax.core.utf8 import Text
    from tokjax.models.base import SegmentModel


class ShortTextColumns:
    """Columns of one text in which no special or added token is matched.

    Offsets are computed without a batch, because most callers read them. All other columns are those of a
    batch of one text.

    Args:
        tokenizer: tokenizer of the text. The bytes of its tokens, concatenated, are the text.
        text: the text.
        ids: ids of the text, with those that the template inserts, `int32`, shape `(n,)`.
        add_special_tokens: as in `encode_result`, like all other options.
        return_offsets: as in `encode_result`.
        return_masks: as in `encode_result`.
    """

    def __init__(
        self,
        tokenizer: SegmentModel,
        text: Text,
        ids: NDArray[np.int32],
        add_special_tokens: bool,
        return_offsets: bool,
        return_masks: bool,
    ) -> None:
        self._tokenizer = tokenizer
        self._text = text
        self._ids = ids
        self._add_special_tokens = add_special_tokens
        self._return_offsets = return_offsets
        self._return_masks = return_masks

    def __call__(self, name: str) -> Any:
        """Returns a column, `None` if it was not requested. Arrays are read-only."""
        if name == "offsets" and self._return_offsets:
            return self._compute_offsets()
        return getattr(self._batch_result, name)

    def _compute_offsets(self) -> NDArray[np.int64]:
        """Computes the offsets as running sums of token lengths, as `tokjax.models.assembly` describes."""
        ids, vocabulary = self._ids, self._tokenizer.vocabulary
        before, after = map(len, vocabulary.template_token_ids) if self._add_special_tokens else (0, 0)
        stop = len(ids) - after
        lengths = self._tokenizer.text_byte_lengths.take(ids)
        lengths[:before] = lengths[stop:] = 0
        offsets = np.empty((len(ids), 2), np.int64)
        np.cumsum(lengths, out=offsets[:, 1])
        np.subtract(offsets[:, 1], lengths, out=offsets[:, 0])
        offsets += 1
        offsets[:before] = offsets[stop:] = 0  # the sentinel
        return freeze(self._tokenizer.adjust_offsets(ids, offsets, {}))

    @cached_property
    def _batch_result(self) -> TokenizationResult:
        return protocol.encode_texts(
            self._tokenizer,
            [self._text],
            add_special_tokens=self._add_special_tokens,
            return_offsets=self._return_offsets,
            return_masks=self._return_masks,
        )[0]
