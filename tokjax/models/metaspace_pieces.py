"""Tokens written with `▁` for a blank, and `<0xNN>` for a byte, as SentencePiece writes them."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NoReturn

from tokjax.bpe.merge_rules import MergeRules, RulesTooLargeError, make_rules_from_merges
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.core.vocabulary import Vocabulary

METASPACE = "▁"
"""Stands for a blank (U+2581)."""
_NO_UTF8 = b"\xff"
_SEPARATOR = "\ud800"  # a lone surrogate: part of no token
BYTE_FORMS = [f"<0x{byte:02X}>" for byte in range(256)]
_BYTES_BY_FORM = {form: bytes([byte]) for byte, form in enumerate(BYTE_FORMS)}


def decode_piece(form: str) -> bytes:
    r"""What a token stands for in a text.

    >>> decode_piece("▁é"), decode_piece("<0xC3>")
    (b' \xc3\xa9', b'\xc3')
    """
    byte = _BYTES_BY_FORM.get(form)
    return form.replace(METASPACE, " ").encode("utf-8") if byte is None else byte


def make_rules_from_pieces(ids: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> MergeRules:
    """The rule of Hugging Face's BPE with byte fallback, as one that begins with bytes.

    There characters merge. A character of the vocabulary is made of its bytes first: by merges of its own
    before all others, from the left, which can't meet those of other characters. What they leave of a
    character that the vocabulary has not falls apart into bytes again.

    Args:
        ids: token to id, `▁` and every single byte among them; tokens of one character are characters that
            need no bytes.
        merges: pairs of tokens, in order.

    Raises:
        InvalidArgumentError: the mark or a byte has no id; or a merge has a part, or makes a token, that
            there is not, or that is a byte or holds a blank, or it stands twice.
    """
    missing = [form for form in (METASPACE, *BYTE_FORMS) if form not in ids]
    if missing:
        raise InvalidArgumentError(
            f"tokens must hold {METASPACE!r} and every single byte as '<0xNN>', and have no {missing[0]!r} "
            f"({len(missing)} missing)"
        )
    byte_ids = {bytes([byte]): ids[form] for byte, form in enumerate(BYTE_FORMS)}
    beginnings: dict[bytes, int] = {}
    in_characters: dict[tuple[bytes, bytes], None] = {}
    for form in ids:
        if len(form) == 1 and form != " ":
            character = decode_piece(form)
            for stop in range(2, len(character) + 1):
                in_characters[character[: stop - 1], character[stop - 1 : stop]] = None
                beginnings[character[:stop]] = -1
    plain = [form for form in ids if " " not in form and form not in _BYTES_BY_FORM]
    tokens = dict(zip(plain, _decode_pieces(plain), strict=True))
    try:
        # Equal tokens become one object each: hashes are computed once, and memory is saved.
        lefts, rights = (list(map(tokens.__getitem__, map(itemgetter(side), merges))) for side in (0, 1))
        every_id = beginnings | byte_ids | {token: ids[form] for form, token in tokens.items()}
        pairs = [*in_characters, *zip(lefts, rights, strict=True)]
        return make_rules_from_merges(every_id, pairs, ignore_merges=False)
    except RulesTooLargeError:
        raise
    except (KeyError, InvalidArgumentError):
        _reject_merges(merges, ids)


def build_piece_bytes(vocabulary: Vocabulary) -> list[bytes]:
    """Returns what each id stands for in a text, as in `decode_piece`; `b""` where there is no token."""
    pieces = [b""] * vocabulary.size
    tokens = _NO_UTF8.join(vocabulary.bytes_by_id.values()).replace(METASPACE.encode("utf-8"), b" ")
    for id_, token in zip(vocabulary.bytes_by_id, tokens.split(_NO_UTF8), strict=True):
        pieces[id_] = token
    for form, byte in _BYTES_BY_FORM.items():
        in_ordinary = vocabulary.ordinary.get(form.encode("utf-8"))
        for found in (in_ordinary, vocabulary.special.get(form), vocabulary.duplicate_token_ids.get(form)):
            if found is not None:
                pieces[found] = byte
    return pieces


def _decode_pieces(forms: list[str]) -> list[bytes]:
    """Returns what many tokens, none of them a byte, stand for in a text: all of them as one string."""
    text = _SEPARATOR.join(forms).replace(METASPACE, " ")
    return text.encode("utf-8", "surrogatepass").split(_SEPARATOR.encode("utf-8", "surrogatepass"))


def _reject_merges(merges: Sequence[tuple[str, str]], ids: Mapping[str, int]) -> NoReturn:
    """Raises `InvalidArgumentError` for the first merge that is wrong, of which there is one."""
    seen: set[tuple[str, str]] = set()
    for left, right in merges:
        for form in (left, right, left + right):
            about = f"there is no token {form!r}"
            if form in ids:
                about = f"{form!r} is no part of a text" + (
                    f"; a blank is {METASPACE!r}" if " " in form else ""
                )
            if form not in ids or " " in form or form in _BYTES_BY_FORM:
                raise InvalidArgumentError(f"the merge of {left!r} and {right!r}: {about}")
        if (left, right) in seen:
            break
        seen.add((left, right))
    raise InvalidArgumentError(f"the merge of {left!r} and {right!r} stands twice")
