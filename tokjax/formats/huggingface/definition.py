"""Parsing of a `tokenizer.json`, the definition of a tokenizer in Hugging Face's format.

A definition is a JSON object with these parts:

    added_tokens     tokens that are matched in the text before it is split; some of them are special
    normalizer       steps that change the text: NFC, Lowercase, Replace ...
    pre_tokenizer    steps that split the text: ByteLevel, Split, Metaspace ...
    model            vocabulary and merges: BPE, WordPiece, WordLevel, Unigram
    post_processor   steps that insert special tokens (the template), or trim offsets
    decoder          steps that turn tokens into text

A part that consists of steps is one step or a `Sequence` of steps; `get_steps` returns a list in both cases.

The functions here return the parts in the terms of tokjax: `AddedToken`, `Template`, pairs of tokens. They
raise `RequiresLibraryError` where a built-in tokenizer would not give exactly the result of the library. Such
a tokenizer runs on the library.

Files may be untrusted. `growth_limits` limits how much longer the steps can make a text.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from tokjax.core.template import EMPTY_TEMPLATE, Template, TemplatePiece, list_text_indices
from tokjax.core.vocabulary import AddedToken, make_vocabulary, select_roles
from tokjax.errors import TokenizerFormatError, UnsupportedTokenizerError
from tokjax.pretokenize.bytes_to_unicode import map_all_unicode_to_bytes
from tokjax.pretokenize.special_tokens import check_comparisons, compile_matcher

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tokjax.core.vocabulary import Role, Vocabulary
    from tokjax.models.metaspace import TrimOffsets


logger = logging.getLogger("tokjax")
PipelineSlot: TypeAlias = Literal["normalizer", "pre_tokenizer", "post_processor", "decoder"]
"""Name of a part of a definition that consists of steps."""
_SEQUENCE_FIELDS: dict[PipelineSlot, str] = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}
"""Field of a `Sequence` that holds its steps, by part."""
LIKE_BYTE = re.compile(r"<0x[0-9A-Fa-f+]{2}>")
"""Tokens that the library's `ByteFallback` decodes to a byte: it also accepts lower case and a sign."""
_UNCHANGED_BY_NFC = re.compile(r"[\t-\r !-:?@\[-_{-~]+")
"""Names that occur in a text normalized to NFC where they occur in the text. Letters, `<`, `=` and `>` can
become part of another character, and `;` and `` ` `` can be made of one."""


class RequiresLibraryError(Exception):
    """Raised if a tokenizer has to run on the `tokenizers` library. The message is the reason."""


def get_steps(contents: Mapping[str, Any], slot: PipelineSlot) -> list[dict[str, Any]]:
    """Returns the steps of one part of a definition, with nested sequences flattened.

    A value that is not an object is returned as a step whose type is the value's `repr`. No step of the
    library has such a type, so it is handled like any unknown step.

    Args:
        contents: parsed `tokenizer.json`.
        slot: name of the part.

    >>> get_steps({"decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}]}}, "decoder")
    [{'type': 'Fuse'}]
    """
    part = contents.get(slot)
    return [] if part is None else _flatten_steps(part, _SEQUENCE_FIELDS[slot])


def _flatten_steps(part: Any, field: str) -> list[dict[str, Any]]:
    if not isinstance(part, dict):
        return [{"type": repr(part)[:60]}]
    if part.get("type") == "Sequence" and isinstance(part.get(field), list):
        return [step for inner in part[field] for step in _flatten_steps(inner, field)]
    return [part]


def get_single_type(contents: Mapping[str, Any], slot: PipelineSlot) -> str | None:
    """Returns the type of the only step of a part; `None` if the part has no steps.

    Raises:
        RequiresLibraryError: the part has several steps.
    """
    steps = get_steps(contents, slot)
    if len(steps) > 1:
        raise RequiresLibraryError(f"its {slot} has several steps: {[step.get('type') for step in steps]}")
    return str(steps[0].get("type")) if steps else None


