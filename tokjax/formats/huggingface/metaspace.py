r"""Definitions of models that write spaces as `▁`: BPE with byte fallback, and unigram. Parsed and written.

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

A SentencePiece BPE model merges the pair of pieces whose concatenation has the highest score. The file lists
pairs in order of priority: here, for each piece, all pairs that it is the concatenation of. The normalizer of
the model becomes these steps:

    step                                   if the model
    `Precompiled`                          replaces characters
    `Replace` of `\A +` by nothing         removes and merges spaces
    `Replace` of ` {2,}` by one space
    `Replace` of `[ ▁]+\z` by nothing
    `Prepend` of `▁`                       adds a space before texts
    `Replace` of a space by `▁`            is any model
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import re
from decimal import Decimal
from operator import itemgetter
from typing import TYPE_CHECKING, Any, get_args

from tokjax.core.utf8 import is_encodable
from tokjax.core.vocabulary import AddedToken
from tokjax.errors import TokenizerFormatError, UnsupportedTokenizerError
from tokjax.formats.huggingface import parts
from tokjax.formats.huggingface.definition_checks import check_before_loading, check_pieces
from tokjax.models.byte_spans import SPACE
from tokjax.models.metaspace import BYTE_FORMS, METASPACE, MetaspaceBPE
from tokjax.models.sentencepiece_files import parse_model_info, parse_pieces
from tokjax.models.unigram import Prepends, Unigram
from tokjax.models.unigram_characters import attaches
from tokjax.pretokenize.aligned_text import PREPENDING, StepNormalizer
from tokjax.pretokenize.special_tokens import WHITE_SPACE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tokjax.core.vocabulary import Role, Vocabulary
    from tokjax.models.metaspace import PrefixSpace
    from tokjax.models.sentencepiece import SentencePieceTokenizer
    from tokjax.models.sentencepiece_files import ModelInfo, Pieces

_PREPEND = {"type": "Prepend", "prepend": METASPACE}
_SPACE_TO_METASPACE = {"type": "Replace", "pattern": {"String": " "}, "content": METASPACE}
_DECODERS: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"String": METASPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
_SCHEMES: dict[str, PrefixSpace | None] = {"always": "missing", "first": "first", "never": None}
"""Metaspace's `prepend_scheme` to `add_prefix_space`."""
_MAX_EXACT_DIGITS, _MAX_EXPONENT = 15, 308


