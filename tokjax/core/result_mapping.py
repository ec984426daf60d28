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
            text_ids = np.repeat(offsets.text_ids, offsets.batch.lengths)
            return offsets._replace(batch=map_tokens(tokenizer, [text, pair], offsets.batch, text_ids))
        if isinstance(offsets, TokenizationBatch):
            text_ids = np.repeat(np.arange(len(offsets)), offsets.lengths)
            return map_tokens(tokenizer, [text, pair], offsets, text_ids)
        if isinstance(offsets, TokenizationResult):
            texts = [None if each is None else [each] for each in (text, pair)]
            return map_tokens(tokenizer, texts, offsets, np.zeros(len(offsets), np.int64))
        if isinstance(offsets, list) and isinstance(next(iter(offsets), None), TokenizationResult):
            _check_texts(text, 0, np.arange(len(offsets)))
            pairs = pair or [None] * len(offsets)
            return [map_offsets(tokenizer, text[i], row, pair=pairs[i]) for i, row in enumerate(offsets)]
        return map_spans(tokenizer, text, as_integers("offsets", offsets, np.int64))

    def map_tokens(tokenizer: Any, texts: list[Any], tokens: Any, text_ids: NDArray[np.int64]) -> Any:
        """Maps the offsets of a result or a batch, those of all tokens of a text in one call."""
        if tokens.metadata.offsets_reference == "input_text":
            return tokens
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
        metadata = dataclasses.replace(tokens.metadata, offsets_reference="input_text")
        if isinstance(tokens, TokenizationResult):
            return dataclasses.replace(tokens, offsets=offsets, metadata=metadata)
        ragged, mask = tokens.ragged._replace(offsets=offsets), tokens.has_attention_mask
        return make_batch_without_copy(ragged, metadata, tokens._get_token_strings, has_attention_mask=mask)

    return map_offsets  # type: ignore[return-value]


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