def check_decoder(contents: Mapping[str, Any], expected: str | None) -> None:
    """Raises `RequiresLibraryError` unless the decoder has the expected type; `None` expects no decoder."""
    decoder = contents.get("decoder")
    actual = None if decoder is None else get_single_type(contents, "decoder") or "an empty Sequence"
    if actual != expected:
        raise RequiresLibraryError(f"its decoder is {actual or 'none'}")


def get_flag(part: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """Returns a boolean field of a step, a model or an added token.

    Raises:
        RequiresLibraryError: the value is not a boolean.
    """
    value = part.get(name, default)
    if not isinstance(value, bool):
        raise RequiresLibraryError(f"{name} is {value!r}")
    return value


def is_byte_level(contents: Mapping[str, Any]) -> bool:
    """Returns whether the tokens of a definition are written as `bytes_to_unicode` writes bytes."""
    slots: tuple[PipelineSlot, ...] = ("normalizer", "pre_tokenizer", "decoder")
    return any(step.get("type") == "ByteLevel" for slot in slots for step in get_steps(contents, slot))


def get_unknown_token(contents: Mapping[str, Any]) -> str | None:
    """Returns the unknown token of the model, or `None`."""
    model = contents["model"]
    if model.get("unk_id") is not None:  # only in a Unigram model, whose vocabulary is a list
        return str(model["vocab"][model["unk_id"]][0])
    unknown: str | None = model.get("unk_token")
    return unknown


def decode_byte_level_forms(forms: Mapping[str, int]) -> tuple[dict[bytes, int], dict[str, int]]:
    """Converts tokens that are written as `bytes_to_unicode` writes bytes.

    A token with any other character cannot occur in an encoded text. Its bytes are its written form in UTF-8,
    which the library's decoder returns. They can be those of another token:

        written   bytes
        âĦ¢       E2 84 A2
        ™         E2 84 A2     not the form of any bytes

    Args:
        forms: written form of each token to id.

    Returns:
        Token bytes to id; and written form to id of the tokens that are missing there, since their bytes are
        those of another token.
    """
    tokens = map_all_unicode_to_bytes(forms)
    ids_by_token = dict(zip(tokens, forms.values(), strict=True))
    ids_by_token.pop(None, None)
    ordinary = cast("dict[bytes, int]", ids_by_token)
    unreachable_ids: dict[str, int] = {}
    for form in [form for form, token in zip(forms, tokens, strict=True) if token is None]:
        if ordinary.setdefault(form.encode("utf-8", "surrogatepass"), forms[form]) != forms[form]:
            unreachable_ids[form] = forms[form]
    return ordinary, unreachable_ids


def encode_forms(forms: Mapping[str, int]) -> dict[bytes, int]:
    """Converts tokens that are written as text: returns UTF-8 bytes to id."""
    try:
        tokens = list(map(str.encode, forms))
    except UnicodeEncodeError:
        tokens = [form.encode("utf-8", "surrogatepass") for form in forms]
    return dict(zip(tokens, forms.values(), strict=True))


def merge_added_tokens(
    ordinary: Mapping[bytes, int], added_tokens: Mapping[str, int]
) -> tuple[dict[bytes, int], dict[str, int]]:
    """Merges added tokens that are not special into the tokens of the model.

    Args:
        ordinary: token bytes to id of the model's tokens.
        added_tokens: name to id.

    Returns:
        Token bytes to id of all tokens; and name to id of the added tokens that are missing there, since
        their bytes are those of another token.
    """
    duplicate_token_ids = {
        name: id_ for name, id_ in added_tokens.items() if ordinary.get(name.encode("utf-8"), id_) != id_
    }
    unique = {
        name.encode("utf-8"): id_ for name, id_ in added_tokens.items() if name not in duplicate_token_ids
    }
    return {**ordinary, **unique}, duplicate_token_ids


def get_added_token_ids(vocabulary: Vocabulary, forms: Mapping[str, int]) -> dict[str, int]:
    """Returns name to id of all special and added tokens, which a file contains under their names.

    Second names of ids are left out, and logged: a file has one name for each id.

    Args:
        vocabulary: vocabulary of the tokenizer to export.
        forms: written form to id of the other tokens.

    Raises:
        UnsupportedTokenizerError: the name is also the written form of a token with another id.
    """
    ids = {name: vocabulary.get_id(name) for name in vocabulary.split_token_names - vocabulary.second_names}
    for name in sorted(vocabulary.second_names):
        first_name = vocabulary.get_bytes(vocabulary.get_id(name)).decode("utf-8")
        logger.warning("the file will not have the special token %r, a second name of %r", name, first_name)
    for name, id_ in ids.items():
        if forms.get(name, id_) != id_:
            raise UnsupportedTokenizerError(
                f"the format can't represent {name!r}: it is also the written form of the token with id "
                f"{forms[name]}"
            )
    return ids


class AddedTokens(NamedTuple):
    """Added tokens of a definition: they are matched in a text before it is split.

    Attributes:
        special: name to id of the special tokens.
        ordinary: name to id of the other added tokens.
        flags: name to flags of all `ordinary` tokens, and of special tokens with `lstrip` or `rstrip`.
    """

    special: dict[str, int]
    ordinary: dict[str, int]
    flags: dict[str, AddedToken]


def parse_added_tokens(contents: Mapping[str, Any], *, normalizer: str | None) -> AddedTokens:
    """Parses the added tokens of a definition for a built-in tokenizer.

    Args:
        contents: parsed `tokenizer.json`.
        normalizer: type of the normalizer; `None` if the definition has none that changes texts.

    Raises:
        RequiresLibraryError: a built-in tokenizer does not match one of them as the library does.
        TokenizerFormatError: an added token has no name or no id.
    """
    tokens = contents.get("added_tokens") or []
    added_tokens = AddedTokens({}, {}, {})
    for token in tokens:
        name, id_ = token.get("content"), token.get("id")
        if not isinstance(name, str) or not name or not isinstance(id_, int) or isinstance(id_, bool):
            raise TokenizerFormatError(f"an added token has the content {name!r} and the id {id_!r}")
        if name in added_tokens.special or name in added_tokens.ordinary:
            raise RequiresLibraryError(f"duplicate added token {name!r}")
        if get_flag(token, "single_word"):
            raise RequiresLibraryError(f"the added token {name!r} has single_word=True")
        is_unchanged = normalizer is None or (normalizer == "NFC" and _UNCHANGED_BY_NFC.fullmatch(name))
        if get_flag(token, "normalized") and not is_unchanged:
            raise RequiresLibraryError(f"the added token {name!r} is matched in normalized text")
        is_special = get_flag(token, "special")
        (added_tokens.special if is_special else added_tokens.ordinary)[name] = id_
        flags = AddedToken(get_flag(token, "lstrip"), get_flag(token, "rstrip"))
        if any(flags) or not is_special:
            added_tokens.flags[name] = flags
    if any(map(any, added_tokens.flags.values())):
        # With lstrip or rstrip, a token takes adjacent white space that could be part of another token.
        for name in (*added_tokens.special, *added_tokens.ordinary):
            if name != name.strip():
                raise RequiresLibraryError(
                    f"it has added tokens with lstrip or rstrip, and {name!r} begins or ends with white space"
                )
    _check_match_order(tokens)
    return added_tokens


def _check_match_order(tokens: Sequence[Mapping[str, Any]]) -> None:
    """Raises `RequiresLibraryError` for added tokens that the library could match in another order.

    The library makes two passes: it matches the added tokens with `normalized=false` first, and the others
    in the remaining text. A built-in tokenizer matches all of them in one pass from the left, the longest
    first. The result can differ only if a token with `normalized=true` contains one of the others, or ends
    with the beginning of one:

        normalized=false   normalized=true   text   two passes   one pass
        "b"                "abc"             abc    a [b] c      [abc]
        "bc"               "ab"              abc    a [bc]       [ab] c
        "ab"               "bc"              abc    equal: "ab" begins first
        "abc"              "b"               abc    equal: "abc" begins first

    With `lstrip` or `rstrip`, no name begins or ends with whitespace. So only the whitespace between two
    tokens can be part of either, which does not change the ids.
    """
    verbatim = sorted(token["content"] for token in tokens if not token.get("normalized"))
    normalized = [token["content"] for token in tokens if token.get("normalized")]
    if not verbatim or not normalized:
        return
    check_comparisons([*verbatim, *normalized])
    matcher = compile_matcher(frozenset(verbatim))
    for name in normalized:
        match = matcher.search(name)
        other = match.group() if match else _find_overlapping(name, verbatim)
        if other is not None:
            raise RequiresLibraryError(f"the added tokens {other!r} and {name!r} can overlap")


def _find_overlapping(name: str, others: Sequence[str]) -> str | None:
    """Returns one of the sorted names that begins with the end of `name`, or `None`."""
    for start in range(1, len(name)):
        index = bisect_left(others, name[start:])
        if index < len(others) and others[index].startswith(name[start:]):
            return others[index]
    return None


def assign_added_ids(names: Iterable[str], forms: Mapping[str, int]) -> dict[str, int]:
    """Returns the ids that the library assigns to added tokens. It does not use the field `id`.

    An added token that is in the model's vocabulary has its id there. All others get the next ids after the
    vocabulary, in the order of the definition.

    Args:
        names: names of the added tokens, in the order of the definition.
        forms: written form to id of the model's vocabulary.
    """
    ids: dict[str, int] = {}
    last_id = -1
    for name in names:
        ids[name] = forms.get(name, max(last_id + 1, len(forms)))
        last_id = max(last_id, ids[name])
    return ids


def check_added_ids(tokens: Sequence[Mapping[str, Any]], forms: Mapping[str, int]) -> None:
    """Raises `RequiresLibraryError` if the library would assign another id to an added token.

    Args:
        tokens: added tokens, in the order of the definition.
        forms: written form to id of the model's vocabulary.
    """
    assigned = assign_added_ids((token["content"] for token in tokens), forms)
    for token in tokens:
        name, id_ = token["content"], token["id"]
        if assigned[name] != id_:
            raise RequiresLibraryError(
                f"the added token {name!r} has the id {id_}, but the library assigns {assigned[name]}"
            )


def parse_merges(merges: Any, forms: Mapping[str, int]) -> list[tuple[str, str]]:
    """Parses a list of merges.

    Args:
        merges: pairs of tokens, or strings of two tokens separated by a space, in order of priority.
        forms: written form to id of the model's vocabulary.

    Returns:
        Pairs of written forms, in order of priority.

    Raises:
        RequiresLibraryError: a merge is a duplicate.
        ValueError: a merge is not a pair, or a part or the result of a merge is not a token.
    """
    if (pairs := _try_parse_pairs(merges, forms)) is not None:
        return pairs
    # The list is empty, or a merge is invalid. Find the first one for the error.
    seen: dict[tuple[str, str], None] = {}
    if len({isinstance(merge, str) for merge in merges}) > 1:
        raise ValueError("some merges are strings, others pairs")
    for merge in merges:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or [type(part) for part in parts] != [str, str]:
            raise ValueError(f"the merge {merge!r} is not a pair of tokens")
        left, right = parts
        if left not in forms or right not in forms or left + right not in forms:
            missing = next(form for form in (left, right, left + right) if form not in forms)
            raise ValueError(f"the merge {merge!r}: {missing!r} is not a token")
        if (left, right) in seen:
            raise RequiresLibraryError(f"duplicate merge of {left!r} and {right!r}")
        seen[left, right] = None
    return list(seen)


def find_in_merges(forms: set[str], merges: Sequence[tuple[str, str]]) -> set[str]:
    """Returns the members of `forms` that are a part or the result of a merge."""
    return forms.intersection(chain(chain.from_iterable(merges), map("".join, merges)))


def _try_parse_pairs(merges: Any, forms: Mapping[str, int]) -> list[tuple[str, str]] | None:
    """Parses all merges at once, which is faster; returns `None` if any of them is invalid."""
    types = set(map(type, merges))
    if types not in ({str}, {list}):
        return None
    pairs = [tuple(merge.split(" ")) for merge in merges] if types == {str} else list(map(tuple, merges))
    if set(map(len, pairs)) != {2} or set(map(type, chain.from_iterable(pairs))) != {str}:
        return None
    parts = set(chain.from_iterable(pairs))
    if not (forms.keys() >= parts and all(map(forms.__contains__, map("".join, pairs)))):
        return None
    return pairs if len(set(pairs)) == len(pairs) else None


def parse_trim_offsets(contents: Mapping[str, Any]) -> TrimOffsets | None:
    """Returns the value of `trim_offsets` for a built-in tokenizer.

    Raises:
        RequiresLibraryError: several post-processors trim offsets.
    """
    trims: list[TrimOffsets] = [
        "but_first" if get_flag(step, "add_prefix_space", True) else "all"
        for step in get_steps(contents, "post_processor")
        if (step.get("type") == "ByteLevel" or _is_roberta(step)) and get_flag(step, "trim_offsets", True)
    ]
    if len(trims) > 1:
        raise RequiresLibraryError("it has several post-processors with trim_offsets=true")
    return trims[0] if trims else None


def list_inserted_names(contents: Mapping[str, Any]) -> list[str]:
    """Returns the names of the tokens that the post-processors of a definition can insert."""
    names: list[str] = []
    for step in get_steps(contents, "post_processor"):
        if step.get("type") == "TemplateProcessing":
            names += chain.from_iterable(entry["tokens"] for entry in step["special_tokens"].values())
        elif step.get("type") in ("BertProcessing", "RobertaProcessing"):
            names += (_parse_inserted_token(step, field)[0] for field in ("cls", "sep"))
    return names


def _is_roberta(step: Mapping[str, Any]) -> bool:
    """Returns whether the library reads a post-processor as `RobertaProcessing`.

    If one of its flags is missing, the library reads it as `BertProcessing`.
    """
    return step.get("type") == "RobertaProcessing" and {"add_prefix_space", "trim_offsets"} <= step.keys()


def _parse_inserted_token(step: Mapping[str, Any], field: str) -> list[Any]:
    """Returns the name and the id of a token that `BertProcessing` or `RobertaProcessing` inserts."""
    token = step[field]
    if not isinstance(token, list) or len(token) != 2:
        raise TokenizerFormatError(
            f"{field!r} of its post-processor is {token!r:.80}; expected a list of a token and its id"
        )
    return token


def parse_template(contents: Mapping[str, Any], special: Mapping[str, int]) -> Template:
    """Parses the template of a definition: the special tokens that are inserted around texts.

    Args:
        contents: parsed `tokenizer.json`.
        special: name to id of the tokens that a template may insert: special and added tokens.

    Returns:
        The template. Its `pair` is empty if the definition's does not contain text A and then text B, each
        once.

    Raises:
        RequiresLibraryError: the post-processor does something that a template can't represent.
        TokenizerFormatError: the single template does not contain the text exactly once, or a token type id
            is invalid.
    """
    templates = [
        template
        for step in get_steps(contents, "post_processor")
        if (template := _parse_template_step(step, special)) is not None
    ]
    if len(templates) > 1:
        raise RequiresLibraryError("it has several post-processors that insert special tokens")
    template = templates[0] if templates else EMPTY_TEMPLATE
    if list_text_indices(template.single) != [0]:
        raise TokenizerFormatError("the single template of its post-processor must contain text A once")
    if list_text_indices(template.pair) != [0, 1]:
        template = Template(template.single, ())
    for token in template.tokens:
        if token not in special:
            raise RequiresLibraryError(f"its template inserts {token!r}, which is not an added token")
    return template


def _parse_template_step(step: Mapping[str, Any], special: Mapping[str, int]) -> Template | None:
    """Returns the template of a post-processor, or `None` if it inserts no tokens."""
    step_type = step.get("type")
    if step_type == "ByteLevel":
        return None
    if step_type == "TemplateProcessing":
        return Template(
            *(
                _parse_template_pieces(step[name], step["special_tokens"], special)
                for name in ("single", "pair")
            )
        )
    if step_type in ("BertProcessing", "RobertaProcessing"):
        names_by_id = {id_: name for name, id_ in special.items()}
        sep, cls = (
            _get_token_name(_parse_inserted_token(step, field)[1], names_by_id) for field in ("sep", "cls")
        )
        first = TemplatePiece(None, cls, 0), TemplatePiece(0, None, 0), TemplatePiece(None, sep, 0)
        if not _is_roberta(step):
            return Template(first, (*first, TemplatePiece(1, None, 1), TemplatePiece(None, sep, 1)))
        return Template(
            first,
            (*first, TemplatePiece(None, sep, 0), TemplatePiece(1, None, 0), TemplatePiece(None, sep, 0)),
        )
    raise RequiresLibraryError(f"its post-processor is {step_type}")


def _parse_template_pieces(
    pieces: Sequence[Mapping[str, Any]], special_tokens: Mapping[str, Any], special: Mapping[str, int]
) -> tuple[TemplatePiece, ...]:
    """Returns the pieces of a `TemplateProcessing`. A token with several ids becomes several pieces."""
    names_by_id = {id_: name for name, id_ in special.items()}
    parsed: list[TemplatePiece] = []
    for piece in pieces:
        [(kind, fields)] = piece.items()
        if kind == "Sequence":
            parsed.append(TemplatePiece({"A": 0, "B": 1}[fields["id"]], None, fields["type_id"]))
            continue
        ids = special_tokens[fields["id"]]["ids"]
        parsed += [TemplatePiece(None, _get_token_name(id_, names_by_id), fields["type_id"]) for id_ in ids]
    for template_piece in parsed:
        if not isinstance(template_piece.type_id, int) or not 0 <= template_piece.type_id < 1 << 31:
            raise TokenizerFormatError(
                f"a template of its post-processor has the type id {template_piece.type_id!r}"
            )
    return tuple(parsed)


def _get_token_name(id_: Any, names_by_id: Mapping[int, str]) -> str:
    if id_ not in names_by_id:
        raise RequiresLibraryError(f"its template inserts id {id_}, which is not that of an added token")
    return names_by_id[id_]


def build_definition_vocabulary(
    contents: Mapping[str, Any],
    ordinary: Mapping[bytes, int],
    added_tokens: AddedTokens,
    roles: Mapping[Role, str],
    duplicate_token_ids: Mapping[str, int] | None = None,
    unreachable_ids: Mapping[str, int] | None = None,
) -> Vocabulary:
    """Builds the vocabulary of a built-in tokenizer, including the template of the definition.

    Args:
        contents: parsed `tokenizer.json`.
        ordinary: token bytes to id, of all tokens that are not special.
        added_tokens: added tokens of the definition.
        roles: role to the name of a token; see `select_roles`.
        duplicate_token_ids: as in `make_vocabulary`.
        unreachable_ids: likewise.

    Raises:
        RequiresLibraryError: the post-processor does something that a template can't represent.
    """
    return make_vocabulary(
        ordinary,
        added_tokens.special,
        select_roles(roles, ordinary, added_tokens.special),
        parse_template(contents, added_tokens.special | added_tokens.ordinary),
        added_tokens.flags,
        duplicate_token_ids,
        unreachable_ids,
    )
