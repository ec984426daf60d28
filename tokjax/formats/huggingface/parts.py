"""Parts of a `tokenizer.json`, the definition of a tokenizer in Hugging Face's format: parsed and written.

A definition is a JSON object with these parts:

    added_tokens     tokens that are matched in the text before it is split; some of them are special
    normalizer       steps that change the text: NFC, Lowercase, Replace ...
    pre_tokenizer    steps that split the text: ByteLevel, Split, Metaspace ...
    model            vocabulary and merges: BPE, WordPiece, WordLevel, Unigram
    post_processor   steps that insert special tokens (the template), or trim offsets
    decoder          steps that turn tokens into text

A part that consists of steps is one step or a `Sequence` of steps; `get_steps` returns a list in both cases.

The functions here parse and write the parts that all models have: to `AddedToken`, `Template`, pairs of
tokens. `byte_level.py`, `words.py` and `metaspace.py` have the models and their steps. They raise
`RequiresLibraryError` where a built-in tokenizer would not give exactly the result of the library. Such a
tokenizer runs on the library.

Files may be untrusted. `definition_checks` limits how much longer the steps can make a text.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, TypeAlias, cast

from tokjax.core.template import EMPTY_TEMPLATE, Template, TemplatePiece, list_text_indices
from tokjax.core.utf8 import is_encodable
from tokjax.core.vocabulary import AddedToken, make_vocabulary, select_roles
from tokjax.errors import TokenizerFormatError, UnsupportedTokenizerError
from tokjax.formats.tokenizer_files import parse_token_ids
from tokjax.pretokenize.bytes_to_unicode import map_all_unicode_to_bytes
from tokjax.pretokenize.special_tokens import check_comparisons, compile_matcher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.core.vocabulary import Role, Vocabulary
    from tokjax.models.byte_bpe import TrimOffsets


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


def list_types(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the types of steps."""
    return [str(step.get("type")) for step in steps]


def select_steps(
    contents: Mapping[str, Any], slot: PipelineSlot, *accepted: Sequence[str]
) -> list[dict[str, Any]]:
    """Returns the steps of one part of a definition, if their types are one of the accepted lists.

    Raises:
        RequiresLibraryError: the part has other steps.
    """
    steps = get_steps(contents, slot)
    if list_types(steps) not in [list(types) for types in accepted]:
        reject_steps(contents, slot)
    return steps


def reject_steps(contents: Mapping[str, Any], slot: PipelineSlot) -> NoReturn:
    """Raises `RequiresLibraryError` that names the steps of one part of a definition."""
    types = " and ".join(list_types(get_steps(contents, slot)))
    no_steps = "none" if contents.get(slot) is None else "an empty Sequence"
    raise RequiresLibraryError(f"its {slot.replace('_', '-')} is {types or no_steps}")


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
    return any("ByteLevel" in list_types(get_steps(contents, slot)) for slot in slots)


def list_unknown_tokens(contents: Mapping[str, Any]) -> list[str]:
    """Returns the unknown token of the model, the only one in the list; `[]` if there is none."""
    model = contents["model"]
    if model.get("unk_id") is not None:  # only in a Unigram model, whose vocabulary is a list
        return [str(model["vocab"][model["unk_id"]][0])]
    return [] if model.get("unk_token") is None else [model["unk_token"]]


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


def check_added_ids(tokens: Sequence[Mapping[str, Any]], forms: Mapping[str, int]) -> None:
    """Raises `RequiresLibraryError` if the library would assign another id to an added token.

    The library does not use the field `id`. An added token that is in the model's vocabulary has its id
    there. All others get the next ids after the vocabulary, in the order of the definition.

    Args:
        tokens: added tokens, in the order of the definition.
        forms: written form to id of the model's vocabulary.
    """
    last_id = -1
    for token in tokens:
        name, id_ = token["content"], token["id"]
        assigned = forms.get(name, max(last_id + 1, len(forms)))
        if assigned != id_:
            raise RequiresLibraryError(
                f"the added token {name!r} has the id {id_}, but the library assigns {assigned}"
            )
        last_id = max(last_id, assigned)


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
    pairs = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in merges]
    # Checks that run in C first: some lists have half a million merges.
    are_pairs = set(map(len, pairs)) <= {2} and set(map(type, chain.from_iterable(pairs))) <= {str}
    if not (are_pairs and all(map(forms.__contains__, chain(*pairs, map("".join, pairs))))):
        index = next(i for i, pair in enumerate(pairs) if not _is_merge(pair, forms))
        raise ValueError(f"the merge {merges[index]!r} is not a pair of tokens that makes a token")
    if len(set(pairs)) < len(pairs):
        raise RequiresLibraryError("its merges have duplicates")
    return pairs


