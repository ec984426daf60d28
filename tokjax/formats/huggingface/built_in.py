"""tokjax's own tokenizers from a `tokenizer.json`, where they do exactly what the library does."""

from __future__ import annotations

from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tokjax.bpe.merge_rules import RulesTooLargeError
from tokjax.core.utf8 import is_encodable
from tokjax.formats.huggingface.definition import (
    NotOursError,
    bytes_of_forms,
    flag_of,
    parts_of,
    with_added,
)
from tokjax.formats.huggingface.metaspace import metaspace_of
from tokjax.formats.huggingface.parts import (
    added_tokens_of,
    check_added_ids,
    merges_of,
    one_type,
    trim_of,
    vocabulary_of_parts,
)
from tokjax.formats.reading import ids_of_forms
from tokjax.models.byte_bpe import ByteLevelBPE, byte_level_bpe_of
from tokjax.models.word_level import WordLevelTokenizer, word_level_of
from tokjax.models.wordpiece import WordPieceTokenizer, wordpiece_of
from tokjax.pretokenize.bert_normalizer import bert_normalizer
from tokjax.pretokenize.bytes_to_unicode import all_from_stand_ins, from_stand_ins
from tokjax.pretokenize.patterns import published_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokjax.core.vocabulary import Role, Vocabulary
    from tokjax.models.base import SegmentModel
    from tokjax.models.metaspace_bpe import MetaspaceBPE
    from tokjax.pretokenize.word_boundaries import Splitter

_BERT_STEPS = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
_SPLITTERS: dict[str, Splitter] = {"WhitespaceSplit": "whitespace", "BertPreTokenizer": "bert"}


