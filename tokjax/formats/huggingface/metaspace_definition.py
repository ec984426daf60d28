"""BPE with byte fallback from a `tokenizer.json`.

Files define the handling of spaces in a normalizer or a pre-tokenizer. `_parse_space_handling` maps all of
them to the options `add_prefix_space` and `split_words` of `MetaspaceBPE`. With the texts "a b" and " a":

    file                                        "a b"      " a"    add_prefix_space   split_words
    Llama 2: Prepend "▁", Replace " " by "▁"    ▁a▁b       ▁▁a     "always"           False
    Gemma:   Replace " " by "▁"                 a▁b        ▁a      None               False
    Metaspace, "always", split                  ▁a | ▁b    ▁a      "missing"          True
    Metaspace, "first", no split (Mistral)      ▁a▁b       ▁a      "first"            False
    Metaspace, "never", split                   a | ▁b     ▁a      None               True

`|` marks the split between pre-tokens. In contrast to `Prepend`, Metaspace adds a `▁` only before text that
does not begin with one. "first" adds it only at the start of a text, not after a special token.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax.core.utf8 import is_encodable
from tokjax.formats.huggingface.definition import (
    LIKE_BYTE,
    AddedTokens,
    RequiresLibraryError,
    build_definition_vocabulary,
    check_added_ids,
    encode_forms,
    find_in_merges,
    get_added_token_ids,
    get_flag,
    get_steps,
    list_inserted_names,
    parse_added_tokens,
    parse_merges,
    parse_trim_offsets,
)
from tokjax.formats.tokenizer_files import parse_token_ids
from tokjax.models.metaspace import BYTE_FORMS, METASPACE, list_missing_forms
from tokjax.models.metaspace_bpe import MetaspaceBPE, make_metaspace_bpe

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tokjax.core.vocabulary import Role, Vocabulary
    from tokjax.models.metaspace_bpe import PrefixSpace

PREPEND = {"type": "Prepend", "prepend": METASPACE}
SPACE_TO_METASPACE = {"type": "Replace", "pattern": {"String": " "}, "content": METASPACE}
_DECODERS: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"String": METASPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
_BYTE_FORMS = frozenset(BYTE_FORMS)
_SCHEMES: dict[str, PrefixSpace | None] = {"always": "missing", "first": "first", "never": None}
"""Metaspace's `prepend_scheme` to `add_prefix_space`."""


class _SpaceHandling(NamedTuple):
    """Options of `MetaspaceBPE` for spaces."""

    add_prefix_space: PrefixSpace | None
    split_words: bool


