"""tokjax's own tokenizers from a `tokenizer.json`, where they do exactly what the library does."""

from __future__ import annotations

import json
import re
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax.bpe.merge_rules import RulesTooLargeError
from tokjax.core.utf8 import is_encodable
from tokjax.formats.huggingface.definition import (
    RequiresLibraryError,
    build_definition_vocabulary,
    check_added_ids,
    decode_byte_level_forms,
    encode_forms,
    get_flag,
    get_literal_tokens,
    get_single_type,
    get_steps,
    merge_added_tokens,
    parse_added_tokens,
    parse_merges,
    parse_trim_offsets,
)
from tokjax.formats.tokenizer_files import parse_token_ids
from tokjax.models.byte_bpe import ByteLevelBPE, make_byte_level_bpe
from tokjax.models.metaspace_bpe import MetaspaceBPE, make_metaspace_bpe
from tokjax.models.metaspace import BYTE_FORMS, METASPACE
from tokjax.models.word_level import WordLevelTokenizer, make_word_level
from tokjax.models.wordpiece import WordPieceTokenizer, make_wordpiece
from tokjax.pretokenize.bert_normalizer import bert_normalizer
from tokjax.pretokenize.bytes_to_unicode import map_all_unicode_to_bytes, map_unicode_to_bytes
from tokjax.pretokenize.patterns import find_pattern_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokjax.core.vocabulary import Role, Vocabulary
    from tokjax.models.base import SegmentModel
    from tokjax.models.metaspace_bpe import MetaspaceBPE, PrefixSpace
    from tokjax.pretokenize.word_boundaries import Splitter


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


_BERT_STEPS = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
_SPLITTERS: dict[str, Splitter] = {"WhitespaceSplit": "whitespace", "BertPreTokenizer": "bert"}


