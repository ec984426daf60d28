"""Overlapping windows over texts that are longer than a model's context.

Example: a text of 7 tokens, the template `[CLS] $A [SEP]`, `max_length=5` and `stride=1`. The template takes
2 of the 5 tokens, which leaves a capacity of 3 tokens of text. A window starts `capacity - stride = 2` tokens
after the window before it:

    token index        0   1   2   3   4   5   6
    text              t0  t1  t2  t3  t4  t5  t6
    window 0   [CLS]  t0  t1  t2                   [SEP]
    window 1   [CLS]          t2  t3  t4           [SEP]      t2 is in windows 0 and 1
    window 2   [CLS]                  t4  t5  t6   [SEP]      t4 is in windows 1 and 2

Only the last window of a text can be shorter. Offsets in a window refer to the whole text, and
`Windows.text_ids` has the index of the text of each window: `[0, 0, 0]` here. `Windows.starts` has the token
index at which each window starts: `[0, 2, 4]` in its first column.

Of a pair, one text is split into windows and the other one is complete in each of them. Its tokens count
against the capacity, which can therefore differ from pair to pair. A question of 2 tokens with a context of
4, the template `[CLS] $A [SEP] $B [SEP]`, `max_length=8`, `stride=1` and `truncation="only_second"` (capacity
8 - 3 - 2 = 3):

    window 0   [CLS] q0 q1 [SEP] c0 c1 c2 [SEP]
    window 1   [CLS] q0 q1 [SEP] c2 c3 [SEP]

`tokjax.align.merge_windows` combines predictions for windows into predictions for texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from tokjax._util.checks import check_choice, check_int
from tokjax.core.encode_options import SpecialOptions, accept_options
from tokjax.core.records import Windows
from tokjax.core.template import TokenSlices
from tokjax.core.truncation import check_capacity, compute_text_capacity, compute_windows
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
    """Encodes texts in overlapping windows of at most `max_length` tokens.

    Use it for texts that are longer than the model's context. `encode_batch_result` truncates such texts
    instead.

    Args:
        tokenizer: any registered tokenizer.
        texts: `str` or `bytes`, or sequences of words with `is_pretokenized`.
        pairs: the second text of each pair, of the same length as `texts`; `None` for single texts.
        max_length: maximum number of tokens of a window, inserted special tokens included.
        stride: number of tokens that two consecutive windows of a text have in common, as in Hugging Face's
            `tokenizers`. (It is not the distance between their starts.)
        truncation: the text of a pair that is split into windows; the other one is complete in each of them.
        add_special_tokens: whether to apply the tokenizer's template to each window.
        is_pretokenized: whether each text is a sequence of words; see `encode_batch_result`.
        return_offsets: whether to compute `offsets`, `word_ids` and `sequence_ids`.
        return_masks: whether to compute `attention_mask`, `special_tokens_mask` and `token_type_ids`.
        assume_normalized: whether the texts are already in the form that `tokenization_view` returns.
        threads: number of threads; `None` for one per core.
        **special: `allowed_special` and `disallowed_special`, as in `encode_batch_result`.

    Returns:
        A batch with one row per window, the index of the text of each window, and its position there. The
        windows of a text are consecutive, and every text has at least one.

    Raises:
        DisallowedSpecialTokenError: a text contains a disallowed special token.
        InvalidArgumentError: an option is invalid, the complete text of a pair is too long, or `stride` is
            not less than the number of tokens of text in a window.

    >>> from tokjax import wordpiece
    >>> bert = wordpiece(["[UNK]", "[CLS]", "[SEP]", "to", "be", "or"])
    >>> windows = encode_windows(bert, ["to be or to be"], max_length=5, stride=1)
    >>> [result.tokens[1:-1] for result in windows.batch]
    [('to', 'be', 'or'), ('or', 'to', 'be')]
    """
    check_choice("truncation of windows", truncation, ("only_first", "only_second"))
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
    split_index = 0 if pairs is None or truncation == "only_first" else 1
    capacities = np.full(len(texts), capacity)
    if pairs is not None:
        untruncated = encoded.lengths[1 - split_index]
        check_capacity(untruncated, capacity, truncation)
        capacities -= untruncated
    _check_stride(stride, capacities)
    windows = compute_windows(encoded.lengths[split_index], capacities, stride)
    # `windows.rows` counts the texts (or pairs) from 0; `rows` maps this to rows of the encoded batch, where
    # the second texts follow the first ones. The complete text of a pair is repeated for each of its windows.
    slices = [
        windows._replace(rows=rows[windows.rows])
        if i == split_index
        else TokenSlices(rows[windows.rows], np.zeros_like(windows.starts), lengths[windows.rows])
        for i, (rows, lengths) in enumerate(zip(encoded.rows, encoded.lengths, strict=True))
    ]
    starts = np.zeros((len(windows.rows), 2), np.int64)
    starts[:, split_index] = windows.starts
    return Windows(encoded.apply_template(slices, pieces), windows.rows, starts)


def _check_stride(stride: int, capacities: NDArray[np.int64]) -> None:
    """Raises `InvalidArgumentError` unless each window advances by at least one token."""
    if len(capacities) and capacities.min() == 0:
        raise InvalidArgumentError(
            "max_length is too small: the template and the other text fill a window, and no token of the "
            "text to be split fits; pass a larger max_length"
        )
    if len(capacities) and stride >= capacities.min():
        raise InvalidArgumentError(
            f"stride is {stride}, and a window holds {capacities.min()} tokens of its text; stride must be "
            "less than that: pass a smaller stride or a larger max_length"
        )
