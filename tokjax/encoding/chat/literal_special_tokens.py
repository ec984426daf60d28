"""Encoding of a text in which some occurrences of a special token are ordinary text.

A text is encoded in parts, which begin at special tokens: a tokenizer splits a text there in any case.

    <|user|>                          a part in which all are recognised
    <|end|>What does "<|end|>" do?    the first is recognised, the second is ordinary text
    <|end|><|assistant|>It ends ...   a part in which all are recognised
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.core import protocol
from tokjax.core.ragged import Ragged
from tokjax.core.records import make_batch_without_copy
from tokjax.core.utf8 import count_bytes
from tokjax.errors import InvalidArgumentError
from tokjax.pretokenize.special_tokens import split_at_special

if TYPE_CHECKING:
    from tokjax.core.records import TokenizationBatch, TokenizationResult
    from tokjax.encoding.chat.messages import HiddenTokens


def encode_with_hidden(tokenizer: Any, text: str, hidden: HiddenTokens) -> TokenizationResult:
    """Encode a text whose special tokens are recognised, except those that are hidden.

    Args:
        tokenizer: any registered tokenizer.
        text: the text, in which the special tokens that are ordinary text are replaced.
        hidden: their replacements.

    Raises:
        InvalidArgumentError: the tokenizer can't encode them as ordinary text there.
    """
    names = frozenset(protocol.get_vocabulary(tokenizer).special)
    pieces = ["", *split_at_special(text, names), ""]
    parts: list[TokenizationBatch] = []
    recognised = ""
    texts: list[str] = []

    def encode(part: str, allowed: Any = "all") -> None:
        if part:
            texts.append(part)
            parts.append(
                protocol.encode_texts(
                    tokenizer,
                    [part],
                    add_special_tokens=False,
                    allowed_special=allowed,
                    disallowed_special=(),
                )
            )

    for special, ordinary, following in zip(pieces[:-1:2], pieces[1::2], pieces[2::2], strict=True):
        if not hidden.is_in(ordinary):
            recognised += special + ordinary
            continue
        encode(recognised)
        recognised, ordinary = "", hidden.restore(ordinary)  # noqa: PLW2901
        if not _is_separate(tokenizer, "x \n", following):
            raise _make_error(tokenizer, hidden, following)
        if all(_is_separate(tokenizer, special, start) for start in ("x", " x", "\nx")):
            encode(special)
            encode(ordinary, ())
        elif special not in ordinary:
            encode(special + ordinary, {special})
        else:
            raise _make_error(tokenizer, hidden, special)
    encode(recognised)
    return _concatenate_results(tokenizer, texts, parts)


def _is_separate(tokenizer: Any, first: str, second: str) -> bool:
    """Whether two texts, one of which is a special token, have the ids together that they have alone."""
    if not first or not second:
        return True
    options: dict[str, Any] = {"add_special_tokens": False, "return_offsets": False, "return_masks": False}
    batch = protocol.encode_texts(
        tokenizer, [first + second, first, second], allowed_special="all", **options
    )
    combined, *alone = (row.ids for row in batch)
    return bool(np.array_equal(combined, np.concatenate(alone)))


def _make_error(tokenizer: Any, hidden: HiddenTokens, name: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{type(tokenizer).__name__} can't encode {sorted(hidden.names)} as ordinary text beside the special "
        f"token {name!r} that the template writes; leave them out of the messages, or pass allowed_special= "
        "to recognise them"
    )


def _concatenate_results(
    tokenizer: Any, texts: list[str], parts: list[TokenizationBatch]
) -> TokenizationResult:
    """One result of the parts of a text."""
    metadata = parts[0].metadata
    in_view = metadata.offsets_reference == "tokenizer_normalized_text"
    columns: dict[str, list[Any]] = {}
    start, words = 0, 0
    for text, part in zip(texts, parts, strict=True):
        for name, column in part.ragged._asdict().items():
            columns.setdefault(name, []).append(column)
        if part.offsets is not None:
            columns["offsets"][-1] = np.where(part.offsets > 0, part.offsets + start, 0)
        if part.ragged.word_ids is not None:
            word_ids = np.asarray(part.ragged.word_ids)
            columns["word_ids"][-1] = np.where(word_ids >= 0, word_ids + words, -1).astype(np.int32)
            words += int(word_ids.max(initial=-1)) + 1
        start += count_bytes(protocol.tokenization_view(tokenizer, text) if in_view else text)
    joined: dict[str, Any] = {
        name: None if column[0] is None else np.concatenate(column) for name, column in columns.items()
    }
    joined["row_splits"] = np.array([0, len(joined["ids"])], np.int64)
    get_token_strings = protocol.get_vocabulary(tokenizer).get_token_strings
    return make_batch_without_copy(Ragged(**joined), metadata, get_token_strings, has_attention_mask=True)[0]
