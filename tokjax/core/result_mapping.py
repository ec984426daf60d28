"""Results of tokenizers that normalize, with their offsets mapped to the texts as they were passed."""

from __future__ import annotations

import dataclasses
from functools import wraps
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

import numpy as np

from tokjax._util.arrays import as_integers
from tokjax._util.checks import reject_one_text
from tokjax.core.records import TokenizationBatch, TokenizationResult, Windows, make_batch_without_copy
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from tokjax.core.utf8 import Text

Registered = TypeVar("Registered")
Results = TypeVar("Results", TokenizationResult, TokenizationBatch, Windows, list[TokenizationResult])


class MapOffsets(Protocol):
    """Type of `map_offsets_to_input`: a generic function of arrays, which also takes results."""

    def register(self, cls: type, func: Any = None) -> Callable[[Registered], Registered]:
        """Registers an implementation for an array, as `functools.singledispatch` does."""

    @overload
    def __call__(self, tokenizer: Any, text: Any, offsets: Results, *, pair: Any = None) -> Results: ...
    @overload
    def __call__(self, tokenizer: Any, text: Text, offsets: ArrayLike) -> NDArray[np.int64]: ...


def accept_results(map_spans: Callable[..., NDArray[np.int64]]) -> MapOffsets:
    """Decorates the generic function `map_offsets_to_input` of arrays, so that it takes results, too."""

    @wraps(map_spans)
    def map_offsets(tokenizer: Any, text: Any, offsets: Any, *, pair: Any = None) -> Any:
        if isinstance(offsets, Windows):
            return offsets._replace(batch=map_batch(tokenizer, [text, pair], *offsets))
        if isinstance(offsets, TokenizationBatch) or _is_list_of_results(offsets):
            return map_batch(tokenizer, [text, pair], offsets, np.arange(len(offsets)))
        if isinstance(offsets, TokenizationResult):
            return map_result(tokenizer, [text, pair], offsets)
        return map_spans(tokenizer, text, as_integers("offsets", offsets, np.int64))

    def map_result(tokenizer: Any, texts: list[Any], result: TokenizationResult) -> TokenizationResult:
        if result.metadata.offsets_reference == "input_text":
            return result
        rows = [None if text is None else [text] for text in texts]
        offsets = map_columns(tokenizer, rows, result, np.zeros(len(result), np.int64))
        metadata = dataclasses.replace(result.metadata, offsets_reference="input_text")
        return dataclasses.replace(result, offsets=offsets, metadata=metadata)

    def map_batch(tokenizer: Any, texts: list[Any], batch: Any, text_ids: NDArray[np.int64]) -> Any:
        if isinstance(batch, list):
            _check_texts(texts[0], 0, text_ids)
            rows = zip(text_ids.tolist(), batch, strict=True)
            return [map_result(tokenizer, [each and each[i] for each in texts], row) for i, row in rows]
        if batch.metadata.offsets_reference == "input_text":
            return batch
        offsets = map_columns(tokenizer, texts, batch, np.repeat(text_ids, batch.lengths))
        return make_batch_without_copy(
            batch.ragged._replace(offsets=offsets),
            dataclasses.replace(batch.metadata, offsets_reference="input_text"),
            batch._get_token_strings,
            has_attention_mask=batch.has_attention_mask,
        )

    def map_columns(
        tokenizer: Any, texts: list[Any], tokens: Any, text_ids: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Maps the offsets of all tokens of each text in one call."""
        if tokens.offsets is None:
            raise InvalidArgumentError("the results have no offsets; encode with return_offsets=True")
        offsets = np.array(tokens.offsets)
        for sequence_id, rows in enumerate(texts):
            is_in_sequence = np.equal(0 if tokens.sequence_ids is None else tokens.sequence_ids, sequence_id)
            indices = np.flatnonzero(np.broadcast_to(is_in_sequence, len(offsets)))
            _check_texts(rows, sequence_id, text_ids[indices])
            indices = indices[np.argsort(text_ids[indices], kind="stable")]
            splits = np.searchsorted(text_ids[indices], np.arange(len(rows or ()) + 1)).tolist()
            for text, (start, stop) in zip(rows or (), pairwise(splits), strict=True):
                part = indices[start:stop]
                if len(part):
                    offsets[part] = map_spans(tokenizer, text, offsets[part])
        return offsets

    return map_offsets  # type: ignore[return-value]


def _is_list_of_results(offsets: Any) -> bool:
    return isinstance(offsets, list) and isinstance(next(iter(offsets), None), TokenizationResult)


def _check_texts(texts: Sequence[Text] | None, sequence_id: int, text_ids: NDArray[np.int64]) -> None:
    """Raises `InvalidArgumentError` if a token has no text."""
    name = "pair" if sequence_id else "text"
    if texts is not None:
        reject_one_text(texts)
    elif len(text_ids):
        raise InvalidArgumentError(f"the results have tokens of a second text; pass {name}= as in encoding")
    count = int(text_ids.max(initial=-1)) + 1
    if texts is not None and len(texts) < count:
        raise InvalidArgumentError(
            f"{name} has {len(texts)} texts, and the results are those of {count}; pass the texts that were "
            "encoded"
        )
