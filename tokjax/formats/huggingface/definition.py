"""What a `tokenizer.json` says, part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tokjax.core.errors import TokenizerFormatError
from tokjax.core.template import NOTHING_AROUND, Place, Template
from tokjax.pretokenize.bytes_to_unicode import all_from_stand_ins

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

StepPlace: TypeAlias = Literal["normalizer", "pre_tokenizer", "post_processor", "decoder"]
_IN_A_SEQUENCE: dict[StepPlace, str] = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}


class NotOursError(Exception):
    """The tokenizer has to run on the library; the text says why."""


def is_byte_level(parts: Mapping[str, Any]) -> bool:
    """Returns whether the tokens of a definition are written as `bytes_to_unicode` writes bytes."""
    places: tuple[StepPlace, ...] = ("normalizer", "pre_tokenizer", "decoder")
    return any(part.get("type") == "ByteLevel" for place in places for part in parts_of(parts, place))


def parts_of(contents: Mapping[str, Any], place: StepPlace) -> list[dict[str, Any]]:
    """The steps at one place of a definition; sequences are taken apart.

    What is no step has the type that it is, which no step of the library has.

    Args:
        contents: the definition.
        place: where they stand.
    """
    part = contents.get(place)
    return [] if part is None else _steps(part, _IN_A_SEQUENCE[place])


def _steps(part: Any, listed: str) -> list[dict[str, Any]]:
    if not isinstance(part, dict):
        return [{"type": repr(part)[:60]}]
    if part.get("type") == "Sequence" and isinstance(part.get(listed), list):
        return [step for inner in part[listed] for step in _steps(inner, listed)]
    return [part]


def flag_of(part: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """A flag of a part of a definition.

    Raises:
        NotOursError: it is neither true nor false.
    """
    value = part.get(name, default)
    if not isinstance(value, bool):
        raise NotOursError(f"{name} is {value!r}")
    return value


def bytes_of_forms(forms: Mapping[str, int]) -> dict[bytes, int]:
    """The bytes and ids of tokens that are written in stand-ins for bytes.

    A token with a character that stands for none can't come of any text: its bytes are those of its form.

    Args:
        forms: token to id.

    Raises:
        TokenizerFormatError: two tokens have the same bytes.
    """
    tokens = [
        form.encode("utf-8", "surrogatepass") if token is None else token
        for form, token in zip(forms, all_from_stand_ins(forms), strict=True)
    ]
    ordinary = dict(zip(tokens, forms.values(), strict=True))
    if len(ordinary) < len(tokens):
        owner: dict[bytes, int] = {}
        for token, id_ in zip(tokens, forms.values(), strict=True):
            if token in owner:
                raise TokenizerFormatError(f"ids {owner[token]} and {id_} are both for the bytes {token!r}")
            owner[token] = id_
    return ordinary


def with_added(
    ordinary: Mapping[bytes, int], added: Mapping[str, int]
) -> tuple[dict[bytes, int], dict[str, int]]:
    """Tokens and added ones; and those added ones whose bytes are another token's, too, by themselves."""
    twins = {name: id_ for name, id_ in added.items() if ordinary.get(name.encode("utf-8"), id_) != id_}
    alone = {name.encode("utf-8"): id_ for name, id_ in added.items() if name not in twins}
    return {**ordinary, **alone}, twins


def unknown_token(parts: Mapping[str, Any]) -> str | None:
    """The token that a definition's model has for the unknown, if any."""
    model = parts["model"]
    if model.get("unk_id") is not None:  # (of a unigram model, whose vocabulary is a list)
        return str(model["vocab"][model["unk_id"]][0])
    unknown: str | None = model.get("unk_token")
    return unknown


def in_utf8(forms: Mapping[str, int]) -> dict[bytes, int]:
    """The bytes and ids of tokens that are written as they are."""
    try:
        tokens = list(map(str.encode, forms))
    except UnicodeEncodeError:
        tokens = [form.encode("utf-8", "surrogatepass") for form in forms]
    return dict(zip(tokens, forms.values(), strict=True))


def template_of(contents: Mapping[str, Any], special: Mapping[str, int]) -> Template:
    """What the definition puts around texts.

    Raises:
        NotOursError: it is put there in another way than tokjax does.
    """
    templates = [
        template
        for part in parts_of(contents, "post_processor")
        if (template := _template_of_part(part, special)) is not None
    ]
    if len(templates) > 1:
        raise NotOursError("it has several post-processors that put tokens around texts")
    template = templates[0] if templates else NOTHING_AROUND
    if _texts_in(template.single) != [0]:
        raise TokenizerFormatError("the single template of its post-processor must hold the text A once")
    if _texts_in(template.pair) != [0, 1]:
        template = Template(template.single, ())
    for place in (*template.single, *template.pair):
        if place.token is not None and place.token not in special:
            raise NotOursError(f"it puts {place.token!r} around texts, which is no special token")
    return template


def _texts_in(places: Sequence[Place]) -> list[int]:
    return sorted(place.text for place in places if place.text is not None)


def _template_of_part(part: Mapping[str, Any], special: Mapping[str, int]) -> Template | None:
    kind = part.get("type")
    if kind == "ByteLevel":
        return None
    if kind == "TemplateProcessing":
        return Template(
            *(_places(part[name], part["special_tokens"], special) for name in ("single", "pair"))
        )
    if kind in ("BertProcessing", "RobertaProcessing"):
        name_of = {id_: name for name, id_ in special.items()}
        sep, cls = (_name_of(part[place][1], name_of) for place in ("sep", "cls"))
        first = Place(None, cls, 0), Place(0, None, 0), Place(None, sep, 0)
        if kind == "BertProcessing":
            return Template(first, (*first, Place(1, None, 1), Place(None, sep, 1)))
        return Template(first, (*first, Place(None, sep, 0), Place(1, None, 0), Place(None, sep, 0)))
    raise NotOursError(f"its post-processor is {kind}")


def _places(
    pieces: Sequence[Mapping[str, Any]], inserted: Mapping[str, Any], special: Mapping[str, int]
) -> tuple[Place, ...]:
    name_of = {id_: name for name, id_ in special.items()}
    places: list[Place] = []
    for piece in pieces:
        [(kind, about)] = piece.items()
        if kind == "Sequence":
            places.append(Place({"A": 0, "B": 1}[about["id"]], None, about["type_id"]))
            continue
        ids = inserted[about["id"]]["ids"]
        places += [Place(None, _name_of(id_, name_of), about["type_id"]) for id_ in ids]
    for place in places:
        if not isinstance(place.type_id, int) or not 0 <= place.type_id < 1 << 31:
            raise TokenizerFormatError(f"a template of its post-processor has the type id {place.type_id!r}")
    return tuple(places)


def _name_of(id_: Any, name_of: Mapping[int, str]) -> str:
    if id_ not in name_of:
        raise NotOursError(f"it puts id {id_} around texts, which is no special token")
    return name_of[id_]
