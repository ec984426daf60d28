"""Built-in tokenizers that write spaces as `▁`, from a `tokenizer.json`: BPE with byte fallback, and unigram.

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
import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, get_args

from tokjax.core.utf8 import is_encodable
from tokjax.errors import TokenizerFormatError
from tokjax.formats.huggingface.definition import (
    LIKE_BYTE,
    RequiresLibraryError,
    build_vocabulary,
    check_added_ids,
    find_in_merges,
    find_unmatched_tokens,
    get_flag,
    get_steps,
    list_types,
    parse_added_tokens,
    parse_merges,
    parse_tokens,
    reject_steps,
    select_steps,
)
from tokjax.formats.huggingface.definition_checks import check_before_loading, check_pieces
from tokjax.models.metaspace import BYTE_FORMS, METASPACE
from tokjax.models.metaspace_bpe import MetaspaceBPE
from tokjax.models.unigram import Prepends, Unigram
from tokjax.models.unigram_characters import attaches
from tokjax.models.unigram_viterbi import MAX_SCORE
from tokjax.models.unigram_words import NormalizedToken
from tokjax.pretokenize.aligned_text import PREPENDING, StepNormalizer
from tokjax.pretokenize.special_tokens import WHITE_SPACE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tokjax.core.vocabulary import Role, Vocabulary
    from tokjax.models.metaspace_bpe import PrefixSpace

PREPEND = {"type": "Prepend", "prepend": METASPACE}
SPACE_TO_METASPACE = {"type": "Replace", "pattern": {"String": " "}, "content": METASPACE}
DECODERS: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"String": METASPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
SCHEMES: dict[str, PrefixSpace | None] = {"always": "missing", "first": "first", "never": None}
"""Metaspace's `prepend_scheme` to `add_prefix_space`."""
_MAX_EXACT_DIGITS, _MAX_EXPONENT = 15, 308