def build_builtin_tokenizer(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> SegmentModel:
    """The tokenizer of a definition.

    Args:
        contents: the definition.
        roles: which tokens have which role, those of them that are special.

    Raises:
        RequiresLibraryError: it has to run on the library.
        TokenizerFormatError: the definition makes no tokenizer.
    """
    model = contents["model"]
    kind = model.get("type") or ("BPE" if "merges" in model else "WordPiece")
    if kind not in _MODELS:
        raise RequiresLibraryError(f"its model is {kind}")
    return _MODELS[kind](contents, roles)


def _parse_bpe(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> ByteLevelBPE | MetaspaceBPE:
    model = contents["model"]
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option):
            raise RequiresLibraryError(f"its BPE model has {option}={model[option]!r}")
    try:
        return (parse_metaspace_bpe if get_flag(model, "byte_fallback") else _parse_byte_level)(
            contents, roles
        )
    except RulesTooLargeError as error:
        raise RequiresLibraryError(str(error)) from error


def _parse_byte_level(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> ByteLevelBPE:
    model = contents["model"]
    _check_decoder(contents, "ByteLevel")
    normalizer = get_single_type(contents, "normalizer")
    if normalizer not in (None, "NFC"):
        raise RequiresLibraryError(f"its normaliser is {normalizer}")
    pattern, add_prefix_space = _parse_pattern(contents)
    added_tokens = parse_added_tokens(contents, normalizes=normalizer is not None)
    forms = parse_token_ids(model["vocab"], "the model's vocab")
    added_names = {**added_tokens.special, **added_tokens.ordinary}
    if any(map_unicode_to_bytes(name) not in (None, name.encode("utf-8")) for name in added_names):
        raise RequiresLibraryError("an added token is decoded to other bytes than its own")
    check_added_ids(contents.get("added_tokens") or [], forms)
    model_forms = {form: id_ for form, id_ in forms.items() if form not in added_names}
    ordinary, duplicate_token_ids = merge_added_tokens(
        decode_byte_level_forms(model_forms), added_tokens.ordinary
    )
    if not all(bytes([i]) in ordinary for i in range(256)):
        raise RequiresLibraryError("its vocabulary does not hold every single byte")
    vocabulary = build_definition_vocabulary(contents, ordinary, added_tokens, roles, duplicate_token_ids)
    merges = _parse_byte_merges(model["merges"], forms)
    in_merges = chain(chain.from_iterable(merges), map(b"".join, merges))
    if not all(map(ordinary.__contains__, in_merges)):
        raise RequiresLibraryError("a special token is a part of a merge, or made by one")
    return make_byte_level_bpe(
        vocabulary,
        pattern,
        "nfc" if normalizer else None,
        merges=merges,
        ignore_merges=get_flag(model, "ignore_merges"),
        add_prefix_space=add_prefix_space,
        trim_offsets=parse_trim_offsets(contents),
    )


def _parse_pattern(contents: Mapping[str, Any]) -> tuple[str, bool]:
    """The name of the split pattern, and whether a blank is put before texts."""
    parts = get_steps(contents, "pre_tokenizer")
    kinds = [part.get("type") for part in parts]
    if kinds == ["ByteLevel"] and get_flag(parts[0], "use_regex", True):
        return "gpt2", get_flag(parts[0], "add_prefix_space", True)
    if kinds != ["Split", "ByteLevel"]:
        raise RequiresLibraryError(f"its pre-tokenizer is {' and '.join(map(str, kinds)) or 'none'}")
    split, byte_level = parts
    expression = split.get("pattern", {}).get("Regex")
    splits_twice = get_flag(byte_level, "use_regex", True) or get_flag(byte_level, "add_prefix_space", True)
    if splits_twice:
        raise RequiresLibraryError("its pre-tokenizer splits twice, or puts blanks between words")
    # A published pattern matches all of any text: to remove what it does not match removes nothing.
    how = split.get("behavior"), get_flag(split, "invert")
    if how not in (("Isolated", False), ("Removed", True)):
        raise RequiresLibraryError(
            f"its pre-tokenizer splits with the behaviour {how[0]!r} and invert={how[1]}"
        )
    name = find_pattern_name(expression) if isinstance(expression, str) else None
    if name is None:
        raise RequiresLibraryError("its split pattern is not one that tokjax knows")
    return name, False


def _parse_wordpiece(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> WordPieceTokenizer:
    model = contents["model"]
    pre_tokenizer = get_single_type(contents, "pre_tokenizer")
    if pre_tokenizer != "BertPreTokenizer":
        raise RequiresLibraryError(f"its pre-tokenizer is {pre_tokenizer}")
    normalizer = bert_normalizer(**_parse_bert_steps(contents))
    vocabulary = _parse_word_vocabulary(contents, roles, normalizes=not normalizer.is_identity)
    prefix = model["continuing_subword_prefix"]
    return make_wordpiece(
        vocabulary,
        normalizer,
        prefix,
        model["max_input_chars_per_word"],
        cleanup=_parse_cleanup(contents, prefix),
    )


def _check_decoder(contents: Mapping[str, Any], kind: str | None) -> None:
    """Raises `RequiresLibraryError` unless the decoder is of this type, or there is none."""
    decoder = contents.get("decoder")
    found = None if decoder is None else get_single_type(contents, "decoder") or "an empty Sequence"
    if found != kind:
        raise RequiresLibraryError(f"its decoder is {found or 'none'}")


def _parse_cleanup(contents: Mapping[str, Any], prefix: str) -> bool:
    """Returns whether decoding removes the space before punctuation."""
    _check_decoder(contents, "WordPiece")
    [decoder] = get_steps(contents, "decoder")
    if decoder.get("prefix") != prefix:
        raise RequiresLibraryError(f"its decoder is WordPiece with the prefix {decoder.get('prefix')!r}")
    return get_flag(decoder, "cleanup", True)


def _parse_word_level(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> WordLevelTokenizer:
    _check_decoder(contents, None)
    steps = _parse_bert_steps(contents)
    lowercase = steps.pop("lowercase")
    splitter = _SPLITTERS.get(get_single_type(contents, "pre_tokenizer") or "")
    strips = lowercase if steps["strip_accents"] is None else steps["strip_accents"]
    if splitter is None or strips or steps["clean_text"] or steps["handle_chinese_chars"]:
        raise RequiresLibraryError("it splits or normalises words in another way than word_level does")
    return make_word_level(_parse_word_vocabulary(contents, roles, normalizes=lowercase), splitter, lowercase)


def _parse_bert_steps(contents: Mapping[str, Any]) -> dict[str, Any]:
    """What a normaliser that is BERT's, or none, does."""
    kind = get_single_type(contents, "normalizer")
    if kind is None:
        return dict.fromkeys(_BERT_STEPS, False)
    if kind != "BertNormalizer":
        raise RequiresLibraryError(f"its normaliser is {kind}")
    [part] = get_steps(contents, "normalizer")
    return {name: part.get(name) for name in _BERT_STEPS}


def _parse_word_vocabulary(
    contents: Mapping[str, Any], roles: Mapping[Role, str], *, normalizes: bool
) -> Vocabulary:
    """A vocabulary of words, of which the unknown is special in any case."""
    model = contents["model"]
    if parse_trim_offsets(contents) is not None:
        raise RequiresLibraryError("its post-processor trims offsets")
    added_tokens = parse_added_tokens(contents, normalizes=normalizes)
    forms = parse_token_ids(model["vocab"], "the model's vocab")
    check_added_ids(contents.get("added_tokens") or [], forms)
    unknown = model["unk_token"]
    if unknown not in forms:
        raise RequiresLibraryError(f"its vocabulary does not hold its unknown token {unknown!r}")
    if unknown not in added_tokens.special:
        raise RequiresLibraryError(f"its unknown token {unknown!r} is no special one")
    if not is_encodable("".join(forms)):
        raise RequiresLibraryError("a token of its vocabulary is no text")
    ordinary = {
        form: id_ for form, id_ in forms.items() if form not in added_tokens.special
    } | added_tokens.ordinary
    ordinary_bytes = {form.encode("utf-8"): id_ for form, id_ in ordinary.items()}
    return build_definition_vocabulary(contents, ordinary_bytes, added_tokens, {**roles, "unk": unknown})


def _parse_byte_merges(listed: Any, forms: Mapping[str, int]) -> list[tuple[bytes, bytes]]:
    """The pairs of a list of merges."""
    tokens = dict(zip(forms, map_all_unicode_to_bytes(forms), strict=True))
    pairs = parse_merges(listed, forms)
    lefts, rights = (list(map(tokens.__getitem__, map(itemgetter(side), pairs))) for side in (0, 1))
    for side in (lefts, rights):
        if None in side:
            left, right = pairs[side.index(None)]
            raise RequiresLibraryError(
                f"the merge of {left!r} and {right!r} is of tokens that stand for no bytes"
            )
    return list(zip(lefts, rights, strict=True))  # type: ignore[arg-type]


_MODELS: dict[str, Callable[[Mapping[str, Any], Mapping[Role, str]], SegmentModel]] = {
    "BPE": _parse_bpe,
    "WordPiece": _parse_wordpiece,
    "WordLevel": _parse_word_level,
}
