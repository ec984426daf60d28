"""GPT-2's printable stand-ins for bytes, in which its vocabularies and Hugging Face's are written."""

from __future__ import annotations

_PRINTABLE = (*range(33, 127), *range(161, 173), *range(174, 256))
_OTHERS = tuple(byte for byte in range(256) if byte not in _PRINTABLE)
_CHARACTERS = {byte: chr(byte) for byte in _PRINTABLE} | {
    byte: chr(256 + i) for i, byte in enumerate(_OTHERS)
}
_NONE = "\uffff"
_BYTES = dict.fromkeys(range(256), _NONE)
_BYTES |= {ord(character): chr(byte) for byte, character in _CHARACTERS.items()}


def to_stand_ins(token: bytes) -> str:
    """The characters that stand for bytes.

    >>> to_stand_ins(b" the")
    'Ġthe'
    """
    return token.decode("latin-1").translate(_CHARACTERS)


def from_stand_ins(form: str) -> bytes | None:
    """The bytes that characters stand for; `None` if one stands for none.

    >>> from_stand_ins("Ġthe"), from_stand_ins("日")
    (b' the', None)
    """
    try:
        return form.translate(_BYTES).encode("latin-1")
    except UnicodeEncodeError:
        return None