def model_of(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> SegmentModel:
    """The tokenizer of a definition.

    Args:
        contents: the definition.
        roles: which tokens have which role, those of them that are special.

    Raises:
        NotOursError: it has to run on the library.
        TokenizerFormatError: the definition makes no tokenizer.
    """
    model = contents["model"]
    kind = model.get("type") or ("BPE" if "merges" in model else "WordPiece")
    if kind not in _MODELS:
        raise NotOursError(f"its model is {kind}")
    return _MODELS[kind](contents, roles)


def _bpe(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> ByteLevelBPE | MetaspaceBPE:
    model = contents["model"]
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option):
            raise NotOursError(f"its BPE model has {option}={model[option]!r}")
    try:
        return (metaspace_of if flag_of(model, "byte_fallback") else _byte_level)(contents, roles)
    except RulesTooLargeError as error:
        raise NotOursError(str(error)) from error


def _byte_level(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> ByteLevelBPE:
    model = contents["model"]
    _check_decoder(contents, "ByteLevel")
    normalizer = one_type(contents, "normalizer")
    if normalizer not in (None, "NFC"):
        raise NotOursError(f"its normaliser is {normalizer}")
    pattern, prefix_space = _pattern_of(contents)
    added = added_tokens_of(contents, normalizes=normalizer is not None)
    forms = ids_of_forms(model["vocab"], "the model's vocab")
    around = {**added.special, **added.ordinary}
    if any(from_stand_ins(name) not in (None, name.encode("utf-8")) for name in around):
        raise NotOursError("an added token is decoded to other bytes than its own")
    check_added_ids(contents.get("added_tokens") or [], forms)
    own = {form: id_ for form, id_ in forms.items() if form not in around}
    ordinary, twins = with_added(bytes_of_forms(own), added.ordinary)
    if not all(bytes([i]) in ordinary for i in range(256)):
        raise NotOursError("its vocabulary does not hold every single byte")
    vocabulary = vocabulary_of_parts(contents, ordinary, added, roles, twins)
    merges = _merges(model["merges"], forms)
    in_merges = chain(chain.from_iterable(merges), map(b"".join, merges))
    if not all(map(ordinary.__contains__, in_merges)):
        raise NotOursError("a special token is a part of a merge, or made by one")
    return byte_level_bpe_of(
        vocabulary,
        pattern,
        "nfc" if normalizer else None,
        merges=merges,
        whole_words=flag_of(model, "ignore_merges"),
        prefix_space=prefix_space,
        trim=trim_of(contents),
    )


def _pattern_of(contents: Mapping[str, Any]) -> tuple[str, bool]:
    """The name of the split pattern, and whether a blank is put before texts."""
    parts = parts_of(contents, "pre_tokenizer")
    kinds = [part.get("type") for part in parts]
    if kinds == ["ByteLevel"] and flag_of(parts[0], "use_regex", True):
        return "gpt2", flag_of(parts[0], "add_prefix_space", True)
    if kinds != ["Split", "ByteLevel"]:
        raise NotOursError(f"its pre-tokenizer is {' and '.join(map(str, kinds)) or 'none'}")
    split, byte_level = parts
    expression = split.get("pattern", {}).get("Regex")
    twice = flag_of(byte_level, "use_regex", True) or flag_of(byte_level, "add_prefix_space", True)
    if twice:
        raise NotOursError("its pre-tokenizer splits twice, or puts blanks between words")
    # A published pattern matches all of any text: to remove what it does not match removes nothing.
    how = split.get("behavior"), flag_of(split, "invert")
    if how not in (("Isolated", False), ("Removed", True)):
        raise NotOursError(f"its pre-tokenizer splits with the behaviour {how[0]!r} and invert={how[1]}")
    name = published_name(expression) if isinstance(expression, str) else None
    if name is None:
        raise NotOursError("its split pattern is not one that tokjax knows")
    return name, False


def _wordpiece(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> WordPieceTokenizer:
    model = contents["model"]
    pre_tokenizer = one_type(contents, "pre_tokenizer")
    if pre_tokenizer != "BertPreTokenizer":
        raise NotOursError(f"its pre-tokenizer is {pre_tokenizer}")
    normalizer = bert_normalizer(**_bert_steps(contents))
    vocabulary = _words(contents, roles, normalizes=not normalizer.is_idle)
    prefix = model["continuing_subword_prefix"]
    return wordpiece_of(
        vocabulary,
        normalizer,
        prefix,
        model["max_input_chars_per_word"],
        cleanup=_cleans_up(contents, prefix),
    )


def _check_decoder(contents: Mapping[str, Any], kind: str | None) -> None:
    """Raises `NotOursError` unless the decoder is of this type, or there is none."""
    decoder = contents.get("decoder")
    found = None if decoder is None else one_type(contents, "decoder") or "an empty Sequence"
    if found != kind:
        raise NotOursError(f"its decoder is {found or 'none'}")


def _cleans_up(contents: Mapping[str, Any], prefix: str) -> bool:
    """Returns whether decoding removes the space before punctuation."""
    _check_decoder(contents, "WordPiece")
    [decoder] = parts_of(contents, "decoder")
    if decoder.get("prefix") != prefix:
        raise NotOursError(f"its decoder is WordPiece with the prefix {decoder.get('prefix')!r}")
    return flag_of(decoder, "cleanup", True)


def _word_level(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> WordLevelTokenizer:
    _check_decoder(contents, None)
    steps = _bert_steps(contents)
    lowercase = steps.pop("lowercase")
    splitter = _SPLITTERS.get(one_type(contents, "pre_tokenizer") or "")
    strips = lowercase if steps["strip_accents"] is None else steps["strip_accents"]
    if splitter is None or strips or steps["clean_text"] or steps["handle_chinese_chars"]:
        raise NotOursError("it splits or normalises words in another way than word_level does")
    return word_level_of(_words(contents, roles, normalizes=lowercase), splitter, lowercase)


def _bert_steps(contents: Mapping[str, Any]) -> dict[str, Any]:
    """What a normaliser that is BERT's, or none, does."""
    kind = one_type(contents, "normalizer")
    if kind is None:
        return dict.fromkeys(_BERT_STEPS, False)
    if kind != "BertNormalizer":
        raise NotOursError(f"its normaliser is {kind}")
    [part] = parts_of(contents, "normalizer")
    return {name: part.get(name) for name in _BERT_STEPS}


def _words(contents: Mapping[str, Any], roles: Mapping[Role, str], *, normalizes: bool) -> Vocabulary:
    """A vocabulary of words, of which the unknown is special in any case."""
    model = contents["model"]
    if trim_of(contents) is not None:
        raise NotOursError("its post-processor trims offsets")
    added = added_tokens_of(contents, normalizes=normalizes)
    forms = ids_of_forms(model["vocab"], "the model's vocab")
    check_added_ids(contents.get("added_tokens") or [], forms)
    unknown = model["unk_token"]
    if unknown not in forms:
        raise NotOursError(f"its vocabulary does not hold its unknown token {unknown!r}")
    if unknown not in added.special:
        raise NotOursError(f"its unknown token {unknown!r} is no special one")
    if not is_encodable("".join(forms)):
        raise NotOursError("a token of its vocabulary is no text")
    ordinary = {form: id_ for form, id_ in forms.items() if form not in added.special} | added.ordinary
    in_utf8 = {form.encode("utf-8"): id_ for form, id_ in ordinary.items()}
    return vocabulary_of_parts(contents, in_utf8, added, {**roles, "unk": unknown})


def _merges(listed: Any, forms: Mapping[str, int]) -> list[tuple[bytes, bytes]]:
    """The pairs of a list of merges."""
    tokens = dict(zip(forms, all_from_stand_ins(forms), strict=True))
    pairs = merges_of(listed, forms)
    lefts, rights = (list(map(tokens.__getitem__, map(itemgetter(side), pairs))) for side in (0, 1))
    for side in (lefts, rights):
        if None in side:
            left, right = pairs[side.index(None)]
            raise NotOursError(f"the merge of {left!r} and {right!r} is of tokens that stand for no bytes")
    return list(zip(lefts, rights, strict=True))  # type: ignore[arg-type]


_MODELS: dict[str, Callable[[Mapping[str, Any], Mapping[Role, str]], SegmentModel]] = {
    "BPE": _bpe,
    "WordPiece": _wordpiece,
    "WordLevel": _word_level,
}
