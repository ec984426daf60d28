"""What a `tokenizer.json` says, part by part."""

from __future__ import annotations

import base64
import re
from itertools import chain, product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from tokjax.core.template import EMPTY_TEMPLATE, Template, TemplatePiece, list_text_indices
from tokjax.core.vocabulary import AddedToken, make_vocabulary
from tokjax.errors import TokenizerFormatError, UnsupportedTokenizerError
from tokjax.formats.tokenizer_files import resolve_roles
from tokjax.models.sentencepiece_files import check_text_growth, compute_longest_replacement
from tokjax.pretokenize.bytes_to_unicode import map_all_unicode_to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tokjax.core.vocabulary import Role, Vocabulary
    from tokjax.models.metaspace import TrimOffsets


_MAX_COMPARED = 1 << 20


class AddedTokens(NamedTuple):
    """Tokens that are found in a text before it is split.

    Attributes:
        special: name to id of special ones.
        ordinary: name to id of others.
        flags: all that are no special ones, and those that take white space with them.
    """

    special: dict[str, int]
    ordinary: dict[str, int]
    flags: dict[str, AddedToken]


def parse_added_tokens(contents: Mapping[str, Any], *, normalizes: bool) -> AddedTokens:
    """The added tokens of a definition.

    Args:
        contents: the definition.
        normalizes: whether texts are normalised before they are split.

    Raises:
        RequiresLibraryError: one of them is found in another way than tokjax does.
        TokenizerFormatError: one of them has no name or no id.
    """
    tokens = contents.get("added_tokens") or []
    found = AddedTokens({}, {}, {})
    for token in tokens:
        name, id_ = token.get("content"), token.get("id")
        if not isinstance(name, str) or not name or not isinstance(id_, int) or isinstance(id_, bool):
            raise TokenizerFormatError(f"an added token has the content {name!r} and the id {id_!r}")
        if name in found.special or name in found.ordinary:
            raise RequiresLibraryError(f"the added token {name!r} stands twice")
        if get_flag(token, "single_word"):
            raise RequiresLibraryError(f"the added token {name!r} is found as a whole word only")
        if get_flag(token, "normalized") and normalizes:
            raise RequiresLibraryError(f"the added token {name!r} is found in normalised text")
        is_special = get_flag(token, "special")
        (found.special if is_special else found.ordinary)[name] = id_
        flags = AddedToken(get_flag(token, "lstrip"), get_flag(token, "rstrip"))
        if any(flags) or not is_special:
            found.flags[name] = flags
    if any(map(any, found.flags.values())):
        for name in (*found.special, *found.ordinary):
            if name != name.strip():
                raise RequiresLibraryError(
                    f"added tokens take white space with them, and {name!r} begins or ends with some"
                )
    _check_match_order(tokens)
    return found


def check_added_ids(tokens: Sequence[Mapping[str, Any]], forms: Mapping[str, int]) -> None:
    """Refuse added tokens that get other ids from the library than the definition says.

    It gives those that are not in the model's vocabulary the next ids after it.

    Args:
        tokens: the added tokens, in the order of the definition.
        forms: the model's vocabulary.
    """
    last = -1
    for token in tokens:
        name, id_ = token["content"], token["id"]
        assigned_id = forms.get(name, max(last + 1, len(forms)))
        if assigned_id != id_:
            raise RequiresLibraryError(
                f"the added token {name!r} has the id {id_}, and the library gives it {assigned_id}"
            )
        last = max(last, assigned_id)


def build_definition_vocabulary(
    contents: Mapping[str, Any],
    ordinary: Mapping[bytes, int],
    added_tokens: AddedTokens,
    roles: Mapping[Role, str],
    duplicate_token_ids: Mapping[str, int] | None = None,
) -> Vocabulary:
    """The vocabulary of a definition, with what it puts around texts.

    Args:
        contents: the definition.
        ordinary: bytes to id, of all tokens that are not special.
        added_tokens: those that are found in a text before it is split.
        roles: which tokens have which role, those of them that are special.
        duplicate_token_ids: as in `make_vocabulary`.

    Raises:
        RequiresLibraryError: something is put around texts in another way than tokjax does.
    """
    return make_vocabulary(
        ordinary,
        added_tokens.special,
        resolve_roles(added_tokens.special, {}, roles),
        parse_template(contents, added_tokens.special),
        added_tokens.flags,
        duplicate_token_ids,
    )


