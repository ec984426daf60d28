"""What a `tokenizer.json` says, part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokjax.errors import TokenizerFormatError
from tokjax.text.byte_alphabet import from_stand_ins

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def is_byte_level(parts: Mapping[str, Any]) -> bool:
    """Whether the tokens of a definition are written in stand-ins for bytes."""
    return any(part.get("type") == "ByteLevel" for part in parts_in(parts.get("decoder")))


def parts_in(part: Any) -> list[dict[str, Any]]:
    """A normaliser, pre-tokenizer, post-processor or decoder of a definition; of a sequence, all in it."""
    if not isinstance(part, dict):
        return []
    for name in ("normalizers", "pretokenizers", "decoders", "processors"):
        if name in part:
            return [single for inner in part[name] for single in parts_in(inner)]
    return [part]


def bytes_of_forms(forms: Mapping[str, int], plain: Collection[str]) -> dict[bytes, int]:
    """The bytes and ids of tokens that are written in stand-ins for bytes.

    A token with a character that stands for none can't come of any text: its bytes are those of its form.

    Args:
        forms: token to id.
        plain: tokens that are written as they are.

    Raises:
        TokenizerFormatError: two tokens have the same bytes.
    """
    ordinary: dict[bytes, int] = {}
    for form, id_ in forms.items():
        token = None if form in plain else from_stand_ins(form)
        if token is None:
            token = form.encode("utf-8", "surrogatepass")
        if token in ordinary:
            raise TokenizerFormatError(f"ids {ordinary[token]} and {id_} are both for the bytes {token!r}")
        ordinary[token] = id_
    return ordinary


def unknown_token(parts: Mapping[str, Any]) -> str | None:
    """The token that a definition's model has for the unknown, if any."""
    model = parts["model"]
    if model.get("unk_id") is not None:  # (of a unigram model, whose vocabulary is a list)
        return str(model["vocab"][model["unk_id"]][0])
    unknown: str | None = model.get("unk_token")
    return unknown


def in_utf8(forms: Mapping[str, int]) -> dict[bytes, int]:
    """The bytes and ids of tokens that are written as they are."""
    return {form.encode("utf-8", "surrogatepass"): id_ for form, id_ in forms.items()}
