"""Tokens written with `▁` for a blank, and `<0xNN>` for a byte, as SentencePiece writes them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tokjax.errors import InvalidArgumentError
from tokjax.models.engine.merge_rules import MergeRules, rules_of_merges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MARK = "▁"
"""Stands for a blank (U+2581)."""
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
BYTE_FORMS = [f"<0x{byte:02X}>" for byte in range(256)]


def bytes_of_piece(form: str) -> bytes:
    r"""What a token stands for in a text.

    >>> bytes_of_piece("▁é"), bytes_of_piece("<0xC3>")
    (b' \xc3\xa9', b'\xc3')
    """
    byte = _BYTE.fullmatch(form)
    return bytes([int(byte[1], 16)]) if byte else form.replace(MARK, " ").encode("utf-8")


def rules_of_pieces(ids: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> MergeRules:
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
    missing = [form for form in (MARK, *BYTE_FORMS) if form not in ids]
    if missing:
        raise InvalidArgumentError(
            f"tokens must hold {MARK!r} and every single byte as '<0xNN>', and have no {missing[0]!r} "
            f"({len(missing)} missing)"
        )
    of_bytes = {bytes([byte]): ids[form] for byte, form in enumerate(BYTE_FORMS)}
    of_characters: dict[bytes, int] = {}
    beginnings: dict[bytes, int] = {}
    in_characters: dict[tuple[bytes, bytes], None] = {}
    for form, id_ in ids.items():
        if len(form) == 1 and form != " ":
            character = bytes_of_piece(form)
            of_characters[character] = id_
            for stop in range(2, len(character) + 1):
                in_characters[character[: stop - 1], character[stop - 1 : stop]] = None
                beginnings[character[:stop]] = -1
    forms = _forms_in(merges, ids)
    of_merges = {bytes_of_piece(form): ids[form] for form in forms}
    pairs = [(bytes_of_piece(left), bytes_of_piece(right)) for left, right in merges]
    every_id = beginnings | of_bytes | of_characters | of_merges
    return rules_of_merges(every_id, [*in_characters, *pairs], whole_words=False)


def _forms_in(merges: Sequence[tuple[str, str]], ids: Mapping[str, int]) -> set[str]:
    """All tokens that merge, or that merging makes."""
    forms = {form for left, right in merges for form in (left, right, left + right)}
    for form in forms:
        if form not in ids or " " in form or _BYTE.fullmatch(form):
            left, right = next(merge for merge in merges if form in (*merge, "".join(merge)))
            about = f"there is no token {form!r}"
            if form in ids:
                about = f"{form!r} is no part of a text" + (f"; a blank is {MARK!r}" if " " in form else "")
            raise InvalidArgumentError(f"the merge of {left!r} and {right!r}: {about}")
    seen: set[tuple[str, str]] = set()
    for merge in merges:
        if merge in seen:
            raise InvalidArgumentError(f"the merge of {merge[0]!r} and {merge[1]!r} stands twice")
        seen.add(merge)
    return forms
