"""Pre-tokens of a text: the parts that a tokenizer encodes independently of one another."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from tokjax._util.checks import MANY_TEXTS_ADVICE, check_text
from tokjax._util.display import short_repr
from tokjax.core.protocol import encode_texts, get_vocabulary, normalize
from tokjax.core.utf8 import to_utf8
from tokjax.core.vocabulary import format_token
from tokjax.errors import UnsupportedTokenizerError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.core.protocol import Special
    from tokjax.core.utf8 import Text


@short_repr
class PreTokens(NamedTuple):
    r"""Pre-tokens of one text.

    Attributes:
        strings: text of each pre-token, with invalid UTF-8 bytes as `\xNN`.
        offsets: 1-based half-open spans of UTF-8 bytes, `int64`, shape `(num_pretokens, 2)`, in the text that
            the offsets of the tokenizer refer to.
    """

    strings: tuple[str, ...]
    offsets: NDArray[np.int64]


@singledispatch
def pre_tokenize(
    tokenizer: Any,
    text: Text,  # noqa: ARG001 (types that register this function use it, and the options)
    *,
    allowed_special: Special = (),  # noqa: ARG001
    disallowed_special: Special = "all",  # noqa: ARG001
) -> PreTokens:
    """Splits a text into pre-tokens, as the tokenizer does before it looks up or merges tokens.

    No token crosses the bounds of a pre-token. Special and added tokens that are matched in the text are
    separate pre-tokens. Spaces that the tokenizer adds to the text are not in the result.

    Args:
        tokenizer: tokenizer of a type that pre-tokenizes: byte-level BPE, WordPiece, word level, unigram,
            `from_callable`, BPE of pieces with `split_words=True`, and tokenizers with a pre-tokenizer that
            run on the `tokenizers` library.
        text: `str` or `bytes`.
        allowed_special: as in `encode_batch_result`.
        disallowed_special: as in `encode_batch_result`.

    Returns:
        The pre-tokens. If the tokenizer normalizes texts before it splits them, as BERT's does, they are
        those of `tokenization_view(tokenizer, text)`.

    Raises:
        DisallowedSpecialTokenError: the text contains a disallowed special token.
        UnsupportedTokenizerError: the tokenizer encodes texts without splitting them first.

    >>> from tokjax import wordpiece
    >>> pretokens = pre_tokenize(wordpiece(["[UNK]"]), "Who's it?")
    >>> pretokens.strings
    ('who', "'", 's', 'it', '?')
    >>> pretokens.offsets[3].tolist()
    [7, 9]
    """
    get_vocabulary(tokenizer)  # raises for objects that are not tokenizers
    raise UnsupportedTokenizerError(
        f"pre_tokenize has no implementation for {type(tokenizer).__name__!r}; register it with "
        "@tokjax.pre_tokenize.register"
    )


def group_by_word(tokenizer: Any, text: Text, **special: Any) -> PreTokens:
    """Returns the pre-tokens of a text for a tokenizer whose word ids number them, and the added tokens."""
    check_text(text, "text", MANY_TEXTS_ADVICE)
    [result] = encode_texts(tokenizer, [text], add_special_tokens=False, **special)
    assert result.word_ids is not None
    assert result.offsets is not None
    is_first = np.diff(result.word_ids, prepend=-1) != 0
    is_last = np.append(is_first[1:], True)[: len(is_first)]
    spans = np.stack([result.offsets[is_first, 0], result.offsets[is_last, 1]], axis=1)
    is_normalized = result.metadata.offsets_reference == "tokenizer_normalized_text"
    data = to_utf8(normalize(tokenizer, text) if is_normalized else text)
    strings = tuple(format_token(data[start - 1 : stop - 1]) for start, stop in spans.tolist())
    return PreTokens(strings, spans)


def raise_without_pretokens(tokenizer: Any, reason: str) -> NoReturn:
    """Raises `UnsupportedTokenizerError` for a tokenizer that does not split texts before it encodes them."""
    raise UnsupportedTokenizerError(
        f"a {type(tokenizer).__name__} has no pre-tokens: {reason}; the word_ids of encode_result number the "
        "words of a text for every tokenizer"
    )