def parse_metaspace_bpe(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> MetaspaceBPE:
    """Builds the built-in tokenizer of a definition of BPE with byte fallback.

    Raises:
        InvalidArgumentError: the tokenizer has to run on the library.
        RequiresLibraryError: likewise.
        TokenizerFormatError: the definition is invalid.
    """
    model = contents["model"]
    if get_flag(model, "ignore_merges"):
        raise RequiresLibraryError("its BPE model has ignore_merges and byte_fallback")
    add_prefix_space, split_words = _parse_space_handling(contents)
    strip = _parse_strip(contents)
    normalizer = " and ".join(list_types(get_steps(contents, "normalizer")))
    forms, added = parse_tokens(contents, normalizer or None)
    merges = _drop_special_merges(parse_merges(model["merges"], forms), forms.keys() & added.special)
    unmatched = find_unmatched_tokens(contents, forms, added)
    unknown = model.get("unk_token")
    if unknown is not None and unknown not in added.special | unmatched:
        raise RequiresLibraryError(f"its unknown token {unknown!r} is not a special token")
    ordinary = {form: id_ for form, id_ in forms.items() if form not in added.special}
    for form in ordinary:
        if form[:3] == "<0x" and LIKE_BYTE.fullmatch(form) and form not in BYTE_FORMS:
            raise RequiresLibraryError(f"the token {form!r} is decoded to a byte, but no byte becomes it")
    all_roles: dict[Role, str] = {**roles, **({} if unknown is None else {"unk": unknown})}
    vocabulary = build_vocabulary(contents, all_roles, ordinary, added, unmatched)
    return MetaspaceBPE(vocabulary, merges, add_prefix_space, split_words=split_words, strip=strip)


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


def _parse_space_handling(contents: Mapping[str, Any]) -> tuple[PrefixSpace | None, bool]:
    """Returns `add_prefix_space` and `split_words`, if the steps handle spaces and nothing else.

    The head of the module has examples.
    """
    normalizers, pre_tokenizers = get_steps(contents, "normalizer"), get_steps(contents, "pre_tokenizer")
    if not normalizers:
        [step] = select_steps(contents, "pre_tokenizer", ["Metaspace"])
        scheme, split = _parse_metaspace(step)
        return SCHEMES[scheme], split
    if normalizers not in ([PREPEND, SPACE_TO_METASPACE], [SPACE_TO_METASPACE]):
        reject_steps(contents, "normalizer")
    # Gemma's file also splits at spaces. That has no effect: the normalizer has replaced all of them.
    select_steps(contents, "pre_tokenizer", [], ["Split"])
    for step in pre_tokenizers:
        if step.get("pattern") != {"String": " "} or get_flag(step, "invert"):
            reject_steps(contents, "pre_tokenizer")
    return ("always" if len(normalizers) == 2 else None), False


def _parse_metaspace(step: Mapping[str, Any]) -> tuple[Prepends, bool]:
    """Returns the `prepend_scheme` of a `Metaspace`, and whether it splits at spaces.

    Old files have `add_prefix_space` in addition.
    """
    scheme = step.get("prepend_scheme", "always")
    if scheme not in get_args(Prepends) or (step.get("add_prefix_space") is False and scheme != "never"):
        raise RequiresLibraryError(f"its Metaspace has the prepend_scheme {scheme!r}")
    if step.get("replacement") != METASPACE:
        raise RequiresLibraryError(f"its Metaspace writes {step.get('replacement')!r} for spaces")
    return scheme, step.get("split") is None or get_flag(step, "split")


def _parse_strip(contents: Mapping[str, Any]) -> bool:
    """Returns whether the decoder removes a space at the start of the text.

    Raises:
        RequiresLibraryError: the decoder is not that of Llama 2, Mistral or Gemma.
    """
    decoders = get_steps(contents, "decoder")
    # As JSON: in Python, `True` and `1` would be equal.
    if json.dumps(decoders, sort_keys=True) not in (
        json.dumps(expected, sort_keys=True) for expected in (DECODERS, [*DECODERS, STRIP])
    ):
        reject_steps(contents, "decoder")
    return len(decoders) > len(DECODERS)


def parse_unigram(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> Unigram:
    """Builds the built-in tokenizer of a definition of a unigram model.

    Raises:
        InvalidArgumentError: the tokenizer has to run on the library.
        RequiresLibraryError: likewise.
        TokenizerFormatError: the definition is invalid.
    """
    check_before_loading(contents)
    model, steps = contents["model"], get_steps(contents, "normalizer")
    normalizer = _parse_normalizer(steps)
    *splits, metaspace = select_steps(
        contents, "pre_tokenizer", ["Metaspace"], ["WhitespaceSplit", "Metaspace"]
    )
    prepends, split = _parse_metaspace(metaspace)
    if not split:
        raise RequiresLibraryError("its Metaspace has split=False")
    if splits and "Prepend" in normalizer.types:
        raise RequiresLibraryError("its normalizer has Prepend, and its pre-tokenizer WhitespaceSplit")
    [decoder] = select_steps(contents, "decoder", ["Metaspace"])
    strip = _parse_metaspace(decoder)[0] != "never"
    pieces = _parse_pieces(model)
    vocabulary, normalized = _parse_unigram_vocabulary(contents, roles, pieces, normalizer)
    byte_fallback = get_flag(model, "byte_fallback")
    options = prepends, bool(splits), strip, normalized
    return Unigram(vocabulary, pieces, model["unk_id"], byte_fallback, json.dumps(steps), *options)


def _parse_unigram_vocabulary(
    contents: Mapping[str, Any],
    roles: Mapping[Role, str],
    pieces: Sequence[tuple[str, float]],
    normalizer: StepNormalizer,
) -> tuple[Vocabulary, tuple[tuple[str, NormalizedToken], ...]]:
    """Returns the vocabulary, and the added tokens that are matched in normalized text."""
    forms = {piece: id_ for id_, (piece, _) in enumerate(pieces)}
    tokens = contents.get("added_tokens") or []
    check_added_ids(tokens, forms)
    later = [token for token in tokens if normalizer.types and get_flag(token, "normalized")]
    verbatim = [token for token in tokens if not (normalizer.types and get_flag(token, "normalized"))]
    added = parse_added_tokens({"added_tokens": verbatim}, normalizer=None)
    normalized = _parse_normalized_tokens(later, normalizer)
    later_ids = {name: token.id for name, token in normalized}
    all_added = added._replace(ordinary=added.ordinary | later_ids)
    unmatched = {token["content"]: token["id"] for token in later if get_flag(token, "special")}
    unmatched |= find_unmatched_tokens(contents, forms, all_added)
    special = added.special | unmatched
    ordinary = {form: id_ for form, id_ in (forms | later_ids).items() if form not in special}
    return build_vocabulary(contents, roles, ordinary, added, unmatched), normalized


def _parse_pieces(model: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    """Returns the pieces and scores of a model for which arrays give the result of the library."""
    if model.get("unk_id") is None:
        raise RequiresLibraryError("its Unigram model has no unknown token")
    pieces = [piece for piece, _ in model["vocab"]]
    if not 0 <= model["unk_id"] < len(pieces):
        raise TokenizerFormatError(f"its unk_id is {model['unk_id']!r}, and it has {len(pieces)} pieces")
    check_pieces(pieces)
    if not all(pieces) or not is_encodable("".join(pieces)):
        raise RequiresLibraryError("a piece is empty, or has a lone surrogate")
    scores = [round_like_library(score) for _, score in model["vocab"]]
    if not all(abs(score) <= MAX_SCORE for score in scores):
        raise RequiresLibraryError("a score of its model is too large")
    return tuple(zip(pieces, scores, strict=True))


def round_like_library(score: float) -> float:
    """Returns a score as the library reads it: it rounds the digits first, and then the quotient.

    A number of up to 15 digits is rounded once, as in Python.
    """
    text = repr(abs(score))
    if len(text) <= _MAX_EXACT_DIGITS or not math.isfinite(score):
        return float(score)
    _, digits, exponent = Decimal(text).as_tuple()
    number = float(int("".join(map(str, digits))))
    assert isinstance(exponent, int)
    while exponent < -_MAX_EXPONENT:
        number, exponent = number / 1e308, exponent + _MAX_EXPONENT
    number = number * 10.0**exponent if exponent >= 0 else number / float(f"1e{-exponent}")
    return math.copysign(number, score)


def _parse_normalizer(steps: Sequence[Mapping[str, Any]]) -> StepNormalizer:
    """Returns the normalizer, if it changes words separately."""
    for step in steps:
        pattern, content = step.get("pattern"), step.get("content", "")
        literal = pattern.get("String") if isinstance(pattern, dict) else None
        if literal and len(literal) > 1 and not (content and all(map(_is_inert, literal + content))):
            raise RequiresLibraryError(f"its normalizer replaces {literal!r} by {content!r}")
        if step.get("type") == "Prepend" and step.get("prepend") not in (METASPACE, " "):
            raise RequiresLibraryError(f"its normalizer prepends {step.get('prepend')!r}")
    if list_types(steps).count("Precompiled") > 1:
        raise RequiresLibraryError("its normalizer has several character maps")
    try:
        return StepNormalizer(steps)
    except (KeyError, ValueError) as error:
        raise RequiresLibraryError(
            f"its normalizer is {' and '.join(list_types(steps))} ({error})"
        ) from error


def _is_inert(character: str) -> bool:
    """Returns whether a character is no whitespace, and changes none before or after it."""
    is_space = character in WHITE_SPACE or character == METASPACE
    return not (is_space or attaches(character) or re.match(f"[{PREPENDING}]", character))


def _parse_normalized_tokens(
    tokens: Sequence[Mapping[str, Any]], normalizer: StepNormalizer
) -> tuple[tuple[str, NormalizedToken], ...]:
    """Returns the added tokens that are matched in normalized text."""
    for token in tokens:
        name = token["content"]
        if normalizer.normalize_string(name) != name or any(c in WHITE_SPACE or c == METASPACE for c in name):
            raise RequiresLibraryError(f"the added token {name!r} is matched in normalized text")
        if get_flag(token, "single_word"):
            raise RequiresLibraryError(f"the added token {name!r} has single_word=True")
    return tuple(
        (token["content"], NormalizedToken(token["id"], get_flag(token, "lstrip"), get_flag(token, "rstrip")))
        for token in tokens
    )