def parse_merges(listed: Any, forms: Mapping[str, int]) -> list[tuple[str, str]]:
    """The pairs of a list of merges, as tokens are written.

    Args:
        listed: pairs, or lines of two tokens.
        forms: the model's vocabulary.

    Raises:
        RequiresLibraryError: one stands twice.
        ValueError: one is no pair, or holds or makes what is no token.
    """
    if (pairs := _try_parse_pairs(listed, forms)) is not None:
        return pairs
    seen: dict[tuple[str, str], None] = {}
    if len({isinstance(merge, str) for merge in listed}) > 1:
        raise ValueError("some merges are lines, others pairs")
    for merge in listed:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or [type(part) for part in parts] != [str, str]:
            raise ValueError(f"the merge {merge!r} is no pair of tokens")
        lstrip, rstrip = parts
        if lstrip not in forms or rstrip not in forms or lstrip + rstrip not in forms:
            missing = next(form for form in (lstrip, rstrip, lstrip + rstrip) if form not in forms)
            raise ValueError(f"the merge {merge!r}: {missing!r} is no token")
        if (lstrip, rstrip) in seen:
            raise RequiresLibraryError(f"the merge of {lstrip!r} and {rstrip!r} stands twice")
        seen[lstrip, rstrip] = None
    return list(seen)


def _try_parse_pairs(listed: Any, forms: Mapping[str, int]) -> list[tuple[str, str]] | None:
    """Returns the pairs of a list of merges, checked all together; `None` if any of them is wrong."""
    kinds = set(map(type, listed))
    if kinds not in ({str}, {list}):
        return None
    pairs = [tuple(merge.split(" ")) for merge in listed] if kinds == {str} else list(map(tuple, listed))
    if set(map(len, pairs)) != {2} or set(map(type, chain.from_iterable(pairs))) != {str}:
        return None
    parts = set(chain.from_iterable(pairs))
    if not (forms.keys() >= parts and all(map(forms.__contains__, map("".join, pairs)))):
        return None
    return pairs if len(set(pairs)) == len(pairs) else None


def get_literal_tokens(vocabulary: Vocabulary, forms: Mapping[str, int]) -> dict[str, int]:
    """The tokens at which texts are parted, which are always written as they are, and their ids.

    Args:
        vocabulary: the tokens.
        forms: the ids of all others, as they are written.

    Raises:
        UnsupportedTokenizerError: one of them is written like another.
    """
    plain = {name: vocabulary.get_id(name) for name in vocabulary.split_token_names}
    for name, id_ in plain.items():
        if forms.get(name, id_) != id_:
            raise UnsupportedTokenizerError(
                f"the format can't hold {name!r}: the token with id {forms[name]} is written like that"
            )
    return plain


def parse_trim_offsets(contents: Mapping[str, Any]) -> TrimOffsets | None:
    """Which spans leave out blanks.

    Raises:
        RequiresLibraryError: they are left out more than once.
    """
    trims: list[TrimOffsets] = [
        "but_first" if get_flag(part, "add_prefix_space", True) else "all"
        for part in get_steps(contents, "post_processor")
        if part.get("type") in ("ByteLevel", "RobertaProcessing") and get_flag(part, "trim_offsets", True)
    ]
    if len(trims) > 1:
        raise RequiresLibraryError("it has several post-processors that trim offsets")
    return trims[0] if trims else None


def get_single_type(contents: Mapping[str, Any], slot: PipelineSlot) -> str | None:
    """The type of the only step at one place of a definition; `None` if there is none.

    Raises:
        RequiresLibraryError: there are several.
    """
    parts = get_steps(contents, slot)
    if len(parts) > 1:
        raise RequiresLibraryError(f"it has the parts {[single.get('type') for single in parts]} in a row")
    return str(parts[0].get("type")) if parts else None


def _check_match_order(tokens: Sequence[Mapping[str, Any]]) -> None:
    """Refuse tokens that would be found in another order: the library looks for those as they are first."""
    verbatim = [token["content"] for token in tokens if not token.get("normalized")]
    normalized = [token["content"] for token in tokens if token.get("normalized")]
    if sum(map(len, verbatim)) * sum(map(len, normalized)) > _MAX_COMPARED:
        raise RequiresLibraryError("it has very many added tokens of two kinds")
    if verbatim and normalized and any(token.get("lstrip") or token.get("rstrip") for token in tokens):
        raise RequiresLibraryError(
            "it has added tokens of two kinds, some of which take white space with them"
        )
    for one, other in product(verbatim, normalized):
        if one in other or other in one or _has_overlap(one, other) or _has_overlap(other, one):
            raise RequiresLibraryError(f"the added tokens {one!r} and {other!r} can overlap")


def _has_overlap(lstrip: str, rstrip: str) -> bool:
    return any(lstrip.endswith(rstrip[:length]) for length in range(1, min(len(lstrip), len(rstrip))))


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
    if list_text_indices(template.single) != [0]:
        raise TokenizerFormatError("the single template of its post-processor must hold the text A once")
    if list_text_indices(template.pair) != [0, 1]:
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


