"""Texts that are longer than a model takes, in windows that overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokjax._util.checks import checked_int
from tokjax.core.errors import InvalidArgumentError
from tokjax.core.records import Windows
from tokjax.core.template import Part, arranged, check_room, windows_of
from tokjax.encoding.segments import encode_bare, room_for_texts, template_places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokjax.core.protocol import Special
    from tokjax.core.utf8 import Text


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
    allowed_special: Special = (),
    disallowed_special: Special = "all",
    threads: int | None = None,
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
        allowed_special: special tokens that are recognised in the text.
        disallowed_special: special tokens that raise an error in the text.
        threads: how many threads share the work.

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
    stride = checked_int("stride", stride, least=0)
    places = template_places(tokenizer, pairs is not None, add_special_tokens)
    encoded = encode_bare(
        tokenizer,
        texts,
        pairs,
        is_pretokenized=is_pretokenized,
        return_offsets=return_offsets,
        return_masks=return_masks,
        assume_normalized=assume_normalized,
        allowed_special=allowed_special,
        disallowed_special=disallowed_special,
        threads=threads,
    )
    room = room_for_texts(checked_int("max_length", max_length, least=1), places)
    cut = 0 if pairs is None or truncation == "only_first" else 1
    rooms = np.full(len(texts), room)
    if pairs is not None:
        whole = encoded.lengths[1 - cut]
        check_room(whole, room, truncation)
        rooms -= whole
    _check_stride(stride, rooms)
    windows = windows_of(encoded.lengths[cut], rooms, stride)
    parts = [
        windows._replace(rows=rows[windows.rows])
        if i == cut
        else Part(rows[windows.rows], np.zeros_like(windows.starts), lengths[windows.rows])
        for i, (rows, lengths) in enumerate(zip(encoded.rows, encoded.lengths, strict=True))
    ]
    batch = encoded.rearranged(arranged(encoded.batch.ragged, parts, places))
    return Windows(batch, windows.rows)


def _check_stride(stride: int, rooms: NDArray[np.int64]) -> None:
    if len(rooms) and rooms.min() == 0:
        raise InvalidArgumentError(
            "max_length leaves a window no room for its text, beside the template and the other text; "
            "raise it"
        )
    if len(rooms) and stride >= rooms.min():
        raise InvalidArgumentError(
            f"stride is {stride}, and a window has room for {rooms.min()} tokens of its text; stride must be "
            "less than that"
        )