def parse_metaspace_bpe(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> MetaspaceBPE:
    """Builds the built-in tokenizer of a definition of BPE with byte fallback.

    Raises:
        InvalidArgumentError: the tokenizer has to run on the library.
        parts.RequiresLibraryError: likewise.
        TokenizerFormatError: the definition is invalid.
    """
    model = contents["model"]
    if parts.get_flag(model, "ignore_merges"):
        raise parts.RequiresLibraryError("its BPE model has ignore_merges and byte_fallback")
    add_prefix_space, split_words = _parse_space_handling(contents)
    strip = _parse_strip(contents)
    normalizer = " and ".join(parts.list_types(parts.get_steps(contents, "normalizer")))
    forms, added = parts.parse_tokens(contents, normalizer or None)
    merges = _drop_special_merges(parts.parse_merges(model["merges"], forms), forms.keys() & added.special)
    unmatched = parts.find_unmatched_tokens(contents, forms, added)
    unknown = model.get("unk_token")
    if unknown is not None and unknown not in added.special | unmatched:
        raise parts.RequiresLibraryError(f"its unknown token {unknown!r} is not a special token")
    ordinary = {form: id_ for form, id_ in forms.items() if form not in added.special}
    for form in ordinary:
        if form[:3] == "<0x" and parts.LIKE_BYTE.fullmatch(form) and form not in BYTE_FORMS:
            raise parts.RequiresLibraryError(
                f"the token {form!r} is decoded to a byte, but no byte becomes it"
            )
    all_roles: dict[Role, str] = {**roles, **({} if unknown is None else {"unk": unknown})}
    vocabulary = parts.build_vocabulary(contents, all_roles, ordinary, added, unmatched)
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
        parts.RequiresLibraryError: a special token contains `▁`, so that a text with a space can become it.
    """
    in_merges = parts.find_in_merges(set(special), merges)
    for form in special:
        if METASPACE in form and (form in in_merges or form == METASPACE):
            raise parts.RequiresLibraryError(f"text can become the special token {form!r}")
    if not in_merges:
        return list(merges)
    return [merge for merge in merges if in_merges.isdisjoint((*merge, "".join(merge)))]


def _parse_space_handling(contents: Mapping[str, Any]) -> tuple[PrefixSpace | None, bool]:
    """Returns `add_prefix_space` and `split_words`, if the steps handle spaces and nothing else.

    The head of the module has examples.
    """
    normalizers, pre_tokenizers = (
        parts.get_steps(contents, "normalizer"),
        parts.get_steps(contents, "pre_tokenizer"),
    )
    if not normalizers:
        [step] = parts.select_steps(contents, "pre_tokenizer", ["Metaspace"])
        scheme, split = _parse_metaspace(step)
        return _SCHEMES[scheme], split
    if normalizers not in ([_PREPEND, _SPACE_TO_METASPACE], [_SPACE_TO_METASPACE]):
        parts.reject_steps(contents, "normalizer")
    # Gemma's file also splits at spaces. That has no effect: the normalizer has replaced all of them.
    parts.select_steps(contents, "pre_tokenizer", [], ["Split"])
    for step in pre_tokenizers:
        if step.get("pattern") != {"String": " "} or parts.get_flag(step, "invert"):
            parts.reject_steps(contents, "pre_tokenizer")
    return ("always" if len(normalizers) == 2 else None), False


def _parse_metaspace(step: Mapping[str, Any]) -> tuple[Prepends, bool]:
    """Returns the `prepend_scheme` of a `Metaspace`, and whether it splits at spaces.

    Old files have `add_prefix_space` in addition.
    """
    scheme = step.get("prepend_scheme", "always")
    if scheme not in get_args(Prepends) or (step.get("add_prefix_space") is False and scheme != "never"):
        raise parts.RequiresLibraryError(f"its Metaspace has the prepend_scheme {scheme!r}")
    if step.get("replacement") != METASPACE:
        raise parts.RequiresLibraryError(f"its Metaspace writes {step.get('replacement')!r} for spaces")
    return scheme, step.get("split") is None or parts.get_flag(step, "split")


def _parse_strip(contents: Mapping[str, Any]) -> bool:
    """Returns whether the decoder removes a space at the start of the text.

    Raises:
        parts.RequiresLibraryError: the decoder is not that of Llama 2, Mistral or Gemma.
    """
    decoders = parts.get_steps(contents, "decoder")
    # As JSON: in Python, `True` and `1` would be equal.
    if json.dumps(decoders, sort_keys=True) not in (
        json.dumps(expected, sort_keys=True) for expected in (_DECODERS, [*_DECODERS, _STRIP])
    ):
        parts.reject_steps(contents, "decoder")
    return len(decoders) > len(_DECODERS)


def build_metaspace_bpe(tokenizer: MetaspaceBPE) -> dict[str, Any]:
    """Builds the normalizer, pre-tokenizer, decoder and model of a `tokenizer.json`."""
    steps: dict[str, Any]
    if tokenizer.add_prefix_space == "always":
        steps = {"normalizer": {"type": "Sequence", "normalizers": [_PREPEND, _SPACE_TO_METASPACE]}}
    elif tokenizer.add_prefix_space is None and not tokenizer.split_words:
        steps = {"normalizer": _SPACE_TO_METASPACE}
    else:
        [scheme] = (name for name, prefix in _SCHEMES.items() if prefix == tokenizer.add_prefix_space)
        steps = {"pre_tokenizer": _build_metaspace_step(scheme, split=tokenizer.split_words)}
    return steps | _build_model(tokenizer.vocabulary, tokenizer.merges, strip=bool(tokenizer.strip))


def _build_model(
    vocabulary: Vocabulary, merges: Sequence[tuple[str, str]], *, strip: bool, byte_fallback: bool = True
) -> dict[str, Any]:
    """Builds the decoder and the model of a vocabulary that writes spaces as `▁`.

    Args:
        vocabulary: all tokens.
        merges: pairs of written forms, in order of priority.
        strip: whether decoding removes a space at the start of a text.
        byte_fallback: whether unknown characters become byte tokens.
    """
    fields: dict[str, Any] = {
        "unk_token": vocabulary.roles.get("unk"),
        "fuse_unk": True,
        "byte_fallback": byte_fallback,
    }
    return {
        "decoder": {"type": "Sequence", "decoders": [*_DECODERS, *([_STRIP] if strip else [])]},
        "model": parts.build_bpe_model(parts.build_text_forms(vocabulary), merges, **fields),
    }


def _build_metaspace_step(scheme: str, *, split: bool = True) -> dict[str, Any]:
    """Builds a step `Metaspace` of a pre-tokenizer or decoder."""
    return {"type": "Metaspace", "replacement": METASPACE, "prepend_scheme": scheme, "split": split}


def build_sentencepiece(tokenizer: SentencePieceTokenizer) -> dict[str, Any]:
    """Builds the parts of a definition of a SentencePiece BPE model.

    Raises:
        UnsupportedTokenizerError: the format can't represent the model.
    """
    info = parse_model_info(tokenizer.model_proto)
    pieces = parse_pieces(tokenizer.model_proto, has_byte_fallback=info.has_byte_fallback)
    merged = sorted((piece for piece in pieces.scores if len(piece) > 1), key=pieces.scores.__getitem__)[::-1]
    for problem in _iter_problems(info, pieces, merged):
        raise UnsupportedTokenizerError(
            f"a tokenizer.json can't represent a SentencePiece model {problem}; pass format='sentencepiece' "
            "to write the .model"
        )
    merges = [
        (piece[:index], piece[index:])
        for piece in merged
        for index in range(len(piece) - 1, 0, -1)
        if piece[:index] in pieces.scores and piece[index:] in pieces.scores
    ]
    strip = info.spaces.is_added or info.spaces.are_merged
    model = _build_model(tokenizer.vocabulary, merges, strip=strip, byte_fallback=bool(pieces.byte_ids))
    return {"normalizer": _build_normalizer(info), "pre_tokenizer": None, **model}


def _iter_problems(info: ModelInfo, pieces: Pieces, merged: Sequence[str]) -> Iterator[str]:
    """Iterates over the reasons for which merging pairs by rank gives other pieces than a model.

    Args:
        info: properties of the model.
        pieces: pieces of the model.
        merged: pieces of several characters, by descending score.
    """
    if info.model_type != "bpe":
        yield f"of the type {info.model_type}, only bpe"
    if info.spaces.is_suffix or info.spaces.mark != SPACE:
        yield "that does not write spaces as ▁ before words"
    if pieces.has_unused or pieces.symbols:
        yield "with unused pieces or user-defined symbols"
    for first, second in itertools.pairwise(merged):
        if pieces.scores[first] == pieces.scores[second]:
            yield f"with the pieces {first!r} and {second!r} of equal scores"
    for piece in merged:
        if not pieces.scores.keys() >= {*piece}:
            yield f"with the piece {piece!r}, of which a character is not a piece"


def _build_normalizer(info: ModelInfo) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    if info.charsmap:
        charsmap = base64.b64encode(info.charsmap).decode("ascii")
        steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if info.spaces.are_merged:
        steps += [
            {"type": "Replace", "pattern": {"Regex": expression}, "content": content}
            for expression, content in ((r"\A +", ""), (" {2,}", " "), (rf"[ {METASPACE}]+\z", ""))
        ]
    steps += [_PREPEND] * info.spaces.is_added
    steps.append(_SPACE_TO_METASPACE)
    return {"type": "Sequence", "normalizers": steps} if len(steps) > 1 else steps[0]


def parse_unigram(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> Unigram:
    """Builds the built-in tokenizer of a definition of a unigram model.

    Raises:
        InvalidArgumentError: the tokenizer has to run on the library.
        parts.RequiresLibraryError: likewise.
        TokenizerFormatError: the definition is invalid.
    """
    check_before_loading(contents)
    model, steps = contents["model"], parts.get_steps(contents, "normalizer")
    normalizer = _parse_normalizer(steps)
    *splits, metaspace = parts.select_steps(
        contents, "pre_tokenizer", ["Metaspace"], ["WhitespaceSplit", "Metaspace"]
    )
    prepends, split = _parse_metaspace(metaspace)
    if not split:
        raise parts.RequiresLibraryError("its Metaspace has split=False")
    if splits and "Prepend" in normalizer.types:
        raise parts.RequiresLibraryError("its normalizer has Prepend, and its pre-tokenizer WhitespaceSplit")
    [decoder] = parts.select_steps(contents, "decoder", ["Metaspace"])
    strip = _parse_metaspace(decoder)[0] != "never"
    pieces = _parse_pieces(model)
    vocabulary, normalized = _parse_unigram_vocabulary(contents, roles, pieces, normalizer)
    byte_fallback = parts.get_flag(model, "byte_fallback")
    options = prepends, bool(splits), strip, normalized
    return Unigram(vocabulary, pieces, model["unk_id"], byte_fallback, json.dumps(steps), *options)


def _parse_unigram_vocabulary(
    contents: Mapping[str, Any],
    roles: Mapping[Role, str],
    pieces: Sequence[tuple[str, float]],
    normalizer: StepNormalizer,
) -> tuple[Vocabulary, tuple[tuple[str, int, AddedToken], ...]]:
    """Returns the vocabulary, and the added tokens that are matched in normalized text."""
    forms = {piece: id_ for id_, (piece, _) in enumerate(pieces)}
    tokens = contents.get("added_tokens") or []
    parts.check_added_ids(tokens, forms)
    in_text, in_normalized = (
        [
            token
            for token in tokens
            if (bool(normalizer.types) and parts.get_flag(token, "normalized")) == flag
        ]
        for flag in (False, True)
    )
    added = parts.parse_added_tokens({"added_tokens": in_text}, normalizer=None)
    later = parts.parse_added_tokens({"added_tokens": in_normalized}, normalizer=None)
    later_ids = later.special | later.ordinary
    for name in later_ids:
        if normalizer.normalize_string(name) != name or any(c in WHITE_SPACE or c == METASPACE for c in name):
            raise parts.RequiresLibraryError(f"the added token {name!r} is matched in normalized text")
    all_added = added._replace(ordinary=added.ordinary | later_ids)
    unmatched = later.special | parts.find_unmatched_tokens(contents, forms, all_added)
    special = added.special | unmatched
    ordinary = {form: id_ for form, id_ in (forms | later_ids).items() if form not in special}
    return (
        parts.build_vocabulary(contents, roles, ordinary, added, unmatched),
        tuple((name, later_ids[name], later.flags.get(name, AddedToken())) for name in sorted(later_ids)),
    )


def _parse_pieces(model: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    """Returns the pieces and scores of a model for which arrays give the result of the library."""
    if model.get("unk_id") is None:
        raise parts.RequiresLibraryError("its Unigram model has no unknown token")
    pieces = [piece for piece, _ in model["vocab"]]
    if not 0 <= model["unk_id"] < len(pieces):
        raise TokenizerFormatError(f"its unk_id is {model['unk_id']!r}, and it has {len(pieces)} pieces")
    check_pieces(pieces)
    if not all(pieces) or not is_encodable("".join(pieces)):
        raise parts.RequiresLibraryError("a piece is empty, or has a lone surrogate")
    scores = [round_like_library(score) for _, score in model["vocab"]]
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
            raise parts.RequiresLibraryError(f"its normalizer replaces {literal!r} by {content!r}")
        if step.get("type") == "Prepend" and step.get("prepend") not in (METASPACE, " "):
            raise parts.RequiresLibraryError(f"its normalizer prepends {step.get('prepend')!r}")
    if parts.list_types(steps).count("Precompiled") > 1:
        raise parts.RequiresLibraryError("its normalizer has several character maps")
    try:
        return StepNormalizer(steps)
    except (KeyError, ValueError) as error:
        raise parts.RequiresLibraryError(
            f"its normalizer is {' and '.join(parts.list_types(steps))} ({error})"
        ) from error


def _is_inert(character: str) -> bool:
    """Returns whether a character is no whitespace, and changes none before or after it."""
    is_space = character in WHITE_SPACE or character == METASPACE
    return not (is_space or attaches(character) or re.match(f"[{PREPENDING}]", character))


def build_unigram(tokenizer: Unigram) -> dict[str, Any]:
    """Builds the parts of a definition."""
    vocabulary, steps = tokenizer.vocabulary, json.loads(tokenizer.steps)
    split = _build_metaspace_step(tokenizer.prepends)
    splits = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, split]}
    normalized = [
        parts.build_added_token(vocabulary, name, id_, options, normalized=True)
        for name, id_, options in tokenizer.normalized_tokens
    ]
    return {
        "added_tokens": sorted([*parts.build_added_tokens(vocabulary), *normalized], key=itemgetter("id")),
        "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
        "pre_tokenizer": splits if tokenizer.splits_whitespace else split,
        "decoder": _build_metaspace_step("always" if tokenizer.strip else "never"),
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unknown_id,
            "vocab": list(map(list, tokenizer.pieces)),
            "byte_fallback": tokenizer.byte_fallback,
        },
    }
