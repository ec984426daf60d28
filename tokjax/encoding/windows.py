"""Texts that are longer than a model takes, in windows that overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from tokjax._util.checks import check_int
from tokjax.core.encode_options import SpecialOptions, accept_options
from tokjax.core.records import Windows
from tokjax.core.template import TokenSlices, check_capacity, compute_text_capacity, compute_windows
from tokjax.encoding.encode import encode_without_template, resolve_template
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokjax.core.utf8 import Text


@accept_options(SpecialOptions)
def encode_windows(
    tokenizer: Any,
    texts: Sequence[Text] | Sequence[Sequence[Text]],
    pairs: Sequence[Text] | Sequence[Sequence[Text]] | None = None,
    *,
    max_length: int,
    stride: int = 0,
    truncation: Literal["only_first", "only_second"] = "only_first",
    add_special_tokens: bool = True,
    is_pretokenized: bool = False,
    return_offsets: bool = True,
    return_masks: bool = True,
    assume_normalized: bool = False,
    threads: int | None = None,
    **special: Unpack[SpecialOptions],
) -> Windows:
    """Encode texts that may be longer than a model takes, in windows that overlap.

    Args:
        tokenizer: any registered tokenizer.
        texts: as in `encode_batch_result`, like all arguments that are not told here.
        pairs: the second text of each.
        max_length: how many tokens a window has at most, those of the template among them.
        stride: how many tokens of a text two windows side by side have in common.
        truncation: which text of a pair is cut into windows; the other one stands in each of them whole.
        add_special_tokens: put the template around each window.
        is_pretokenized: each text is a sequence of words.
        return_offsets: give `offsets`, `word_ids` and `sequence_ids`.
        return_masks: give `attention_mask`, `special_tokens_mask` and `token_type_ids`.
        assume_normalized: the texts are `tokenization_view`s already.
        threads: how many threads share the work.
        **special: `allowed_special` and `disallowed_special`.

    Raises:
        DisallowedSpecialTokenError: a text holds a special token that is disallowed.
        InvalidArgumentError: an option makes no sense, the other text of a pair is too long, or `stride`
            leaves a window nothing of its own.

    >>> from tokjax import wordpiece
    >>> bert = wordpiece(["[UNK]", "[CLS]", "[SEP]", "to", "be", "or"])
    >>> windows = encode_windows(bert, ["to be or to be"], max_length=5, stride=1)
    >>> [result.tokens[1:-1] for result in windows.batch]
    [('to', 'be', 'or'), ('or', 'to', 'be')]
    """
    if truncation not in ("only_first", "only_second"):
        raise InvalidArgumentError(
            f"truncation must be 'only_first' or 'only_second' for windows, not {truncation!r}"
        )
    stride = check_int("stride", stride, minimum=0)
    pieces = resolve_template(tokenizer, pairs is not None, add_special_tokens)
    encoded = encode_without_template(
        tokenizer,
        texts,
        pairs,
        is_pretokenized=is_pretokenized,
        return_offsets=return_offsets,
        return_masks=return_masks,
        assume_normalized=assume_normalized,
        threads=threads,
        **special,
    )
    capacity = compute_text_capacity(check_int("max_length", max_length, minimum=1), pieces)
    windowed = 0 if pairs is None or truncation == "only_first" else 1
    capacities = np.full(len(texts), capacity)
    if pairs is not None:
        untruncated = encoded.lengths[1 - windowed]
        check_capacity(untruncated, capacity, truncation)
        capacities -= untruncated
    _check_stride(stride, capacities)
    windows = compute_windows(encoded.lengths[windowed], capacities, stride)
    parts = [
        windows._replace(rows=rows[windows.rows])
        if i == windowed
        else TokenSlices(rows[windows.rows], np.zeros_like(windows.starts), lengths[windows.rows])
        for i, (rows, lengths) in enumerate(zip(encoded.rows, encoded.lengths, strict=True))
    ]
    return Windows(encoded.replace_rows(parts, pieces), windows.rows)


def _check_stride(stride: int, capacities: NDArray[np.int64]) -> None:
    if len(capacities) and capacities.min() == 0:
        raise InvalidArgumentError(
            "max_length leaves a window no room for its text, beside the template and the other text; "
            "raise it"
        )
    if len(capacities) and stride >= capacities.min():
        raise InvalidArgumentError(
            f"stride is {stride}, and a window has room for {capacities.min()} tokens of its text; stride must be "
            "less than that"
        )