def _is_merge(pair: tuple[Any, ...], forms: Mapping[str, int]) -> bool:
    if len(pair) != 2 or not all(isinstance(part, str) for part in pair):
        return False
    return all(form in forms for form in (*pair, "".join(pair)))


def find_in_merges(forms: set[str], merges: Sequence[tuple[str, str]]) -> set[str]:
    """Returns the members of `forms` that are a part or the result of a merge."""
    return forms.intersection(chain(chain.from_iterable(merges), map("".join, merges)))


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


def _is_roberta(step: Mapping[str, Any]) -> bool:
    """Returns whether the library reads a post-processor as `RobertaProcessing`.

    If one of its flags is missing, the library reads it as `BertProcessing`.
    """
    return step.get("type") == "RobertaProcessing" and {"add_prefix_space", "trim_offsets"} <= step.keys()


def parse_template(contents: Mapping[str, Any], ids: Mapping[str, int]) -> Template:
    """Parses the template of a definition: the special tokens that are inserted around texts.

    Args:
        contents: parsed `tokenizer.json`.
        ids: name to id of the tokens that the template may insert.

    Returns:
        The template. Its `pair` is empty if the definition's does not contain text A and then text B, each
        once.

    Raises:
        RequiresLibraryError: the post-processor does something that a template can't represent.
        TokenizerFormatError: the single template does not contain the text exactly once, or a token type id
            is invalid.
    """
    steps = [step for step in get_steps(contents, "post_processor") if step.get("type") != "ByteLevel"]
    if len(steps) > 1:
        raise RequiresLibraryError("it has several post-processors that insert special tokens")
    if not steps:
        return EMPTY_TEMPLATE
    names_by_id = {id_: name for name, id_ in ids.items()}
    step_type = steps[0].get("type")
    if step_type in ("BertProcessing", "RobertaProcessing"):
        template = _parse_cls_and_sep(steps[0], names_by_id)
    elif step_type == "TemplateProcessing":
        template = Template(
            *(_parse_template_pieces(steps[0], name, names_by_id) for name in ("single", "pair"))
        )
    else:
        raise RequiresLibraryError(f"its post-processor is {step_type}")
    if list_text_indices(template.single) != [0]:
        raise TokenizerFormatError("the single template of its post-processor must contain text A once")
    return template if list_text_indices(template.pair) == [0, 1] else Template(template.single, ())


def _parse_cls_and_sep(step: Mapping[str, Any], names_by_id: Mapping[int, str]) -> Template:
    """Returns the template of `BertProcessing` or `RobertaProcessing`."""
    for field in ("sep", "cls"):
        if not isinstance(step[field], list) or len(step[field]) != 2:
            raise TokenizerFormatError(
                f"{field!r} of its post-processor is {step[field]!r:.80}; expected a list of a token and "
                "its id"
            )
    sep, cls = (_get_token_name(step[field][1], names_by_id) for field in ("sep", "cls"))
    first = TemplatePiece(None, cls, 0), TemplatePiece(0, None, 0), TemplatePiece(None, sep, 0)
    if _is_roberta(step):
        end = TemplatePiece(None, sep, 0)
        return Template(first, (*first, end, TemplatePiece(1, None, 0), end))
    return Template(first, (*first, TemplatePiece(1, None, 1), TemplatePiece(None, sep, 1)))


