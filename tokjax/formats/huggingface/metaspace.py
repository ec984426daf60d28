"""A BPE with byte fallback, as of Llama 2, Mistral and Gemma, from a `tokenizer.json` and as one."""

from __future__ import annotations

import json
import re
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax.core.utf8 import is_encodable
from tokjax.formats.huggingface.definition import NotOursError, flag_of, in_utf8, parts_of
from tokjax.formats.huggingface.parts import (
    added_tokens_of,
    check_added_ids,
    merges_of,
    trim_of,
    vocabulary_of_parts,
    written_as_they_are,
)
from tokjax.formats.reading import ids_of_forms
from tokjax.models.metaspace_bpe import MetaspaceBPE, metaspace_bpe_of
from tokjax.models.metaspace_pieces import BYTE_FORMS, MARK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.core.vocabulary import Role
    from tokjax.models.metaspace_bpe import PrefixSpace

_PREPEND = {"type": "Prepend", "prepend": MARK}
_BLANK_TO_MARK = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
_DECODERS: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"String": MARK}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
_BYTE_FORMS = frozenset(BYTE_FORMS)
_LIKE_BYTE = re.compile(r"<0x[0-9A-Fa-f+]{2}>")
_SCHEMES: dict[str, PrefixSpace | None] = {"always": "missing", "first": "first", "never": None}
"""What Metaspace calls where it puts blanks."""


class _Blanks(NamedTuple):
    """What is done with the blanks of a text."""

    prefix_space: PrefixSpace | None
    split_words: bool


def metaspace_of(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> MetaspaceBPE:
    """The tokenizer of a definition whose model is a BPE with byte fallback.

    Args:
        contents: the definition.
        roles: which tokens have which role, those of them that are special.

    Raises:
        NotOursError: it has to run on the library.
        TokenizerFormatError: the definition makes no tokenizer.
    """
    model = contents["model"]
    if flag_of(model, "ignore_merges"):
        raise NotOursError("its BPE model has ignore_merges and byte_fallback")
    blanks, strip = _blanks_of(contents), _strips(contents)
    added = added_tokens_of(contents, normalizes=bool(parts_of(contents, "normalizer")))
    forms = ids_of_forms(model["vocab"], "the model's vocab")
    check_added_ids(contents.get("added_tokens") or [], forms)
    merges = merges_of(model["merges"], forms)
    special = {form for form, id_ in added.special.items() if forms.get(form) == id_}
    for form in (*filter(lambda form: len(form) == 1, special), *_in_merges(special, merges)):
        raise NotOursError(f"text can become the special token {form!r}")
    _check_pieces(forms.keys() - added.special.keys(), merges)
    unknown = model.get("unk_token")
    if unknown is not None and unknown not in added.special:
        raise NotOursError(f"its unknown token {unknown!r} is no special one")
    if trim_of(contents) is not None:
        raise NotOursError("its post-processor trims offsets")
    ordinary = in_utf8({form: id_ for form, id_ in forms.items() if form not in added.special})
    declared: dict[Role, str] = {**roles, **({} if unknown is None else {"unk": unknown})}
    vocabulary = vocabulary_of_parts(contents, ordinary | in_utf8(added.ordinary), added, declared)
    return metaspace_bpe_of(vocabulary, merges, **blanks._asdict(), strip=strip)


def metaspace_parts(tokenizer: MetaspaceBPE) -> dict[str, Any]:
    """The parts of a definition that are not those of every tokenizer."""
    table = tokenizer.vocabulary
    forms = {form.decode("utf-8"): id_ for form, id_ in table.ordinary.items()}
    forms |= written_as_they_are(table, forms)
    return {
        **_parts_for_blanks(tokenizer),
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


def _blanks_of(contents: Mapping[str, Any]) -> _Blanks:
    """What a normaliser and a pre-tokenizer do with blanks, and nothing else."""
    normalizers, pre_tokenizers = parts_of(contents, "normalizer"), parts_of(contents, "pre_tokenizer")
    kinds = [part.get("type") for part in pre_tokenizers]
    if normalizers in ([_PREPEND, _BLANK_TO_MARK], [_BLANK_TO_MARK]):
        at_blanks = kinds == ["Split"] and pre_tokenizers[0].get("pattern") == {"String": " "}
        if not kinds or (at_blanks and not flag_of(pre_tokenizers[0], "invert")):  # (no blank is left there)
            return _Blanks("always" if len(normalizers) == 2 else None, False)
    if not normalizers and kinds == ["Metaspace"]:
        [part] = pre_tokenizers
        scheme = part.get("prepend_scheme")
        agrees = part.get("add_prefix_space") in (None, scheme != "never")
        if part.get("replacement") == MARK and scheme in _SCHEMES and agrees:
            return _Blanks(_SCHEMES[scheme], part.get("split") is None or flag_of(part, "split"))
    done = [str(part.get("type")) for part in (*normalizers, *pre_tokenizers)]
    raise NotOursError(f"its normaliser and pre-tokenizer are {' and '.join(done) or 'none'}")


def _parts_for_blanks(tokenizer: MetaspaceBPE) -> dict[str, Any]:
    if tokenizer.prefix_space == "always":
        return {"normalizer": {"type": "Sequence", "normalizers": [_PREPEND, _BLANK_TO_MARK]}}
    if tokenizer.prefix_space is None and not tokenizer.split_words:
        return {"normalizer": _BLANK_TO_MARK}
    [scheme] = (name for name, prefix in _SCHEMES.items() if prefix == tokenizer.prefix_space)
    split = tokenizer.split_words
    return {
        "pre_tokenizer": {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": split}
    }


def _strips(contents: Mapping[str, Any]) -> bool:
    """Whether a decoder that is the usual one leaves out a blank at the beginning."""
    decoders = parts_of(contents, "decoder")
    if not any(_are_same(decoders, known) for known in (_DECODERS, [*_DECODERS, _STRIP])):
        raise NotOursError(
            f"its decoder is {' and '.join(str(part.get('type')) for part in decoders) or 'none'}"
        )
    return len(decoders) > len(_DECODERS)


def _are_same(steps: list[dict[str, Any]], known: list[dict[str, Any]]) -> bool:
    """Whether steps are written alike."""  # (in Python `True` and `1` are equal)
    return json.dumps(steps, sort_keys=True) == json.dumps(known, sort_keys=True)


def _in_merges(forms: set[str], merges: Sequence[tuple[str, str]]) -> set[str]:
    """Returns those of a few tokens that are a part of a merge, or made by one."""
    return forms.intersection(chain(chain.from_iterable(merges), map("".join, merges)))


def _check_pieces(ordinary: set[str], merges: Sequence[tuple[str, str]]) -> None:
    """Raise `NotOursError` if these tokens are not what `rules_of_pieces` takes."""
    missing = [form for form in (MARK, *BYTE_FORMS) if form not in ordinary]
    if missing:
        raise NotOursError(f"its vocabulary has no ordinary token {missing[0]!r}")
    if not is_encodable("".join(ordinary)):
        raise NotOursError("a token of its vocabulary is no text")
    odd = _in_merges({form for form in ordinary if " " in form or form in _BYTE_FORMS}, merges)
    if odd:
        raise NotOursError(f"the token {min(odd)!r} is a part of a merge, or made by one")
    like_bytes = [form for form in ordinary if form[:3] == "<0x" and _LIKE_BYTE.fullmatch(form)]
    like_bytes = [form for form in like_bytes if form not in _BYTE_FORMS]
    if like_bytes:
        raise NotOursError(f"the token {like_bytes[0]!r} is decoded to a byte, and never made of one")
