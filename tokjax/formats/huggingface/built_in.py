"""Built-in tokenizers from a `tokenizer.json`, for definitions where they give the library's exact result.

| model | conditions | built-in type |
|---|---|---|
| BPE | split patterns with boundary tables, and a vocabulary with all 256 bytes | `ByteLevelBPE` |
| BPE with `byte_fallback` | spaces written as `▁`, the byte tokens that texts need | `MetaspaceBPE` |
| BPE of words | a split at whitespace or BERT's, `</w>` or no mark at the end of words | `WordBPE` |
| WordPiece | BERT's normalizer and pre-tokenizer | `WordPieceTokenizer` |
| WordLevel | a split at whitespace or BERT's, and no normalizer or lower case | `WordLevelTokenizer` |
| Unigram | `Metaspace`, after `WhitespaceSplit` or not, and a normalizer of known steps | `Unigram` |

Each condition is checked. The first one that does not hold raises `RequiresLibraryError` with the reason, and
the tokenizer runs on the library (`tokjax.formats.huggingface.adapter`). See docs/bring-your-tokenizer.md,
section "What runs on the tokenizers library".

`definition.py` parses the parts that all models have. `metaspace_definition.py` builds the types that write
spaces as `▁`, and this module the others.
"""

from __future__ import annotations

import re
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tokjax.errors import InvalidArgumentError
from tokjax.formats.huggingface.definition import (
    RequiresLibraryError,
    build_vocabulary,
    find_in_merges,
    get_flag,
    get_steps,
    list_types,
    parse_merges,
    parse_tokens,
    parse_trim_offsets,
    reject_steps,
    select_steps,
)
from tokjax.formats.huggingface.metaspace_definition import parse_metaspace_bpe, parse_unigram
from tokjax.models.byte_bpe import ByteLevelBPE, make_byte_level_bpe
from tokjax.models.word_bpe import END_OF_WORD, WordBPE, make_word_bpe, merge_order_is_unique
from tokjax.models.word_level import WordLevelTokenizer, make_word_level
from tokjax.models.wordpiece import WordPieceTokenizer, make_wordpiece
from tokjax.pretokenize.bytes_to_unicode import (
    ALPHABET,
    BYTES,
    map_all_unicode_to_bytes,
    map_unicode_to_bytes,
)
from tokjax.pretokenize.normalization import bert_normalizer
from tokjax.pretokenize.patterns import (
    DIGIT,
    PATTERNS,
    Pattern,
    find_pattern_name,
    make_pattern_splitter,
    make_split_step,
)
from tokjax.pretokenize.split_expressions import make_range
from tokjax.pretokenize.unicode_classes import make_punctuation_set
from tokjax.pretokenize.word_boundaries import compile_word_expression

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokjax.core.vocabulary import Role, Vocabulary
    from tokjax.models.base import SegmentModel
    from tokjax.models.byte_bpe import Normalizer
    from tokjax.models.word_bpe import EndOfWord
    from tokjax.pretokenize.normalization import BertNormalizer
    from tokjax.pretokenize.word_boundaries import Splitter

SPLITTERS: dict[str, Splitter] = {"WhitespaceSplit": "whitespace", "BertPreTokenizer": "bert"}
_WORD_SPLITTERS = [[name] for name in SPLITTERS]
_BERT_OPTIONS = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
_VISIBLE_ASCII = make_range(ord("!"), ord("~"))
_DIGIT_BYTES = frozenset(byte for byte, form in zip(BYTES, ALPHABET, strict=True) if form.isnumeric())
"""Bytes that are written as digits: those of ASCII digits, and for example 0xB2, which is written `²`."""
_RAW_BYTE = re.compile(r"\\x[89A-Fa-f]")
"""An escape that is a byte for Oniguruma, and a character elsewhere."""