def _parse_template_pieces(
    step: Mapping[str, Any], name: str, names_by_id: Mapping[int, str]
) -> tuple[TemplatePiece, ...]:
    """Returns the pieces of a `TemplateProcessing`. A token with several ids becomes several pieces."""
    parsed: list[TemplatePiece] = []
    for piece in step[name]:
        [(kind, fields)] = piece.items()
        type_id = fields["type_id"]
        if not isinstance(type_id, int) or not 0 <= type_id < 1 << 31:
            raise TokenizerFormatError(f"a template of its post-processor has the type id {type_id!r}")
        if kind == "Sequence":
            parsed.append(TemplatePiece({"A": 0, "B": 1}[fields["id"]], None, type_id))
            continue
        ids = step["special_tokens"][fields["id"]]["ids"]
        parsed += [TemplatePiece(None, _get_token_name(id_, names_by_id), type_id) for id_ in ids]
    return tuple(parsed)


def _get_token_name(id_: Any, names_by_id: Mapping[int, str]) -> str:
    if id_ not in names_by_id:
        raise RequiresLibraryError(f"its template inserts id {id_}, which is not that of an added token")
    return names_by_id[id_]


def parse_tokens(contents: Mapping[str, Any], normalizer: str | None) -> tuple[dict[str, int], AddedTokens]:
    """Parses the vocabulary of a model and the added tokens of a definition.

    Args:
        contents: parsed `tokenizer.json`.
        normalizer: as in `parse_added_tokens`.

    Returns:
        Written form to id of the model's tokens; and the added tokens.

    Raises:
        RequiresLibraryError: the tokenizer has to run on the library.
        TokenizerFormatError: the tokens are invalid.
    """
    added = parse_added_tokens(contents, normalizer=normalizer)
    forms = parse_token_ids(contents["model"]["vocab"], "the model's vocab")
    check_added_ids(contents.get("added_tokens") or [], forms)
    if not is_encodable("".join(forms)):
        raise RequiresLibraryError("a token of its vocabulary has a lone surrogate")
    return forms, added


def find_unmatched_tokens(
    contents: Mapping[str, Any], forms: Mapping[str, int], added: AddedTokens
) -> dict[str, int]:
    """Returns name to id of the special tokens that are not matched in texts.

    They are the unknown token and the tokens that the template inserts, unless they are added tokens.
    """
    added_ids = added.special | added.ordinary
    inserted = parse_template(contents, {**forms, **added_ids}).tokens
    names = (*inserted, *list_unknown_tokens(contents))
    return {name: forms[name] for name in names if name in forms and name not in added_ids}


def build_vocabulary(
    contents: Mapping[str, Any],
    roles: Mapping[Role, str],
    forms: Mapping[str, int],
    added: AddedTokens,
    unmatched: dict[str, int] | None = None,
    *,
    byte_level: bool = False,
) -> Vocabulary:
    """Builds the vocabulary of a tokenizer, including the template of the definition.

    Args:
        contents: parsed `tokenizer.json`.
        roles: role to the name of a token; see `select_roles`. By default, the unknown token of the model has
            its role.
        forms: written form to id of the tokens that the model makes of text.
        added: added tokens of the definition.
        unmatched: name to id of the special tokens that are not matched in texts.
        byte_level: whether tokens are written as `bytes_to_unicode` writes bytes.

    Raises:
        InvalidArgumentError: the template inserts a token that is neither special nor added, or the tokens
            are invalid.
        RequiresLibraryError: the post-processor does something that a template can't represent.
    """
    unmatched = unmatched or {}
    ordinary, unreachable_ids = (
        decode_byte_level_forms(forms)
        if byte_level
        else (dict(zip(map(str.encode, forms), forms.values(), strict=True)), {})
    )
    # The bytes of an added token can be those of a token of the model: the same one, or another one.
    duplicate_ids = {
        name: id_ for name, id_ in added.ordinary.items() if ordinary.setdefault(name.encode(), id_) != id_
    }
    if not byte_level:
        duplicate_ids |= {name: id_ for name, id_ in added.ordinary.items() if name in forms}
    special = added.special | unmatched
    declared = select_roles(roles, ordinary, special)
    for unknown in special.keys() & list_unknown_tokens(contents):
        declared.setdefault("unk", unknown)
    return make_vocabulary(
        ordinary,
        special,
        declared,
        parse_template(contents, {**forms, **special, **added.ordinary}),
        added.flags,
        duplicate_ids | unmatched,
        unreachable_ids,
    )


