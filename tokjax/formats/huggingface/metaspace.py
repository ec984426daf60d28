"""A BPE with byte fallback, as of Llama 2, Mistral and Gemma, from a `tokenizer.json` and as one."""

from __future__ import annotations

import json
import re
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax.core.utf8 import is_encodable
from tokjax.formats.huggingface.definition import RequiresLibraryError, encode_forms, get_flag, get_steps
from tokjax.formats.huggingface.vocabulary_parsing import (
    build_definition_vocabulary,
    check_added_ids,
    get_literal_tokens,
    parse_added_tokens,
    parse_merges,
    parse_trim_offsets,
)
from tokjax.formats.tokenizer_files import parse_token_ids
from tokjax.models.metaspace_bpe import MetaspaceBPE, make_metaspace_bpe
from tokjax.models.metaspace_pieces import BYTE_FORMS, METASPACE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.core.vocabulary import Role
    from tokjax.models.metaspace_bpe import PrefixSpace

_PREPEND = {"type": "Prepend", "prepend": METASPACE}
_SPACE_TO_MARK = {"type": "Replace", "pattern": {"String": " "}, "content": METASPACE}
_DECODERS: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"String": METASPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
_BYTE_FORMS = frozenset(BYTE_FORMS)
_LIKE_BYTE = re.compile(r"<0x[0-9A-Fa-f+]{2}>")
_SCHEMES: dict[str, PrefixSpace | None] = {"always": "missing", "first": "first", "never": None}
"""What Metaspace calls where it puts blanks."""


class _SpaceHandling(NamedTuple):
    """What is done with the blanks of a text."""

    add_prefix_space: PrefixSpace | None
    split_words: bool


def parse_metaspace_bpe(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> MetaspaceBPE:
    """The tokenizer of a definition whose model is a BPE with byte fallback.

    Args:
        contents: the definition.
        roles: which tokens have which role, those of them that are special.

    Raises:
        RequiresLibraryError: it has to run on the library.
        TokenizerFormatError: the definition makes no tokenizer.
    """
    model = contents["model"]
    if get_flag(model, "ignore_merges"):
        raise RequiresLibraryError("its BPE model has ignore_merges and byte_fallback")
    spaces, strip = _parse_spaces(contents), _parse_strip(contents)
    added_tokens = parse_added_tokens(contents, normalizes=bool(get_steps(contents, "normalizer")))
    forms = parse_token_ids(model["vocab"], "the model's vocab")
    check_added_ids(contents.get("added_tokens") or [], forms)
    merges = parse_merges(model["merges"], forms)
    special = {form for form, id_ in added_tokens.special.items() if forms.get(form) == id_}
    for form in (*filter(lambda form: len(form) == 1, special), *_find_in_merges(special, merges)):
        raise RequiresLibraryError(f"text can become the special token {form!r}")
    _check_pieces(forms.keys() - added_tokens.special.keys(), merges)
    unknown = model.get("unk_token")
    if unknown is not None and unknown not in added_tokens.special:
        raise RequiresLibraryError(f"its unknown token {unknown!r} is no special one")
    if parse_trim_offsets(contents) is not None:
        raise RequiresLibraryError("its post-processor trims offsets")
    ordinary = encode_forms({form: id_ for form, id_ in forms.items() if form not in added_tokens.special})
    declared: dict[Role, str] = {**roles, **({} if unknown is None else {"unk": unknown})}
    vocabulary = build_definition_vocabulary(
        contents, ordinary | encode_forms(added_tokens.ordinary), added_tokens, declared
    )
    return make_metaspace_bpe(vocabulary, merges, **spaces._asdict(), strip=strip)


def build_metaspace_parts(tokenizer: MetaspaceBPE) -> dict[str, Any]:
    """The parts of a definition that are not those of every tokenizer."""
    table = tokenizer.vocabulary
    forms = {form.decode("utf-8"): id_ for form, id_ in table.ordinary.items()}
    forms |= get_literal_tokens(table, forms)
    return {
        **_build_space_steps(tokenizer),
        "decoder": {"type": "Sequence", "decoders": [*_DECODERS, *([_STRIP] if tokenizer.strip else [])]},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": table.roles.get("unk"),
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": dict(sorted(forms.items(), key=lambda item: item[1])),
            "merges": [list(merge) for merge in tokenizer.merges],
        },
    }


