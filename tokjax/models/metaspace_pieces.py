"""Tokens in the written form of SentencePiece: `▁` for a space, and `<0xNN>` for a byte."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NoReturn

from tokjax.bpe.merge_rules import MergeRules, RulesTooLargeError, make_rules_from_merges
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.core.vocabulary import Vocabulary

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
        ids: token to id, with `▁` and every single byte. Tokens of one character are the characters that need
            no byte fallback.
        merges: pairs of tokens, in order of priority.

    Raises:
        InvalidArgumentError: `▁` or a byte has no id; or a part or the result of a merge is not a token, is a
            byte token, or contains a space; or a merge is a duplicate.
    """
    missing = [form for form in (METASPACE, *BYTE_FORMS) if form not in ids]
    if missing:
        raise InvalidArgumentError(
            f"tokens must contain {METASPACE!r} and every byte as '<0xNN>'; {missing[0]!r} is missing "
            f"({len(missing)} in all)"
        )
    byte_ids = {bytes([byte]): ids[form] for byte, form in enumerate(BYTE_FORMS)}
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
        return make_rules_from_merges(all_ids, pairs, ignore_merges=False)
    except RulesTooLargeError:
        raise
    except (KeyError, InvalidArgumentError):
        _reject_merges(merges, ids)


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


def _reject_merges(merges: Sequence[tuple[str, str]], ids: Mapping[str, int]) -> NoReturn:
    """Raises `InvalidArgumentError` for the first invalid merge. At least one must be invalid."""
    seen: set[tuple[str, str]] = set()
    for left, right in merges:
        for form in (left, right, left + right):
            about = f"there is no token {form!r}"
            if form in ids:
                about = f"{form!r} can't be part of a text" + (
                    f"; write {METASPACE!r} for a space" if " " in form else ""
                )
            if form not in ids or " " in form or form in _BYTES_BY_FORM:
                raise InvalidArgumentError(f"the merge of {left!r} and {right!r}: {about}")
        if (left, right) in seen:
            break
        seen.add((left, right))
    raise InvalidArgumentError(f"duplicate merge of {left!r} and {right!r}")
