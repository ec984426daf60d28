r"""Streaming decoding: the text of ids that arrive one after another, as in text generation.

Two things delay the text of an id. A character can have bytes in several tokens, and the text of a token can
depend on the tokens around it. Example: a SentencePiece model removes the space at the start of a text, and
byte tokens that follow one another are decoded together.

    id             ▁I     ▁eat   <0xF0> <0x9F> <0x8D> <0xA3>   ▁now
    text           "I"    " eat" ""     ""     ""     "🍣"     " now"
    context        ▁I     ▁eat   ▁eat   ▁eat   ▁eat   <0xA3>   ▁now
    pending ids    -      -      F0     F0 9F  F0 9F 8D  -     -

`find_decode_context` returns the context and the pending ids of a tokenizer type. Each step decodes the
context and the ids after it, and drops the text of the context. The cost of a step does not depend on the
number of earlier ids if the context does not.
"""

from __future__ import annotations

import codecs
from functools import singledispatch
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.core.protocol import as_flat_ids, concatenates_tokens, decode_bytes, get_vocabulary
from tokjax.core.utf8 import check_error_handler
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import ArrayLike, NDArray

    Ids = NDArray[np.int32]

_NO_IDS = np.zeros(0, np.int32)
_NO_IDS.setflags(write=False)


class DecodeState(NamedTuple):
    """State of a text that `decode_step` decodes. `DecodeState()` is the start of a text.

    Attributes:
        context: ids on which the text of later ids depends, `int32`, shape `(num_context_ids,)`.
        pending: the last ids, if their text is not final yet, `int32`, shape `(num_pending_ids,)`.
        incomplete: the first bytes of a character, if its other bytes are not decoded yet.
    """

    context: Ids = _NO_IDS
    pending: Ids = _NO_IDS
    incomplete: bytes = b""


@singledispatch
def find_decode_context(
    tokenizer: Any,
    ids: Ids,
    *,
    skip_special_tokens: bool = False,  # noqa: ARG001 (types that register this function use it)
) -> tuple[Ids, Ids]:
    """Finds the ids on which the text of later ids depends, and the ids whose text is not final yet.

    `decode_step` calls it. By default, no text depends on other ids if the type uses the default
    `decode_bytes`, which concatenates tokens. For a type that registers `decode_bytes`, the text of an id may
    depend on all ids before it, but not on those after it. Register this function as well if it depends on
    ids after it, or if it depends on fewer ids: otherwise each step decodes all ids again.

    With `ids == final + pending`, the result must satisfy for any ids `more`:

        decode_bytes(ids + more)
        == decode_bytes(final) + decode_bytes(context + pending + more).removeprefix(decode_bytes(context))

    Args:
        tokenizer: any registered tokenizer.
        ids: token ids, `int32`, shape `(n,)`: the context, the pending ids and the new ids.
        skip_special_tokens: as in `decode_bytes`.

    Returns:
        The context, and the pending ids, which are the last of `ids`; `int32`, shapes `(num_context_ids,)`
        and `(num_pending_ids,)`.
    """
    return (ids[:0] if concatenates_tokens(tokenizer) else ids), ids[:0]


def keep_last_visible_id(tokenizer: Any, ids: Ids, *, skip_special_tokens: bool = False) -> tuple[Ids, Ids]:
    """Implements `find_decode_context` for types whose first token has another text than later ones."""
    visible = ids[~get_vocabulary(tokenizer).is_skipped.take(ids)] if skip_special_tokens else ids
    return visible[-1:], ids[:0]


def decode_step(
    tokenizer: Any,
    state: DecodeState,
    ids: ArrayLike,
    *,
    final: bool = False,
    skip_special_tokens: bool = False,
    errors: str = "replace",
) -> tuple[DecodeState, str]:
    """Decodes the next ids of a text, and returns the text that is complete.

    The results of all steps, concatenated, are `decode(tokenizer, all_ids)`. Text is returned as soon as no
    later id can change it, so never in the middle of a character. Use this function if several texts are
    generated at the same time, and `decode_stream` for one text.

    Args:
        tokenizer: any registered tokenizer.
        state: state that the step before returned; `DecodeState()` for the first ids.
        ids: the next token ids: one integer, or integers of shape `(n,)`, also with `n = 0`.
        final: whether these are the last ids. Text that was held back is then returned.
        skip_special_tokens: as in `decode`; the same in all steps.
        errors: as in `decode`; the same in all steps.

    Returns:
        The state for the next step, and the text.

    Raises:
        UnknownTokenError: an id is not in the vocabulary.

    >>> from tokjax import byte_level
    >>> state = DecodeState()
    >>> for byte in "né".encode():
    ...     state, text = decode_step(byte_level(), state, byte)
    ...     print(repr(text))
    'n'
    ''
    'é'
    """
    new_ids = as_flat_ids([ids] if np.ndim(ids) == 0 else ids)  # type: ignore[arg-type]
    get_vocabulary(tokenizer).check_ids(new_ids)
    window = np.concatenate([state.context, state.pending, new_ids])
    context, pending = _NO_IDS, _NO_IDS
    if not final:
        context, pending = find_decode_context(tokenizer, window, skip_special_tokens=skip_special_tokens)
    before = _decode(tokenizer, state.context, skip_special_tokens)
    data = _decode(tokenizer, window[: len(window) - len(pending)], skip_special_tokens)
    if not data.startswith(before):
        raise UnsupportedTokenizerError(
            f"ids that follow change text that was decoded already ({before[-20:]!r}); register "
            f"tokjax.find_decode_context for {type(tokenizer).__name__}, so that this text is held back"
        )
    data = state.incomplete + data[len(before) :]
    check_error_handler(errors)
    text, num_bytes = codecs.utf_8_decode(data, errors, bool(final))
    return DecodeState(context, pending, data[num_bytes:]), text


def decode_stream(
    tokenizer: Any, ids: Iterable[ArrayLike], *, skip_special_tokens: bool = False, errors: str = "replace"
) -> Iterator[str]:
    """Decodes the ids of a text while they are generated.

    The yielded strings, concatenated, are `decode(tokenizer, all_ids)`.

    Args:
        tokenizer: any registered tokenizer.
        ids: iterable of token ids: each item is one integer, or integers of shape `(n,)`.
        skip_special_tokens: as in `decode`.
        errors: as in `decode`.

    Yields:
        The text that became complete by each item, which may be empty. After the last item, the text that
        was held back, if any.

    Raises:
        InvalidArgumentError: `ids` is not an iterable of ids.
        UnknownTokenError: an id is not in the vocabulary.

    >>> from tokjax.models import word_level
    >>> words = word_level(["[UNK]", "to", "be"])
    >>> list(decode_stream(words, iter([1, 2, [0, 1], 2])))
    ['to', ' be', ' [UNK] to', ' be']
    """
    if not hasattr(ids, "__iter__"):
        raise InvalidArgumentError(
            f"ids must be an iterable of token ids, not {ids!r}; for one id, call decode_step"
        )
    state = DecodeState()
    for new_ids, final in chain(((each, False) for each in ids), [(_NO_IDS, True)]):
        state, text = decode_step(
            tokenizer, state, new_ids, final=final, skip_special_tokens=skip_special_tokens, errors=errors
        )
        if text or not final:
            yield text


def _decode(tokenizer: Any, ids: Ids, skip_special_tokens: bool) -> bytes:
    return decode_bytes(tokenizer, ids, skip_special_tokens=skip_special_tokens) if len(ids) else b""
