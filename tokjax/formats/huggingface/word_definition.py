"""WordPiece, WordLevel and BPE of words from a `tokenizer.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokjax.core.utf8 import is_encodable
from tokjax.errors import InvalidArgumentError
from tokjax.formats.huggingface.definition import (
    RequiresLibraryError,
    build_definition_vocabulary,
    check_added_ids,
    check_decoder,
    find_in_merges,
    get_flag,
    get_single_type,
    get_steps,
    parse_added_tokens,
    parse_merges,
    parse_trim_offsets,
)
from tokjax.formats.tokenizer_files import parse_token_ids
from tokjax.models.word_bpe import END_OF_WORD, WordBPE, make_word_bpe, merge_order_is_unique
from tokjax.models.word_level import WordLevelTokenizer, make_word_level
from tokjax.models.wordpiece import WordPieceTokenizer, make_wordpiece
from tokjax.pretokenize.bert_normalizer import bert_normalizer
from tokjax.pretokenize.word_boundaries import compile_word_expression

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.core.vocabulary import Role, Vocabulary
    from tokjax.models.word_bpe import EndOfWord
    from tokjax.pretokenize.bert_normalizer import BertNormalizer
    from tokjax.pretokenize.word_boundaries import Splitter

_BERT_OPTIONS = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
SPLITTERS: dict[str, Splitter] = {"WhitespaceSplit": "whitespace", "BertPreTokenizer": "bert"}


def parse_wordpiece(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> WordPieceTokenizer:
    """Builds the built-in tokenizer of a definition of WordPiece.

    Raises:
        RequiresLibraryError: the tokenizer has to run on the library.
        TokenizerFormatError: the definition is invalid.
    """
    model = contents["model"]
    pre_tokenizer = get_single_type(contents, "pre_tokenizer")
    if pre_tokenizer != "BertPreTokenizer":
        raise RequiresLibraryError(f"its pre-tokenizer is {pre_tokenizer}")
    normalizer = bert_normalizer(**_parse_bert_options(contents))
    vocabulary = _parse_word_vocabulary(contents, roles, normalizes=not normalizer.is_identity)
    check_special_words(vocabulary, normalizer, "bert")
    prefix = model["continuing_subword_prefix"]
    return make_wordpiece(
        vocabulary,
        normalizer,
        prefix,
        model["max_input_chars_per_word"],
        cleanup=_parse_cleanup(contents, prefix),
    )


def _parse_cleanup(contents: Mapping[str, Any], prefix: str) -> bool:
    """Returns whether decoding removes the space before punctuation."""
    check_decoder(contents, "WordPiece")
    [decoder] = get_steps(contents, "decoder")
    if decoder.get("prefix") != prefix:
        raise RequiresLibraryError(f"its decoder is WordPiece with the prefix {decoder.get('prefix')!r}")
    return get_flag(decoder, "cleanup", True)


def parse_word_bpe(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> WordBPE:
    """Builds the built-in tokenizer of a definition of BPE of words.

    Raises:
        RequiresLibraryError: the tokenizer has to run on the library.
        TokenizerFormatError: the definition is invalid.
    """
    model = contents["model"]
    for option in ("byte_fallback", "fuse_unk", "ignore_merges"):
        if get_flag(model, option):
            raise RequiresLibraryError(f"its BPE model of words has {option}=true")
    end_of_word: EndOfWord | None = "suffix" if model.get("end_of_word_suffix") else None
    check_decoder(contents, "BPEDecoder" if end_of_word else "Fuse")
    if end_of_word and get_steps(contents, "decoder")[0].get("suffix") != END_OF_WORD:
        raise RequiresLibraryError("its decoder is BPEDecoder with another suffix")
    splitter = SPLITTERS.get(get_single_type(contents, "pre_tokenizer") or "")
    if splitter is None:
        raise RequiresLibraryError("its pre-tokenizer is not one that word_bpe has")
    normalizer = bert_normalizer(**_parse_bert_options(contents))
    vocabulary = _parse_word_vocabulary(contents, roles, normalizes=not normalizer.is_identity)
    forms: Mapping[str, int] = model["vocab"]
    merges = parse_merges(model["merges"], forms)
    _check_word_forms(vocabulary, forms, merges, end_of_word)
    try:
        return make_word_bpe(
            vocabulary,
            merges,
            normalizer,
            splitter=splitter,
            end_of_word=end_of_word,
            byte_level=False,
            unknown="token",
        )
    except InvalidArgumentError as error:
        raise RequiresLibraryError(str(error)) from error


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
    for name in sorted(find_in_merges(special, merges)) + [
        name for name in (*special, *added) if len(name.removesuffix(suffix)) <= 1
    ]:
        raise RequiresLibraryError(f"text can become the added token {name!r}")
    if not merge_order_is_unique(merges):
        raise RequiresLibraryError("a token is used before the last merge that makes it")
    names = {*special, *(name.removesuffix(suffix) for name in (*forms, *added) if name not in special)}
    ambiguous = [name for name in names if suffix and suffix in name]
    if ambiguous:
        raise RequiresLibraryError(f"its token {min(ambiguous)!r} has {suffix!r} before its end")


def parse_word_level(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> WordLevelTokenizer:
    """Builds the built-in tokenizer of a definition of a word-level model.

    Raises:
        RequiresLibraryError: the tokenizer has to run on the library.
        TokenizerFormatError: the definition is invalid.
    """
    check_decoder(contents, None)
    options = _parse_bert_options(contents)
    lowercase = options.pop("lowercase")
    splitter = SPLITTERS.get(get_single_type(contents, "pre_tokenizer") or "")
    strips_accents = lowercase if options["strip_accents"] is None else options["strip_accents"]
    if splitter is None or strips_accents or options["clean_text"] or options["handle_chinese_chars"]:
        raise RequiresLibraryError("its normalizer or pre-tokenizer is not one that word_level has")
    vocabulary = _parse_word_vocabulary(contents, roles, normalizes=lowercase)
    check_special_words(vocabulary, bert_normalizer(**options, lowercase=lowercase), splitter)
    return make_word_level(vocabulary, splitter, lowercase)


def _parse_bert_options(contents: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a `BertNormalizer`; all `False` if the definition has no normalizer."""
    normalizer = get_single_type(contents, "normalizer")
    if normalizer is None:
        return dict.fromkeys(_BERT_OPTIONS, False)
    if normalizer != "BertNormalizer":
        raise RequiresLibraryError(f"its normalizer is {normalizer}")
    [step] = get_steps(contents, "normalizer")
    return {name: step.get(name) for name in _BERT_OPTIONS}