_UNICODE = {
    "NFC": 3,
    "NFD": 4,
    "NFKC": 18,
    "NFKD": 18,
    "BertNormalizer": 4,
    "Lowercase": 2,
    "StripAccents": 1,
    "Nmt": 1,
    "Strip": 1,
}
_FACTORS = {"ByteLevel": 4, "WordPiece": 2, "BPEDecoder": 2}
# An expression that surely matches at least one character: atoms in sequence, one of them not optional.
_ATOM = r"(?:\[\^?\]?[^\[\]]+\]|\\[pP]\{\^?\w+\}|\\[sSdDwWnrt]|\\[^\w\s]|[^\\\[\](){}*+?|^$])"
_OPTIONAL, _REQUIRED = rf"(?:{_ATOM}[*+?]{{0,2}})*", rf"{_ATOM}(?:\+|\{{[1-9]\d*(?:,\d*)?\}})?(?![*?{{])"
_NOT_EMPTY = re.compile(f"{_OPTIONAL}{_REQUIRED}{_OPTIONAL}")
_MAX_CHECKED_LENGTH = 200


def check_growth(parts: Mapping[str, Any]) -> None:
    """Rejects a definition whose steps or template can make a text too long.

    Args:
        parts: a `tokenizer.json`, parsed.

    Raises:
        TokenizerFormatError: it exceeds the limit `text_growth`.
    """
    slot_groups: tuple[tuple[PipelineSlot, ...], ...] = (("normalizer", "pre_tokenizer"), ("decoder",))
    for named in slot_groups:
        steps = [step for slot in named for step in get_steps(parts, slot)]
        check_text_growth(f"its {named[0]} has {len(steps):,} steps", len(steps))
        growth = compute_steps_growth(steps)
        check_text_growth(f"its {named[0]} can make {growth:,.0f} characters of one", growth)
    for part in get_steps(parts, "post_processor"):
        if part.get("type") == "TemplateProcessing":
            inserted = [len(token["ids"]) for token in part["special_tokens"].values()]
            size = max(len(part["single"]), len(part["pair"])) * max(inserted, default=1)
            check_text_growth(f"its template has {size:,} tokens", size)


def compute_steps_growth(steps: Iterable[Mapping[str, Any]]) -> float:
    """Computes an upper bound on the characters that steps make of one character, or put before a text.

    Args:
        steps: the steps of a `tokenizer.json`, in order.
    """
    weights: dict[str, float] = {}
    other, prepended = 1.0, 0.0
    unicode_steps: list[str] = []  # in a row after the current step

    def compute_weight(text: str) -> float:
        return sum(weights.get(character, other) for character in text)

    for step in reversed(list(steps)):
        kind = str(step.get("type"))
        if kind == "Replace":
            pattern, after = step["pattern"], compute_weight(step["content"])
            literal = pattern.get("String")
            if literal:
                leftover = 0.0 if len(literal) == 1 else 1.0
                for character in literal:
                    weight = weights.get(character, other)
                    weights[character] = max(leftover * weight, after / len(literal))
            elif literal is None and _is_never_empty(pattern["Regex"]):
                weights = {character: max(weight, after) for character, weight in weights.items()}
                other = max(other, after)
            else:  # an empty match inserts the content before each character and at the end
                weights = {character: weight + after for character, weight in weights.items()}
                other, prepended = other + after, prepended + after
        elif kind == "Prepend":
            prepended += compute_weight(step["prepend"])
        else:
            if kind == "Metaspace":
                prepended += compute_weight(step["replacement"])
            after, factor = _compute_unicode_growth(unicode_steps), _FACTORS.get(kind, 1.0)
            if kind == "Precompiled":
                charsmap = base64.b64decode(step["precompiled_charsmap"])
                spaces = 2 * unicode_steps.count("BertNormalizer")
                factor = max(1.0, compute_longest_replacement(charsmap, spaces) / after)
            unicode_steps = [*unicode_steps, kind] if kind in _UNICODE else []
            if unicode_steps:
                factor = _compute_unicode_growth(unicode_steps) / after
            other, weights = factor * max(other, *weights.values(), 0.0), {}
            continue
        unicode_steps = []
    return max(other, prepended, *weights.values())


def _is_never_empty(expression: str) -> bool:
    return len(expression) <= _MAX_CHECKED_LENGTH and _NOT_EMPTY.fullmatch(expression) is not None


def _compute_unicode_growth(steps: list[str]) -> int:
    """Returns how many characters consecutive Unicode steps make of one, at most (see the module)."""
    ideographs = 4 if "NFKC" in steps or "NFKD" in steps else 1
    return max(ideographs * (1 + 2 * steps.count("BertNormalizer")), *map(_UNICODE.__getitem__, steps), 1)