def _parse_spaces(contents: Mapping[str, Any]) -> _SpaceHandling:
    """What a normaliser and a pre-tokenizer do with blanks, and nothing else."""
    normalizers, pre_tokenizers = get_steps(contents, "normalizer"), get_steps(contents, "pre_tokenizer")
    kinds = [part.get("type") for part in pre_tokenizers]
    if normalizers in ([_PREPEND, _SPACE_TO_MARK], [_SPACE_TO_MARK]):
        at_spaces = kinds == ["Split"] and pre_tokenizers[0].get("pattern") == {"String": " "}
        if not kinds or (at_spaces and not get_flag(pre_tokenizers[0], "invert")):  # (no blank is left there)
            return _SpaceHandling("always" if len(normalizers) == 2 else None, False)
    if not normalizers and kinds == ["Metaspace"]:
        [part] = pre_tokenizers
        scheme = part.get("prepend_scheme")
        agrees = part.get("add_prefix_space") in (None, scheme != "never")
        if part.get("replacement") == METASPACE and scheme in _SCHEMES and agrees:
            return _SpaceHandling(_SCHEMES[scheme], part.get("split") is None or get_flag(part, "split"))
    done = [str(part.get("type")) for part in (*normalizers, *pre_tokenizers)]
    raise RequiresLibraryError(f"its normaliser and pre-tokenizer are {' and '.join(done) or 'none'}")


def _build_space_steps(tokenizer: MetaspaceBPE) -> dict[str, Any]:
    if tokenizer.add_prefix_space == "always":
        return {"normalizer": {"type": "Sequence", "normalizers": [_PREPEND, _SPACE_TO_MARK]}}
    if tokenizer.add_prefix_space is None and not tokenizer.split_words:
        return {"normalizer": _SPACE_TO_MARK}
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


def _parse_strip(contents: Mapping[str, Any]) -> bool:
    """Whether a decoder that is the usual one leaves out a blank at the beginning."""
    decoders = get_steps(contents, "decoder")
    if not any(_are_same(decoders, expected) for expected in (_DECODERS, [*_DECODERS, _STRIP])):
        raise RequiresLibraryError(
            f"its decoder is {' and '.join(str(part.get('type')) for part in decoders) or 'none'}"
        )
    return len(decoders) > len(_DECODERS)


def _are_same(steps: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    """Whether steps are written alike."""  # (in Python `True` and `1` are equal)
    return json.dumps(steps, sort_keys=True) == json.dumps(expected, sort_keys=True)


def _find_in_merges(forms: set[str], merges: Sequence[tuple[str, str]]) -> set[str]:
    """Returns those of a few tokens that are a part of a merge, or made by one."""
    return forms.intersection(chain(chain.from_iterable(merges), map("".join, merges)))


def _check_pieces(ordinary: set[str], merges: Sequence[tuple[str, str]]) -> None:
    """Raise `RequiresLibraryError` if these tokens are not what `make_rules_from_pieces` takes."""
    missing = [form for form in (METASPACE, *BYTE_FORMS) if form not in ordinary]
    if missing:
        raise RequiresLibraryError(f"its vocabulary has no ordinary token {missing[0]!r}")
    if not is_encodable("".join(ordinary)):
        raise RequiresLibraryError("a token of its vocabulary is no text")
    odd = _find_in_merges({form for form in ordinary if " " in form or form in _BYTE_FORMS}, merges)
    if odd:
        raise RequiresLibraryError(f"the token {min(odd)!r} is a part of a merge, or made by one")
    like_bytes = [form for form in ordinary if form[:3] == "<0x" and _LIKE_BYTE.fullmatch(form)]
    like_bytes = [form for form in like_bytes if form not in _BYTE_FORMS]
    if like_bytes:
        raise RequiresLibraryError(f"the token {like_bytes[0]!r} is decoded to a byte, and never made of one")