def _parse_word_vocabulary(
    contents: Mapping[str, Any], roles: Mapping[Role, str], *, normalizes: bool
) -> Vocabulary:
    """Parses the vocabulary of a WordPiece or WordLevel model, whose unknown token must be special."""
    model = contents["model"]
    if parse_trim_offsets(contents) is not None:
        raise RequiresLibraryError("its post-processor has trim_offsets=true")
    added_tokens = parse_added_tokens(contents, normalizer="BertNormalizer" if normalizes else None)
    forms = parse_token_ids(model["vocab"], "the model's vocab")
    check_added_ids(contents.get("added_tokens") or [], forms)
    unknown = model.get("unk_token")
    if unknown not in forms:
        raise RequiresLibraryError(f"its unknown token {unknown!r} is not in the vocabulary")
    if unknown not in added_tokens.special:
        raise RequiresLibraryError(f"its unknown token {unknown!r} is not a special token")
    if not is_encodable("".join(forms)):
        raise RequiresLibraryError("a token of its vocabulary has a lone surrogate")
    ordinary = {
        form: id_ for form, id_ in forms.items() if form not in added_tokens.special
    } | added_tokens.ordinary
    ordinary_bytes = {form.encode("utf-8"): id_ for form, id_ in ordinary.items()}
    model_token_ids = {name: id_ for name, id_ in added_tokens.ordinary.items() if name in forms}
    all_roles: dict[Role, str] = {**roles, "unk": unknown}
    return build_definition_vocabulary(contents, ordinary_bytes, added_tokens, all_roles, model_token_ids)


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
            raise RequiresLibraryError(f"text can become the special token {name!r}")
