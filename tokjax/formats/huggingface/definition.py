"""What a `tokenizer.json` says, part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tokjax.core.template import EMPTY_TEMPLATE, Template, TemplatePiece, texts_in
from tokjax.errors import TokenizerFormatError
from tokjax.pretokenize.bytes_to_unicode import map_all_unicode_to_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PipelineSlot: TypeAlias = Literal["normalizer", "pre_tokenizer", "post_processor", "decoder"]
_SEQUENCE_FIELDS: dict[PipelineSlot, str] = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}


class RequiresLibraryError(Exception):
    """The tokenizer has to run on the library; the text says why."""


def is_byte_level(parts: Mapping[str, Any]) -> bool:
    """Returns whether the tokens of a definition are written as `bytes_to_unicode` writes bytes."""
    slots: tuple[PipelineSlot, ...] = ("normalizer", "pre_tokenizer", "decoder")
    return any(part.get("type") == "ByteLevel" for slot in slots for part in get_steps(parts, slot))


def get_steps(contents: Mapping[str, Any], slot: PipelineSlot) -> list[dict[str, Any]]:
    """The steps at one place of a definition; sequences are taken apart.

    What is no step has the type that it is, which no step of the library has.

    Args:
        contents: the definition.
        slot: where they stand.
    """
    part = contents.get(slot)
    return [] if part is None else _flatten_steps(part, _SEQUENCE_FIELDS[slot])


def _flatten_steps(part: Any, listed: str) -> list[dict[str, Any]]:
    if not isinstance(part, dict):
        return [{"type": repr(part)[:60]}]
    if part.get("type") == "Sequence" and isinstance(part.get(listed), list):
        return [step for inner in part[listed] for step in _flatten_steps(inner, listed)]
    return [part]


def get_flag(part: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """A flag of a part of a definition.

    Raises:
        RequiresLibraryError: it is neither true nor false.
    """
    value = part.get(name, default)
    if not isinstance(value, bool):
        raise RequiresLibraryError(f"{name} is {value!r}")
    return value


def decode_byte_level_forms(forms: Mapping[str, int]) -> dict[bytes, int]:
    """The bytes and ids of tokens that are written in stand-ins for bytes.

    A token with a character that stands for none can't come of any text: its bytes are those of its form.

    Args:
        forms: token to id.

    Raises:
        TokenizerFormatError: two tokens have the same bytes.
    """
    tokens = [
        form.encode("utf-8", "surrogatepass") if token is None else token
        for form, token in zip(forms, map_all_unicode_to_bytes(forms), strict=True)
    ]
    ordinary = dict(zip(tokens, forms.values(), strict=True))
    if len(ordinary) < len(tokens):
        owner: dict[bytes, int] = {}
        for token, id_ in zip(tokens, forms.values(), strict=True):
            if token in owner:
                raise TokenizerFormatError(f"ids {owner[token]} and {id_} are both for the bytes {token!r}")
            owner[token] = id_
    return ordinary


def merge_added_tokens(
    ordinary: Mapping[bytes, int], added_tokens: Mapping[str, int]
) -> tuple[dict[bytes, int], dict[str, int]]:
    """Tokens and added ones; and those added ones whose bytes are another token's, too, by themselves."""
    duplicate_token_ids = {
        name: id_ for name, id_ in added_tokens.items() if ordinary.get(name.encode("utf-8"), id_) != id_
    }
    alone = {
        name.encode("utf-8"): id_ for name, id_ in added_tokens.items() if name not in duplicate_token_ids
    }
    return {**ordinary, **alone}, duplicate_token_ids


def get_unknown_token(parts: Mapping[str, Any]) -> str | None:
    """The token that a definition's model has for the unknown, if any."""
    model = parts["model"]
    if model.get("unk_id") is not None:  # (of a unigram model, whose vocabulary is a list)
        return str(model["vocab"][model["unk_id"]][0])
    unknown: str | None = model.get("unk_token")
    return unknown


def encode_forms(forms: Mapping[str, int]) -> dict[bytes, int]:
    """The bytes and ids of tokens that are written as they are."""
    try:
        tokens = list(map(str.encode, forms))
    except UnicodeEncodeError:
        tokens = [form.encode("utf-8", "surrogatepass") for form in forms]
    return dict(zip(tokens, forms.values(), strict=True))


def parse_template(contents: Mapping[str, Any], special: Mapping[str, int]) -> Template:
    """What the definition puts around texts.

    Raises:
        RequiresLibraryError: it is put there in another way than tokjax does.
    """
    templates = [
        template
        for part in get_steps(contents, "post_processor")
        if (template := _parse_template_step(part, special)) is not None
    ]
    if len(templates) > 1:
        raise RequiresLibraryError("it has several post-processors that put tokens around texts")
    template = templates[0] if templates else EMPTY_TEMPLATE
    if texts_in(template.single) != [0]:
        raise TokenizerFormatError("the single template of its post-processor must hold the text A once")
    if texts_in(template.pair) != [0, 1]:
        template = Template(template.single, ())
    for token in template.tokens:
        if token not in special:
            raise RequiresLibraryError(f"it puts {token!r} around texts, which is no special token")
    return template


def _parse_template_step(part: Mapping[str, Any], special: Mapping[str, int]) -> Template | None:
    kind = part.get("type")
    if kind == "ByteLevel":
        return None
    if kind == "TemplateProcessing":
        return Template(
            *(
                _parse_template_pieces(part[name], part["special_tokens"], special)
                for name in ("single", "pair")
            )
        )
    if kind in ("BertProcessing", "RobertaProcessing"):
        names_by_id = {id_: name for name, id_ in special.items()}
        sep, cls = (_get_token_name(part[slot][1], names_by_id) for slot in ("sep", "cls"))
        first = TemplatePiece(None, cls, 0), TemplatePiece(0, None, 0), TemplatePiece(None, sep, 0)
        if kind == "BertProcessing":
            return Template(first, (*first, TemplatePiece(1, None, 1), TemplatePiece(None, sep, 1)))
        return Template(
            first,
            (*first, TemplatePiece(None, sep, 0), TemplatePiece(1, None, 0), TemplatePiece(None, sep, 0)),
        )
    raise RequiresLibraryError(f"its post-processor is {kind}")


def _parse_template_pieces(
    pieces: Sequence[Mapping[str, Any]], inserted: Mapping[str, Any], special: Mapping[str, int]
) -> tuple[TemplatePiece, ...]:
    names_by_id = {id_: name for name, id_ in special.items()}
    slots: list[TemplatePiece] = []
    for piece in pieces:
        [(kind, about)] = piece.items()
        if kind == "Sequence":
            slots.append(TemplatePiece({"A": 0, "B": 1}[about["id"]], None, about["type_id"]))
            continue
        ids = inserted[about["id"]]["ids"]
        slots += [TemplatePiece(None, _get_token_name(id_, names_by_id), about["type_id"]) for id_ in ids]
    for slot in slots:
        if not isinstance(slot.type_id, int) or not 0 <= slot.type_id < 1 << 31:
            raise TokenizerFormatError(f"a template of its post-processor has the type id {slot.type_id!r}")
    return tuple(slots)


def _get_token_name(id_: Any, names_by_id: Mapping[int, str]) -> str:
    if id_ not in names_by_id:
        raise RequiresLibraryError(f"it puts id {id_} around texts, which is no special token")
    return names_by_id[id_]