def build_builtin_tokenizer(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> SegmentModel:
    """Builds the built-in tokenizer of a definition.

    Args:
        contents: parsed `tokenizer.json`.
        roles: role to the name of a token; see `select_roles`.

    Raises:
        RequiresLibraryError: the tokenizer has to run on the library.
        TokenizerFormatError: the definition is invalid.
    """
    parse = _select_parser(contents)
    if parse is not _parse_byte_level and parse_trim_offsets(contents) is not None:
        raise RequiresLibraryError("its post-processor has trim_offsets=true")
    try:
        return parse(contents, roles)
    except InvalidArgumentError as error:
        raise RequiresLibraryError(str(error)) from error


def _select_parser(contents: Mapping[str, Any]) -> Callable[..., SegmentModel]:
    """Returns the function that builds the tokenizer of a model."""
    model = contents["model"]
    model_type = model.get("type") or ("BPE" if "merges" in model else "WordPiece")
    if model_type != "BPE":
        if model_type not in _PARSERS:
            raise RequiresLibraryError(f"its model is {model_type}")
        return _PARSERS[model_type]
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option) and (option, model[option]) != ("end_of_word_suffix", END_OF_WORD):
            raise RequiresLibraryError(f"its BPE model has {option}={model[option]!r}")
    splits_words = list_types(get_steps(contents, "pre_tokenizer")) in _WORD_SPLITTERS
    if model.get("end_of_word_suffix") or splits_words:
        return _parse_word_bpe
    return parse_metaspace_bpe if get_flag(model, "byte_fallback") else _parse_byte_level