def build_added_tokens(vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Builds the added tokens of a definition."""
    names = vocabulary.split_token_names - vocabulary.unmatched_names - vocabulary.second_names
    return [
        build_added_token(vocabulary, name, vocabulary.get_id(name), vocabulary.added_tokens.get(name))
        for name in sorted(names, key=vocabulary.get_id)
    ]


def build_added_token(
    vocabulary: Vocabulary,
    name: str,
    id_: int,
    flags: AddedToken | None,
    *,
    normalized: bool = False,
) -> dict[str, Any]:
    """Builds an added token of a definition."""
    return {
        "id": id_,
        "content": name,
        "single_word": False,
        "lstrip": flags is not None and flags.lstrip,
        "rstrip": flags is not None and flags.rstrip,
        "normalized": normalized,
        "special": name in vocabulary.special,
    }


def build_template(vocabulary: Vocabulary) -> dict[str, Any] | None:
    """Builds the post-processor that inserts the special tokens of a template."""
    template = vocabulary.template
    if template == EMPTY_TEMPLATE:
        return None
    return {
        "type": "TemplateProcessing",
        "single": list(map(_build_template_piece, template.single)),
        "pair": list(map(_build_template_piece, template.pair)),
        "special_tokens": {
            name: {"id": name, "ids": [vocabulary.get_id(name)], "tokens": [name]}
            for name in sorted(set(template.tokens))
        },
    }


def _build_template_piece(piece: TemplatePiece) -> dict[str, Any]:
    if piece.text is None:
        return {"SpecialToken": {"id": piece.token, "type_id": piece.type_id}}
    return {"Sequence": {"id": "AB"[piece.text], "type_id": piece.type_id}}


def build_forms(vocabulary: Vocabulary, forms: Mapping[str, int]) -> dict[str, int]:
    """Returns written form to id of all tokens, ordered by id. Special and added tokens have their names.

    Second names of ids are left out, and logged: a file has one name for each id.

    Args:
        vocabulary: vocabulary of the tokenizer to export.
        forms: written form to id of the ordinary tokens.

    Raises:
        UnsupportedTokenizerError: a name is also the written form of a token with another id.
    """
    all_forms = {**forms, **vocabulary.unreachable_ids}
    for name in sorted(vocabulary.second_names):
        first_name = vocabulary.get_bytes(vocabulary.get_id(name)).decode("utf-8")
        logger.warning("the file will not have the special token %r, a second name of %r", name, first_name)
    for name in vocabulary.split_token_names - vocabulary.second_names:
        if all_forms.setdefault(name, vocabulary.get_id(name)) != vocabulary.get_id(name):
            raise UnsupportedTokenizerError(
                f"the format can't represent {name!r}: it is also the written form of the token with id "
                f"{all_forms[name]}"
            )
    return dict(sorted(all_forms.items(), key=itemgetter(1)))


def build_text_forms(vocabulary: Vocabulary) -> dict[str, int]:
    """Returns written form to id of all tokens of a vocabulary that is written as text."""
    return build_forms(vocabulary, {token.decode("utf-8"): id_ for token, id_ in vocabulary.ordinary.items()})


def build_vocab(vocabulary: Vocabulary) -> dict[str, int]:
    """Builds the vocabulary of the model, without the added tokens that only an exact match makes.

    If the library would assign other ids to these, they remain in the vocabulary.
    """
    forms = build_text_forms(vocabulary)
    only_matched = vocabulary.added_names - vocabulary.duplicate_token_ids.keys()
    model_forms = {form: id_ for form, id_ in forms.items() if form not in only_matched}
    try:
        check_added_ids(build_added_tokens(vocabulary), model_forms)
    except RequiresLibraryError:
        return forms
    return model_forms


def build_bpe_model(
    forms: Mapping[str, int], merges: Sequence[Sequence[str]], **options: Any
) -> dict[str, Any]:
    """Builds a model of BPE.

    Args:
        forms: written form to id of all tokens.
        merges: pairs of written forms, in order of priority.
        **options: other fields of the model.
    """
    no_options = dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"))
    flags = dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False)
    vocab = {"vocab": forms, "merges": list(map(list, merges))}
    return {"type": "BPE", **no_options, **flags, **options, **vocab}