def parse_metaspace(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> MetaspaceBPE:
    """Builds the built-in tokenizer of a definition of BPE with byte fallback.

    Raises:
        RequiresLibraryError: the tokenizer has to run on the library.
        TokenizerFormatError: the definition is invalid.
    """
    model = contents["model"]
    if get_flag(model, "ignore_merges"):
        raise RequiresLibraryError("its BPE model has ignore_merges and byte_fallback")
    spaces, strip = _parse_space_handling(contents), _parse_strip(contents)
    normalizer = " and ".join(str(step.get("type")) for step in get_steps(contents, "normalizer"))
    added_tokens = parse_added_tokens(contents, normalizer=normalizer or None)
    forms = parse_token_ids(model["vocab"], "the model's vocab")
    check_added_ids(contents.get("added_tokens") or [], forms)
    merges = _drop_special_merges(parse_merges(model["merges"], forms), forms.keys() & added_tokens.special)
    _check_pieces(forms.keys() - added_tokens.special.keys(), merges)
    unmatched = _find_unmatched_tokens(contents, forms, added_tokens)
    unknown = model.get("unk_token")
    if unknown is not None and unknown not in added_tokens.special and unknown not in unmatched:
        raise RequiresLibraryError(f"its unknown token {unknown!r} is not a special token")
    if parse_trim_offsets(contents) is not None:
        raise RequiresLibraryError("its post-processor has trim_offsets=true")
    ordinary = encode_forms({form: id_ for form, id_ in forms.items() if form not in added_tokens.special})
    all_roles: dict[Role, str] = {**roles, **({} if unknown is None else {"unk": unknown})}
    vocabulary = build_definition_vocabulary(
        contents,
        ordinary | encode_forms(added_tokens.ordinary),
        added_tokens._replace(special=added_tokens.special | unmatched),
        all_roles,
        unmatched,
    )
    return make_metaspace_bpe(vocabulary, merges, **spaces._asdict(), strip=strip)


def _find_unmatched_tokens(
    contents: Mapping[str, Any], forms: Mapping[str, int], added_tokens: AddedTokens
) -> dict[str, int]:
    """Returns name to id of the special tokens that are not matched in texts.

    They are the unknown token and the tokens that the template inserts, unless they are added tokens.
    """
    names = [*list_inserted_names(contents), contents["model"].get("unk_token")]
    added_names = {*added_tokens.special, *added_tokens.ordinary}
    return {name: forms[name] for name in names if name in forms and name not in added_names}


def _drop_special_merges(
    merges: Sequence[tuple[str, str]], special: Collection[str]
) -> list[tuple[str, str]]:
    """Returns the merges of ordinary tokens.

    The others have no effect where special tokens are matched in texts. If a special token is to be encoded
    as ordinary text, the library makes it of text, and a built-in tokenizer does not.

    Args:
        merges: pairs of written forms.
        special: written forms of the special tokens.

    Raises:
        RequiresLibraryError: a special token contains `▁`, so that a text with a space can become it.
    """
    in_merges = find_in_merges(set(special), merges)
    for form in special:
        if METASPACE in form and (form in in_merges or form == METASPACE):
            raise RequiresLibraryError(f"text can become the special token {form!r}")
    if not in_merges:
        return list(merges)
    return [merge for merge in merges if in_merges.isdisjoint((*merge, "".join(merge)))]


def _parse_space_handling(contents: Mapping[str, Any]) -> _SpaceHandling:
    """Returns the options for spaces, if the normalizer and pre-tokenizer handle spaces and nothing else.

    The head of the module has examples.
    """
    normalizers, pre_tokenizers = get_steps(contents, "normalizer"), get_steps(contents, "pre_tokenizer")
    types = [step.get("type") for step in pre_tokenizers]
    if normalizers in ([PREPEND, SPACE_TO_METASPACE], [SPACE_TO_METASPACE]):
        # Gemma's file also splits at spaces. That has no effect: the normalizer has replaced all of them.
        splits_at_spaces = types == ["Split"] and pre_tokenizers[0].get("pattern") == {"String": " "}
        if not types or (splits_at_spaces and not get_flag(pre_tokenizers[0], "invert")):
            return _SpaceHandling("always" if len(normalizers) == 2 else None, False)
    if not normalizers and types == ["Metaspace"]:
        [step] = pre_tokenizers
        scheme = step.get("prepend_scheme")
        # Old files have add_prefix_space in addition to prepend_scheme.
        is_consistent = step.get("add_prefix_space") in (None, scheme != "never")
        if step.get("replacement") == METASPACE and scheme in _SCHEMES and is_consistent:
            return _SpaceHandling(_SCHEMES[scheme], step.get("split") is None or get_flag(step, "split"))
    all_types = [str(step.get("type")) for step in (*normalizers, *pre_tokenizers)]
    raise RequiresLibraryError(f"its normalizer and pre-tokenizer are {' and '.join(all_types) or 'none'}")


def _parse_strip(contents: Mapping[str, Any]) -> bool:
    """Returns whether the decoder removes a space at the start of the text.

    Raises:
        RequiresLibraryError: the decoder is not that of Llama 2, Mistral or Gemma.
    """
    decoders = get_steps(contents, "decoder")
    if not any(_are_same(decoders, expected) for expected in (_DECODERS, [*_DECODERS, _STRIP])):
        raise RequiresLibraryError(
            f"its decoder is {' and '.join(str(step.get('type')) for step in decoders) or 'none'}"
        )
    return len(decoders) > len(_DECODERS)


def _are_same(steps: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    """Returns whether two lists of steps are the same JSON. In Python, `True` and `1` would be equal."""
    return json.dumps(steps, sort_keys=True) == json.dumps(expected, sort_keys=True)


def _check_pieces(ordinary: set[str], merges: Sequence[tuple[str, str]]) -> None:
    """Raises `RequiresLibraryError` if `make_rules_from_pieces` does not accept these tokens.

    Args:
        ordinary: written forms of all tokens that are not special.
        merges: pairs of written forms.
    """
    missing = list_missing_forms(ordinary)
    if missing:
        raise RequiresLibraryError(f"its vocabulary has no ordinary token {missing[0]!r}")
    if not is_encodable("".join(ordinary)):
        raise RequiresLibraryError("a token of its vocabulary has a lone surrogate")
    # A built-in tokenizer merges bytes and writes spaces as `▁`, so these forms have no equivalent there.
    invalid = find_in_merges({form for form in ordinary if " " in form or form in _BYTE_FORMS}, merges)
    if invalid:
        raise RequiresLibraryError(f"the token {min(invalid)!r} is a part or the result of a merge")
    like_bytes = [form for form in ordinary if form[:3] == "<0x" and LIKE_BYTE.fullmatch(form)]
    like_bytes = [form for form in like_bytes if form not in _BYTE_FORMS]
    if like_bytes:
        raise RequiresLibraryError(
            f"the token {like_bytes[0]!r} is decoded to a byte, but no byte becomes it"
        )


def build_metaspace_parts(tokenizer: MetaspaceBPE) -> dict[str, Any]:
    """Builds the normalizer, pre-tokenizer, decoder and model of a `tokenizer.json`, for export."""
    return {
        **_build_space_steps(tokenizer),
        **build_model_parts(tokenizer.vocabulary, tokenizer.merges, strip=tokenizer.strip),
    }


def build_model_parts(
    vocabulary: Vocabulary,
    merges: Sequence[tuple[str, str]],
    *,
    strip: bool,
    byte_fallback: bool = True,
    ignore_merges: bool = False,
) -> dict[str, Any]:
    """Builds the decoder and the model of a vocabulary that writes spaces as `▁`, for export.

    Args:
        vocabulary: all tokens.
        merges: pairs of written forms, in order of priority.
        strip: whether decoding removes a space at the start of a text.
        byte_fallback: whether unknown characters become byte tokens.
        ignore_merges: whether a pre-token that is a token becomes it without merging.
    """
    forms = {form.decode("utf-8"): id_ for form, id_ in vocabulary.ordinary.items()}
    forms |= vocabulary.unreachable_ids
    forms |= get_added_token_ids(vocabulary, forms)
    return {
        "decoder": {"type": "Sequence", "decoders": [*_DECODERS, *([_STRIP] if strip else [])]},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": vocabulary.roles.get("unk"),
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": byte_fallback,
            "ignore_merges": ignore_merges,
            "vocab": dict(sorted(forms.items(), key=lambda item: item[1])),
            "merges": [list(merge) for merge in merges],
        },
    }


def _build_space_steps(tokenizer: MetaspaceBPE) -> dict[str, Any]:
    """Builds the normalizer or pre-tokenizer for spaces: the inverse of `_parse_space_handling`."""
    if tokenizer.add_prefix_space == "always":
        return {"normalizer": {"type": "Sequence", "normalizers": [PREPEND, SPACE_TO_METASPACE]}}
    if tokenizer.add_prefix_space is None and not tokenizer.split_words:
        return {"normalizer": SPACE_TO_METASPACE}
    [scheme] = (name for name, prefix in _SCHEMES.items() if prefix == tokenizer.add_prefix_space)
    split = tokenizer.split_words
    return {
        "pre_tokenizer": {
            "type": "Metaspace",
            "replacement": METASPACE,
            "prepend_scheme": scheme,
            "split": split,
        }
    }
