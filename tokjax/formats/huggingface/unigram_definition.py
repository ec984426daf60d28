"""Unigram tokenizers from a `tokenizer.json`, and back."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, get_args

from tokjax.core.utf8 import is_encodable
from tokjax.errors import TokenizerFormatError
from tokjax.formats.huggingface.definition import (
    RequiresLibraryError,
    build_definition_vocabulary,
    check_added_ids,
    check_decoder,
    encode_forms,
    get_flag,
    get_steps,
    list_inserted_names,
    parse_added_tokens,
    parse_trim_offsets,
)
from tokjax.formats.huggingface.definition_checks import check_before_loading, check_pieces
from tokjax.models.metaspace import METASPACE, list_missing_forms
from tokjax.models.unigram import Prepends, Unigram
from tokjax.models.unigram_characters import attaches
from tokjax.models.unigram_words import NormalizedToken
from tokjax.pretokenize.aligned_text import PREPENDING, StepNormalizer
from tokjax.pretokenize.special_tokens import WHITE_SPACE
from tokjax.unigram.viterbi import MAX_SCORE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.core.vocabulary import Role

_MAX_EXACT_DIGITS, _MAX_EXPONENT = 15, 308


def parse_unigram(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> Unigram:
    """Builds the built-in tokenizer of a definition of a unigram model.

    Raises:
        RequiresLibraryError: the tokenizer has to run on the library.
        TokenizerFormatError: the definition is invalid.
    """
    check_before_loading(contents)
    model, tokens = contents["model"], contents.get("added_tokens") or []
    steps = get_steps(contents, "normalizer")
    normalizer = _parse_normalizer(steps)
    prepends, splits_whitespace = _parse_pre_tokenizer(contents)
    if splits_whitespace and "Prepend" in normalizer.types:
        raise RequiresLibraryError("its normalizer has Prepend, and its pre-tokenizer WhitespaceSplit")
    pieces = _parse_pieces(model)
    forms = {piece: id_ for id_, (piece, _) in enumerate(pieces)}
    unknown_id, byte_fallback = model["unk_id"], get_flag(model, "byte_fallback")
    strip = _parse_decoder(contents)
    if parse_trim_offsets(contents) is not None:
        raise RequiresLibraryError("its post-processor has trim_offsets=true")
    is_later = [bool(steps) and get_flag(token, "normalized") for token in tokens]
    verbatim = [token for token, later in zip(tokens, is_later, strict=True) if not later]
    added = parse_added_tokens({"added_tokens": verbatim}, normalizer=None)
    later = [token for token, is_later in zip(tokens, is_later, strict=True) if is_later]
    normalized = _parse_normalized_tokens(later, normalizer)
    check_added_ids(tokens, forms)
    unmatched = {token["content"]: token["id"] for token in later if get_flag(token, "special")}
    names = {token["content"] for token in tokens}
    for name in (*list_inserted_names(contents), pieces[unknown_id][0]):
        if name in forms and name not in names:
            unmatched[name] = forms[name]
    special = added.special | unmatched
    ordinary = {form: id_ for form, id_ in forms.items() if form not in special}
    ordinary |= {name: token.id for name, token in normalized if name not in special} | added.ordinary
    vocabulary = build_definition_vocabulary(
        contents,
        encode_forms(ordinary),
        added._replace(special=special),
        {"unk": pieces[unknown_id][0], **roles},
        unmatched,
    )
    return Unigram(
        vocabulary,
        pieces,
        unknown_id,
        byte_fallback,
        json.dumps(steps),
        prepends,
        splits_whitespace,
        strip,
        normalized,
    )


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
    if model.get("byte_fallback") and list_missing_forms([*pieces, METASPACE]):
        raise RequiresLibraryError("its vocabulary has byte fallback, and no token for some bytes")
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
    if [step.get("type") for step in steps].count("Precompiled") > 1:
        raise RequiresLibraryError("its normalizer has several character maps")
    try:
        return StepNormalizer(steps)
    except (KeyError, ValueError) as error:
        types = " and ".join(str(step.get("type")) for step in steps)
        raise RequiresLibraryError(f"its normalizer is {types} ({error})") from error


def _is_inert(character: str) -> bool:
    """Returns whether a character is no whitespace, and changes none before or after it."""
    is_space = character in WHITE_SPACE or character == METASPACE
    return not (is_space or attaches(character) or re.match(f"[{PREPENDING}]", character))


def _parse_pre_tokenizer(contents: Mapping[str, Any]) -> tuple[Prepends, bool]:
    """Returns where `▁` is added, and whether texts are split at whitespace first."""
    steps = get_steps(contents, "pre_tokenizer")
    types = [step.get("type") for step in steps]
    if types not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
        raise RequiresLibraryError(f"its pre-tokenizer is {' and '.join(map(str, types)) or 'none'}")
    if steps[-1].get("split") is not None and not get_flag(steps[-1], "split"):
        raise RequiresLibraryError("its Metaspace has split=False")
    return _parse_scheme(steps[-1]), len(steps) > 1


def _parse_scheme(step: Mapping[str, Any]) -> Prepends:
    """Returns the `prepend_scheme` of a `Metaspace`."""
    scheme = step.get("prepend_scheme", "always")
    if scheme not in get_args(Prepends) or (step.get("add_prefix_space") is False and scheme != "never"):
        raise RequiresLibraryError(f"its Metaspace has the prepend_scheme {scheme!r}")
    if step.get("replacement") != METASPACE:
        raise RequiresLibraryError(f"its Metaspace writes {step.get('replacement')!r} for spaces")
    return scheme  # type: ignore[no-any-return]


def _parse_decoder(contents: Mapping[str, Any]) -> bool:
    """Returns whether the decoder removes `▁` from the first token."""
    check_decoder(contents, "Metaspace")
    return _parse_scheme(get_steps(contents, "decoder")[0]) != "never"


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
