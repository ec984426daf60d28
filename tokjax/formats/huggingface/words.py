"""Definitions of models that encode words: WordPiece, word level and BPE of words. Parsed and written."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tokjax.errors import UnsupportedTokenizerError
from tokjax.formats.huggingface import parts
from tokjax.models.wordpiece import WordLevelTokenizer, WordPieceTokenizer
from tokjax.models.words import END_OF_WORD, WordBPE, merge_order_is_unique
from tokjax.pretokenize.normalization import bert_normalizer
from tokjax.pretokenize.word_boundaries import compile_word_expression

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.core.vocabulary import Role, Vocabulary
    from tokjax.models.words import EndOfWord
    from tokjax.pretokenize.normalization import BertNormalizer
    from tokjax.pretokenize.word_boundaries import Splitter

_SPLITTERS: dict[str, Splitter] = {"WhitespaceSplit": "whitespace", "BertPreTokenizer": "bert"}
WORD_SPLITTERS = [[name] for name in _SPLITTERS]
_BERT_OPTIONS = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")


def parse_wordpiece(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> WordPieceTokenizer:
    """Builds the built-in tokenizer of a definition of WordPiece."""
    model = contents["model"]
    prefix = model.get("continuing_subword_prefix")
    [decoder] = parts.select_steps(contents, "decoder", ["WordPiece"])
    if decoder.get("prefix") != prefix:
        raise parts.RequiresLibraryError(
            f"its decoder is WordPiece with the prefix {decoder.get('prefix')!r}"
        )
    parts.select_steps(contents, "pre_tokenizer", ["BertPreTokenizer"])
    vocabulary, normalizer, splitter = _parse_words(contents, roles)
    check_special_words(vocabulary, normalizer, splitter)
    cleanup = parts.get_flag(decoder, "cleanup", True)
    return WordPieceTokenizer(
        vocabulary, normalizer, prefix, model["max_input_chars_per_word"], cleanup=cleanup
    )


def parse_word_level(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> WordLevelTokenizer:
    """Builds the built-in tokenizer of a definition of a word-level model."""
    if contents.get("decoder") is not None:  # an empty Sequence is another decoder than none
        parts.reject_steps(contents, "decoder")
    vocabulary, normalizer, splitter = _parse_words(contents, roles)
    if not replace(normalizer, lowercase=False).is_identity:
        raise parts.RequiresLibraryError("its normalizer is not one that word_level has")
    check_special_words(vocabulary, normalizer, splitter)
    return WordLevelTokenizer(vocabulary, splitter, normalizer.lowercase)


def parse_word_bpe(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> WordBPE:
    """Builds the built-in tokenizer of a definition of BPE of words."""
    model = contents["model"]
    for option in ("byte_fallback", "fuse_unk", "ignore_merges"):
        if parts.get_flag(model, option):
            raise parts.RequiresLibraryError(f"its BPE model of words has {option}=true")
    end_of_word: EndOfWord | None = "suffix" if model.get("end_of_word_suffix") else None
    [decoder] = parts.select_steps(contents, "decoder", ["BPEDecoder" if end_of_word else "Fuse"])
    if end_of_word and decoder.get("suffix") != END_OF_WORD:
        raise parts.RequiresLibraryError("its decoder is BPEDecoder with another suffix")
    vocabulary, normalizer, splitter = _parse_words(contents, roles)
    forms: Mapping[str, int] = model["vocab"]
    merges = parts.parse_merges(model["merges"], forms)
    _check_word_forms(vocabulary, forms, merges, end_of_word)
    return WordBPE(
        vocabulary,
        merges,
        normalizer,
        splitter=splitter,
        end_of_word=end_of_word,
        byte_level=False,
        unknown="token",
    )


def _parse_words(
    contents: Mapping[str, Any], roles: Mapping[Role, str]
) -> tuple[Vocabulary, BertNormalizer, Splitter]:
    """Parses the vocabulary of a model of words, whose unknown token must be special, and its steps."""
    [splitter] = parts.select_steps(contents, "pre_tokenizer", *WORD_SPLITTERS)
    normalizers = parts.select_steps(contents, "normalizer", [], ["BertNormalizer"])
    options: dict[str, Any] = {
        name: normalizers[0].get(name) if normalizers else False for name in _BERT_OPTIONS
    }
    normalizer = bert_normalizer(**options)
    forms, added = parts.parse_tokens(contents, None if normalizer.is_identity else "BertNormalizer")
    unknown = contents["model"].get("unk_token")
    if unknown not in forms or unknown not in added.special:
        raise parts.RequiresLibraryError(
            f"its unknown token {unknown!r} is not a special token of its vocabulary"
        )
    ordinary = {form: id_ for form, id_ in forms.items() if form not in added.special}
    vocabulary = parts.build_vocabulary(contents, {**roles, "unk": unknown}, ordinary, added)
    return vocabulary, normalizer, _SPLITTERS[splitter["type"]]


def _check_word_forms(
    vocabulary: Vocabulary,
    forms: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    end_of_word: EndOfWord | None,
) -> None:
    """Raises `RequiresLibraryError` if a `WordBPE` encodes or decodes some of the tokens differently.

    Args:
        vocabulary: all tokens.
        forms: written form to id of the model's vocabulary.
        merges: pairs of written forms.
        end_of_word: mark of the end of a word.
    """
    suffix = END_OF_WORD if end_of_word else ""
    special = set(vocabulary.special)
    added = vocabulary.added_names - forms.keys()
    for name in sorted(parts.find_in_merges(special, merges)) + [
        name for name in (*special, *added) if len(name.removesuffix(suffix)) <= 1
    ]:
        raise parts.RequiresLibraryError(f"text can become the added token {name!r}")
    if not merge_order_is_unique(merges):
        raise parts.RequiresLibraryError("a token is used before the last merge that makes it")
    names = {*special, *(name.removesuffix(suffix) for name in (*forms, *added) if name not in special)}
    ambiguous = [name for name in names if suffix and suffix in name]
    if ambiguous:
        raise parts.RequiresLibraryError(f"its token {min(ambiguous)!r} has {suffix!r} before its end")


def check_special_words(vocabulary: Vocabulary, normalizer: BertNormalizer, splitter: Splitter) -> None:
    """Raises `RequiresLibraryError` if normalization can make a word of a text a special token.

    The library's model can produce any token of its vocabulary from ordinary text. A built-in tokenizer
    produces a special token only where it is matched in the text.

    Args:
        vocabulary: vocabulary of words.
        normalizer: normalization of texts.
        splitter: rule that separates words.
    """
    if normalizer.is_identity:
        return
    expression = compile_word_expression(splitter)
    for name in sorted(vocabulary.special_names - {vocabulary.roles.get("unk")}):
        if expression.fullmatch(name) and normalizer.normalize(name) == name:
            raise parts.RequiresLibraryError(f"text can become the special token {name!r}")


def _build_word_steps(normalizer: BertNormalizer, splitter: Splitter) -> dict[str, Any]:
    """Builds the normalizer and the pre-tokenizer of a tokenizer of words."""
    step = {"type": "BertNormalizer", **asdict(normalizer)}
    [name] = (name for name, other in _SPLITTERS.items() if other == splitter)
    return {"normalizer": None if normalizer.is_identity else step, "pre_tokenizer": {"type": name}}


def build_wordpiece(tokenizer: WordPieceTokenizer) -> dict[str, Any]:
    """Builds the parts of a definition."""
    prefix = tokenizer.continuing_prefix
    return {
        **_build_word_steps(tokenizer.normalizer, "bert"),
        "decoder": {"type": "WordPiece", "prefix": prefix, "cleanup": tokenizer.cleanup},
        "model": {
            "type": "WordPiece",
            "unk_token": tokenizer.vocabulary.roles["unk"],
            "continuing_subword_prefix": prefix,
            "max_input_chars_per_word": tokenizer.max_word_characters,
            "vocab": parts.build_vocab(tokenizer.vocabulary),
        },
    }


def build_word_level(tokenizer: WordLevelTokenizer) -> dict[str, Any]:
    """Builds the parts of a definition."""
    unknown, vocab = tokenizer.vocabulary.roles["unk"], parts.build_vocab(tokenizer.vocabulary)
    model = {"type": "WordLevel", "unk_token": unknown, "vocab": vocab}
    return {**_build_word_steps(tokenizer.normalizer, tokenizer.splitter), "decoder": None, "model": model}


def build_word_bpe(tokenizer: WordBPE) -> dict[str, Any]:
    """Builds the parts of a definition."""
    _check_word_bpe(tokenizer)
    suffix = END_OF_WORD if tokenizer.end_of_word else None
    return {
        **_build_word_steps(tokenizer.normalizer, tokenizer.splitter),
        "decoder": {"type": "BPEDecoder", "suffix": suffix} if suffix else {"type": "Fuse"},
        "model": parts.build_bpe_model(
            parts.build_vocab(tokenizer.vocabulary),
            tokenizer.merges,
            unk_token=tokenizer.vocabulary.roles["unk"],
            end_of_word_suffix=suffix,
        ),
    }


def _check_word_bpe(tokenizer: WordBPE) -> None:
    """Raises `UnsupportedTokenizerError` for options and merges that `tokenizers` does not have."""
    unsupported = {"end_of_word": "symbol", "byte_level": True, "unknown": "word"}
    for option, value in unsupported.items():
        if getattr(tokenizer, option) == value:
            raise UnsupportedTokenizerError(f"a tokenizer.json can't represent {option}={value!r}")
    ordinary = tokenizer.vocabulary.ordinary
    for left, right in tokenizer.merges:
        for part in (left, right, left + right):
            if part.encode("utf-8") not in ordinary:
                raise UnsupportedTokenizerError(
                    f"in a tokenizer.json, merges are of tokens; {part!r}, which the merge of {left!r} and "
                    f"{right!r} needs, is not an ordinary token"
                )
    if not merge_order_is_unique(tokenizer.merges):
        raise UnsupportedTokenizerError(
            "the tokenizers library merges the leftmost pair of lowest rank, not all such pairs together; "
            "the ids differ, since a merge uses a token that a later merge makes, too"
        )