def _parse_byte_level(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> ByteLevelBPE:
    model, ignore_merges = contents["model"], get_flag(contents["model"], "ignore_merges")
    select_steps(contents, "decoder", ["ByteLevel"])
    normalizer: Normalizer | None = "nfc" if select_steps(contents, "normalizer", [], ["NFC"]) else None
    pattern, add_prefix_space = _parse_pattern(contents)
    forms, added = parse_tokens(contents, "NFC" if normalizer else None)
    names = added.special | added.ordinary
    if any(map_unicode_to_bytes(name) not in (None, name.encode("utf-8")) for name in names):
        raise RequiresLibraryError("its decoder decodes an added token to bytes that differ from its text")
    model_forms = {form: id_ for form, id_ in forms.items() if form not in names}
    if ignore_merges and None in map_all_unicode_to_bytes(model_forms):
        raise RequiresLibraryError("it has ignore_merges, and a token that is not written as bytes")
    vocabulary = build_vocabulary(contents, roles, model_forms, added, byte_level=True)
    return make_byte_level_bpe(
        vocabulary,
        pattern,
        normalizer,
        merges=_select_byte_merges(contents, _parse_byte_merges(model["merges"], forms)),
        ignore_merges=ignore_merges,
        add_prefix_space=add_prefix_space,
        trim_offsets=parse_trim_offsets(contents),
    )


def _parse_pattern(contents: Mapping[str, Any]) -> tuple[Pattern, bool]:
    """Returns the split pattern, and the value of `add_prefix_space`."""
    steps = get_steps(contents, "pre_tokenizer")
    types = list_types(steps)
    if types == ["ByteLevel"] and get_flag(steps[0], "use_regex", True):
        return "gpt2", get_flag(steps[0], "add_prefix_space", True)
    if types.count("ByteLevel") != 1 or len(types) == 1:
        reject_steps(contents, "pre_tokenizer")
    index = types.index("ByteLevel")
    expressions = list(map(_parse_split_step, steps[:index]))
    if get_flag(steps[index], "add_prefix_space", True):
        raise RequiresLibraryError("its pre-tokenizer adds spaces between pre-tokens")
    if get_flag(steps[index], "use_regex", True):
        expressions.append("gpt2")
    expressions += map(_parse_byte_split_step, steps[index + 1 :])
    pattern: Pattern = expressions[0] if len(expressions) == 1 else tuple(expressions)
    return find_pattern_name(pattern) or pattern, False


def _parse_split_step(step: Mapping[str, Any]) -> str:
    """Returns the regular expression of a step of the pre-tokenizer, whose matches become pre-tokens."""
    step_type = step.get("type")
    if step_type == "Digits":
        return DIGIT if get_flag(step, "individual_digits") else f"{DIGIT}+"
    behavior = step.get("behavior"), get_flag(step, "invert")
    if step_type == "Punctuation" and behavior[0] in (None, "Isolated", "Contiguous"):
        return make_punctuation_set() + "+" * (behavior[0] == "Contiguous")
    if step_type != "Split":
        raise RequiresLibraryError(f"its pre-tokenizer has the step {step_type}")
    pattern = step.get("pattern", {})
    expression = pattern.get("Regex", re.escape(pattern.get("String", "")))
    if not isinstance(expression, str) or not expression or expression in PATTERNS:  # a name as a text
        raise RequiresLibraryError(f"its pre-tokenizer splits at {pattern!r}")
    if expression.endswith("$"):  # for Oniguruma, the end of a line
        expression = expression[:-1] + r"(?![^\n])"
    name = find_pattern_name(expression)
    if name is None and (_RAW_BYTE.search(expression) or make_split_step(expression).tables is None):
        raise RequiresLibraryError("its split pattern has parts that the built-in patterns lack")
    splitter = make_pattern_splitter(name or expression)
    # If the matches cover every text, removing the text between them ("Removed" with invert) is the same as
    # isolating the matches.
    if behavior != ("Isolated", False) and not (behavior == ("Removed", True) and splitter.covers_any_text):
        raise RequiresLibraryError(
            f"its pre-tokenizer splits with the behavior {behavior[0]!r} and invert={behavior[1]}"
        )
    return name or expression


def _parse_byte_split_step(step: Mapping[str, Any]) -> str:
    """Returns the regular expression of a step after `ByteLevel`, which splits written bytes.

    It splits texts in the same way if it matches only ASCII characters, which are written as themselves.
    `_select_byte_merges` handles the other characters that `Digits` splits at.
    """
    if step.get("type") == "Digits":
        return "[0-9]" if get_flag(step, "individual_digits") else "[0-9]+"
    expression = _parse_split_step(step)
    if find_pattern_name(expression) or not make_split_step(expression).names_only(_VISIBLE_ASCII):
        raise RequiresLibraryError("its pre-tokenizer splits bytes by characters that are not ASCII")
    return expression


def _select_byte_merges(
    contents: Mapping[str, Any], merges: list[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    """Returns the merges that are possible if a step `Digits` after `ByteLevel` splits written bytes.

    The step splits between digits and other characters. Some bytes are written as digits, such as `²` for
    0xB2. A pre-token that ends there could end inside of a character. Instead, no merge crosses these places:

        text      written   pre-tokens of the step   merges that are left out
        "ò1"      Ã²1       Ã  ²1                    Ã ², Ġ Ã², ...
    """
    steps = get_steps(contents, "pre_tokenizer")
    index = list_types(steps).index("ByteLevel")
    digits = [step for step in steps[index + 1 :] if step.get("type") == "Digits"]
    if not digits:
        return merges
    if get_flag(contents["model"], "ignore_merges"):
        raise RequiresLibraryError("its pre-tokenizer splits bytes, and its model has ignore_merges")
    separates_digits = any(get_flag(step, "individual_digits") for step in digits)
    possible = []
    for left, right in merges:
        sides = left[-1] in _DIGIT_BYTES, right[0] in _DIGIT_BYTES
        if sides == (True, True) and not separates_digits:
            if not left[-1:].isdigit() and right[:1].isdigit():
                raise RequiresLibraryError(f"its merge of {left!r} and {right!r} joins bytes and digits")
            possible.append((left, right))
        elif sides == (False, False):
            possible.append((left, right))
    return possible


def _parse_byte_merges(merges: Any, forms: Mapping[str, int]) -> list[tuple[bytes, bytes]]:
    """Parses a list of merges, and converts its tokens to bytes."""
    all_tokens = zip(forms, map_all_unicode_to_bytes(forms), strict=True)
    tokens = {form: token for form, token in all_tokens if token is not None}
    pairs = parse_merges(merges, forms)
    try:
        lefts, rights = (list(map(tokens.__getitem__, map(itemgetter(side), pairs))) for side in (0, 1))
    except KeyError:
        left, right = next(pair for pair in pairs if not tokens.keys() >= {*pair})
        raise RequiresLibraryError(
            f"the merge of {left!r} and {right!r} has tokens that are not bytes"
        ) from None
    return list(zip(lefts, rights, strict=True))


def _parse_wordpiece(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> WordPieceTokenizer:
    model = contents["model"]
    prefix = model.get("continuing_subword_prefix")
    [decoder] = select_steps(contents, "decoder", ["WordPiece"])
    if decoder.get("prefix") != prefix:
        raise RequiresLibraryError(f"its decoder is WordPiece with the prefix {decoder.get('prefix')!r}")
    select_steps(contents, "pre_tokenizer", ["BertPreTokenizer"])
    vocabulary, normalizer, splitter = _parse_words(contents, roles)
    check_special_words(vocabulary, normalizer, splitter)
    cleanup = get_flag(decoder, "cleanup", True)
    return make_wordpiece(vocabulary, normalizer, prefix, model["max_input_chars_per_word"], cleanup=cleanup)


def _parse_word_level(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> WordLevelTokenizer:
    if contents.get("decoder") is not None:  # an empty Sequence is another decoder than none
        reject_steps(contents, "decoder")
    vocabulary, normalizer, splitter = _parse_words(contents, roles)
    if not replace(normalizer, lowercase=False).is_identity:
        raise RequiresLibraryError("its normalizer is not one that word_level has")
    check_special_words(vocabulary, normalizer, splitter)
    return make_word_level(vocabulary, splitter, normalizer.lowercase)


def _parse_word_bpe(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> WordBPE:
    model = contents["model"]
    for option in ("byte_fallback", "fuse_unk", "ignore_merges"):
        if get_flag(model, option):
            raise RequiresLibraryError(f"its BPE model of words has {option}=true")
    end_of_word: EndOfWord | None = "suffix" if model.get("end_of_word_suffix") else None
    [decoder] = select_steps(contents, "decoder", ["BPEDecoder" if end_of_word else "Fuse"])
    if end_of_word and decoder.get("suffix") != END_OF_WORD:
        raise RequiresLibraryError("its decoder is BPEDecoder with another suffix")
    vocabulary, normalizer, splitter = _parse_words(contents, roles)
    forms: Mapping[str, int] = model["vocab"]
    merges = parse_merges(model["merges"], forms)
    _check_word_forms(vocabulary, forms, merges, end_of_word)
    return make_word_bpe(
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
    [splitter] = select_steps(contents, "pre_tokenizer", *_WORD_SPLITTERS)
    normalizers = select_steps(contents, "normalizer", [], ["BertNormalizer"])
    options: dict[str, Any] = {
        name: normalizers[0].get(name) if normalizers else False for name in _BERT_OPTIONS
    }
    normalizer = bert_normalizer(**options)
    forms, added = parse_tokens(contents, None if normalizer.is_identity else "BertNormalizer")
    unknown = contents["model"].get("unk_token")
    if unknown not in forms or unknown not in added.special:
        raise RequiresLibraryError(f"its unknown token {unknown!r} is not a special token of its vocabulary")
    ordinary = {form: id_ for form, id_ in forms.items() if form not in added.special}
    vocabulary = build_vocabulary(contents, {**roles, "unk": unknown}, ordinary, added)
    return vocabulary, normalizer, SPLITTERS[splitter["type"]]


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


_PARSERS: dict[str, Callable[..., SegmentModel]] = {
    "WordPiece": _parse_wordpiece,
    "WordLevel": _parse_word_level,
    "Unigram": parse_unigram,
}
