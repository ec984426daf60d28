"""Text in the written form of SentencePiece: `▁` for a space, `<0xNN>` for a byte, and added spaces."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tokjax.bpe.chunks import Corrections
from tokjax.bpe.merge_rules import MergeRules, RulesTooLargeError, check_merges, make_rules_from_merges
from tokjax.core.utf8 import count_bytes
from tokjax.errors import InvalidArgumentError
from tokjax.pretokenize.special_tokens import WHITE_SPACE

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import EncodedSegments, Segments
    from tokjax.core.vocabulary import Vocabulary


TrimOffsets = Literal["all", "but_first"]
TRIM_OFFSETS_VALUES: tuple[TrimOffsets | None, ...] = ("all", "but_first", None)


def prepend_spaces(segments: Segments) -> Segments:
    """Returns segments with a space before each one that is not empty and does not begin with a space."""
    texts = [text if not text or text.startswith(" ") else " " + text for text in segments.texts]
    return segments._replace(texts=texts)


def compute_prefix_corrections(
    encoded: EncodedSegments, segments: Segments, spaced_segments: Segments, byte_lengths: NDArray[np.int64]
) -> Corrections:
    """Computes the length corrections for the first ids of segments that got a space prepended.

    The prepended space is not in the text, so the first token spans one byte less than it has. If the space
    is a separate token, its span is empty.

    Args:
        encoded: ids of the segments with prepended spaces.
        segments: segments as they are in the text.
        spaced_segments: the same segments, with a space before some of them.
        byte_lengths: number of bytes per token id, `int64`, shape `(size,)`.
    """
    has_prefix = (len(new) > len(old) for old, new in zip(segments.texts, spaced_segments.texts, strict=True))
    prefixed = np.flatnonzero(np.fromiter(has_prefix, bool, len(segments.texts)))
    positions = encoded.splits.take(prefixed)
    return Corrections(positions, byte_lengths.take(encoded.ids.take(positions)) - 1)


class TokenSpaces(NamedTuple):
    """Number of spaces at the start and end of each token of a vocabulary.

    Attributes:
        leading: number of spaces at the start of each token, `int64`, shape `(size,)`.
        trailing: number of spaces at the end of each token, `int64`, shape `(size,)`.
        all_spaces: whether a token consists of spaces only, `bool`, shape `(size,)`.
    """

    leading: NDArray[np.int64]
    trailing: NDArray[np.int64]
    all_spaces: NDArray[np.bool_]

    def trim_spans(
        self,
        ids: NDArray[np.int32],
        offsets: NDArray[np.int64],
        matched: Mapping[int, bytes],
        trim_offsets: TrimOffsets,
    ) -> NDArray[np.int64]:
        """Returns spans without leading and trailing spaces of tokens, like Hugging Face's `trim_offsets`.

        Args:
            ids: token ids, inserted tokens included, `int32`, shape `(n,)`.
            offsets: 1-based half-open byte spans of the tokens, `int64`, shape `(n, 2)`.
            matched: position of each special or added token that was matched in a text, mapped to the bytes
                of its span. All whitespace is trimmed from these, not only spaces.
            trim_offsets: `"all"`, or `"but_first"` to keep a single space where a text begins.
        """
        starts, stops = offsets[:, 0], offsets[:, 1]
        leading, trailing, all_spaces = (
            self.leading.take(ids),
            self.trailing.take(ids),
            self.all_spaces.take(ids),
        )
        single = leading == 1
        for position, data in matched.items():
            text = data.decode("utf-8")
            leading[position] = len(data) - count_bytes(text.lstrip(WHITE_SPACE))
            trailing[position] = len(data) - count_bytes(text.rstrip(WHITE_SPACE))
            all_spaces[position] = leading[position] == len(data)
            single[position] = len(text) - len(text.lstrip(WHITE_SPACE)) == 1
        keeps_space = (starts <= 1) & single & (trim_offsets == "but_first")
        leading[keeps_space] = 0
        first = np.where(all_spaces & ~keeps_space, stops, np.minimum(starts + leading, stops))
        last = np.where(stops > trailing, np.maximum(stops - trailing, first), stops)
        return np.stack([first, np.where(all_spaces, first, last)], axis=1)


def count_token_spaces(vocabulary: Vocabulary) -> TokenSpaces:
    """Counts the spaces at the start and end of each token of a vocabulary."""
    leading, trailing = (np.zeros(vocabulary.size, np.int64) for _ in range(2))
    all_spaces = np.zeros(vocabulary.size, bool)
    for id_, token in vocabulary.bytes_by_id.items():
        leading[id_] = len(token) - len(token.lstrip(b" "))
        trailing[id_] = len(token) - len(token.rstrip(b" "))
        all_spaces[id_] = leading[id_] == len(token)
    return TokenSpaces(leading, trailing, all_spaces)


METASPACE = "▁"
"""Character that is written for a space in tokens (U+2581)."""
_NOT_IN_UTF8 = b"\xff"
_SEPARATOR = "\ud800"  # a lone surrogate, which no token contains
BYTE_FORMS = [f"<0x{byte:02X}>" for byte in range(256)]
_BYTES_BY_FORM = {form: bytes([byte]) for byte, form in enumerate(BYTE_FORMS)}


def decode_piece(form: str) -> bytes:
    r"""Returns the bytes of text that a token stands for.

    >>> decode_piece("▁é"), decode_piece("<0xC3>")
    (b' \xc3\xa9', b'\xc3')
    """
    byte = _BYTES_BY_FORM.get(form)
    return form.replace(METASPACE, " ").encode("utf-8") if byte is None else byte


def make_rules_from_pieces(ids: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> MergeRules:
    """Makes merge rules over bytes with the same result as Hugging Face's BPE with byte fallback.

    The library merges characters, and falls back to byte tokens for a character that is not in the
    vocabulary. The engine starts from bytes. So extra merges come before all others. They build each
    character of the vocabulary from its bytes, from the left:

        character   bytes       extra merges
        "é"         C3 A9       (C3, A9)
        "日"         E6 97 A5    (E6, 97), (E6 97, A5)

    The bytes of one character never merge with those of another this way. If a character is not in the
    vocabulary, the extra merges may build a part of it; such a part has no id and becomes byte tokens again.

    Args:
        ids: token to id, with all tokens that `list_missing_forms` checks. Tokens of one character are the
            characters that need no byte fallback.
        merges: pairs of tokens, in order of priority.

    Raises:
        InvalidArgumentError: one of these tokens is missing; or a part or the result of a merge is not a
            token, is a byte token, or contains a space; or a merge is a duplicate.
    """
    missing = list_missing_forms(ids)
    if missing:
        raise InvalidArgumentError(
            f"tokens must contain {METASPACE!r} and every byte as '<0xNN>'; {missing[0]!r} is missing "
            f"({len(missing)} in all)"
        )
    byte_ids = {bytes([byte]): ids[form] for byte, form in enumerate(BYTE_FORMS) if form in ids}
    partial_character_ids: dict[bytes, int] = {}
    character_merges: dict[tuple[bytes, bytes], None] = {}
    for form in ids:
        if len(form) == 1 and form != " ":
            character = decode_piece(form)
            for stop in range(2, len(character) + 1):
                character_merges[character[: stop - 1], character[stop - 1 : stop]] = None
                partial_character_ids[character[:stop]] = -1  # no token; replaced below if it is one
    text_forms = [form for form in ids if " " not in form and form not in _BYTES_BY_FORM]
    tokens = dict(zip(text_forms, _decode_pieces(text_forms), strict=True))
    try:
        # Share one bytes object per token: its hash is computed only once, and memory is saved.
        lefts, rights = (list(map(tokens.__getitem__, map(itemgetter(side), merges))) for side in (0, 1))
        all_ids = partial_character_ids | byte_ids | {token: ids[form] for form, token in tokens.items()}
        pairs = [*character_merges, *zip(lefts, rights, strict=True)]
        rules = make_rules_from_merges(all_ids, pairs, ignore_merges=False)
        return replace(rules, num_character_merges=len(character_merges))
    except RulesTooLargeError:
        raise
    except (KeyError, InvalidArgumentError):
        check_merges(merges, partial(_find_merge_problem, ids))
        raise


def list_missing_forms(forms: Container[str]) -> list[str]:
    """Returns `▁` and those byte tokens that are not in a vocabulary, although a text can need them.

    An ASCII character is one byte, which no other character has. If the character is a token, its byte token
    is not needed: Gemini's vocabulary has a tab, and no `<0x09>`.

    Args:
        forms: tokens in written form.
    """
    return [METASPACE] * (METASPACE not in forms) + [
        form
        for byte, form in enumerate(BYTE_FORMS)
        if form not in forms and (byte >= 0x80 or chr(byte).replace(" ", METASPACE) not in forms)
    ]


def build_piece_bytes(vocabulary: Vocabulary) -> list[bytes]:
    """Returns the bytes of text that each id stands for, as in `decode_piece`; `b""` for unused ids."""
    pieces = [b""] * vocabulary.size
    tokens = _NOT_IN_UTF8.join(vocabulary.bytes_by_id.values()).replace(METASPACE.encode("utf-8"), b" ")
    for id_, token in zip(vocabulary.bytes_by_id, tokens.split(_NOT_IN_UTF8), strict=True):
        pieces[id_] = token
    for form, byte in _BYTES_BY_FORM.items():
        ordinary_id = vocabulary.ordinary.get(form.encode("utf-8"))
        for token_id in (ordinary_id, vocabulary.special.get(form), vocabulary.duplicate_token_ids.get(form)):
            if token_id is not None:
                pieces[token_id] = byte
    return pieces


def _decode_pieces(forms: list[str]) -> list[bytes]:
    """Returns the bytes of text that many tokens stand for. None of them may be a byte token.

    The tokens are concatenated, so that they are decoded by a few calls.
    """
    text = _SEPARATOR.join(forms).replace(METASPACE, " ")
    return text.encode("utf-8", "surrogatepass").split(_SEPARATOR.encode("utf-8", "surrogatepass"))


def _find_merge_problem(ids: Mapping[str, int], left: str, right: str) -> str | None:
    for form in (left, right, left + right):
        if form not in ids:
            return f"there is no token {form!r}"
        if " " in form or form in _BYTES_BY_FORM:
            return f"{form!r} can't be part of a text" + f"; write {METASPACE!r} for a space" * (" " in form)
    return None
