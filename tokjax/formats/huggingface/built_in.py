"""Built-in tokenizers from a `tokenizer.json`, for definitions where they give the library's exact result.

| model | conditions | built-in type |
|---|---|---|
| BPE | split patterns with boundary tables, and a vocabulary with all 256 bytes | `ByteLevelBPE` |
| BPE with `byte_fallback` | spaces written as `▁`, the byte tokens that texts need | `MetaspaceBPE` |
| BPE of words | a split at whitespace or BERT's, `</w>` or no mark at the end of words | `WordBPE` |
| WordPiece | BERT's normalizer and pre-tokenizer | `WordPieceTokenizer` |
| WordLevel | a split at whitespace or BERT's, and no normalizer or lower case | `WordLevelTokenizer` |

Each condition is checked. The first one that does not hold raises `RequiresLibraryError` with the reason, and
the tokenizer runs on the library (`tokjax.formats.huggingface.adapter`). See docs/bring-your-tokenizer.md,
section "What runs on the tokenizers library".

Spaces in a BPE with byte fallback
----------------------------------
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
import re
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax.bpe.merge_rules import RulesTooLargeError
from tokjax.core.utf8 import is_encodable
from tokjax.errors import InvalidArgumentError
from tokjax.formats.huggingface.decoders import LIKE_BYTE
from tokjax.formats.huggingface.definition import (
    AddedTokens,
    RequiresLibraryError,
    build_definition_vocabulary,
    check_added_ids,
    decode_byte_level_forms,
    encode_forms,
    get_added_token_ids,
    get_flag,
    get_single_type,
    get_steps,
    list_inserted_names,
    merge_added_tokens,
    parse_added_tokens,
    parse_merges,
    parse_trim_offsets,
)
from tokjax.formats.tokenizer_files import parse_token_ids
from tokjax.models.byte_bpe import ByteLevelBPE, make_byte_level_bpe
from tokjax.models.metaspace import BYTE_FORMS, METASPACE, list_missing_forms
from tokjax.models.metaspace_bpe import MetaspaceBPE, make_metaspace_bpe
from tokjax.models.word_bpe import END_OF_WORD, WordBPE, make_word_bpe, merge_order_is_unique
from tokjax.models.word_level import WordLevelTokenizer, make_word_level
from tokjax.models.wordpiece import WordPieceTokenizer, make_wordpiece
from tokjax.pretokenize.bert_normalizer import bert_normalizer
from tokjax.pretokenize.bytes_to_unicode import (
    ALPHABET,
    BYTES,
    map_all_unicode_to_bytes,
    map_unicode_to_bytes,
)
from tokjax.pretokenize.code_point_sets import make_range
from tokjax.pretokenize.patterns import (
    DIGIT,
    Pattern,
    find_pattern_name,
    make_pattern_splitter,
    make_punctuation_set,
)
from tokjax.pretokenize.split_steps import make_split_step
from tokjax.pretokenize.word_boundaries import compile_word_expression

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tokjax.core.vocabulary import Role, Vocabulary
    from tokjax.models.base import SegmentModel
    from tokjax.models.metaspace_bpe import PrefixSpace
    from tokjax.models.word_bpe import EndOfWord
    from tokjax.pretokenize.bert_normalizer import BertNormalizer
    from tokjax.pretokenize.word_boundaries import Splitter

    Merges = Sequence[tuple[str, str]]

_BERT_OPTIONS = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
_SPLITTERS: dict[str, Splitter] = {"WhitespaceSplit": "whitespace", "BertPreTokenizer": "bert"}
_WORD_SPLITTERS = [[name] for name in _SPLITTERS]
_PREPEND = {"type": "Prepend", "prepend": METASPACE}
_SPACE_TO_METASPACE = {"type": "Replace", "pattern": {"String": " "}, "content": METASPACE}
_DECODERS: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"String": METASPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
_BYTE_FORMS = frozenset(BYTE_FORMS)
_VISIBLE_ASCII = make_range(ord("!"), ord("~"))
_DIGIT_BYTES = frozenset(byte for byte, form in zip(BYTES, ALPHABET, strict=True) if form.isnumeric())
"""Bytes that are written as digits: those of ASCII digits, and for example 0xB2, which is written `²`."""
_RAW_BYTE = re.compile(r"\\x[89A-Fa-f]")
"""An escape that is a byte for Oniguruma, and a character elsewhere."""
_SCHEMES: dict[str, PrefixSpace | None] = {"always": "missing", "first": "first", "never": None}
"""Metaspace's `prepend_scheme` to `add_prefix_space`."""


class _SpaceHandling(NamedTuple):
    """Options of `MetaspaceBPE` for spaces."""

    add_prefix_space: PrefixSpace | None
    split_words: bool


def build_builtin_tokenizer(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> SegmentModel:
    """Builds the built-in tokenizer of a definition.

    Args:
        contents: parsed `tokenizer.json`.
        roles: role to the name of a token; see `select_roles`.

    Raises:
        RequiresLibraryError: the tokenizer has to run on the library.
        TokenizerFormatError: the definition is invalid.
    """
    model = contents["model"]
    model_type = model.get("type") or ("BPE" if "merges" in model else "WordPiece")
    if model_type not in _PARSERS:
        raise RequiresLibraryError(f"its model is {model_type}")
    return _PARSERS[model_type](contents, roles)


def _parse_bpe(
    contents: Mapping[str, Any], roles: Mapping[Role, str]
) -> ByteLevelBPE | MetaspaceBPE | WordBPE:
    model = contents["model"]
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option) and (option, model[option]) != ("end_of_word_suffix", END_OF_WORD):
            raise RequiresLibraryError(f"its BPE model has {option}={model[option]!r}")
    splits_words = [step.get("type") for step in get_steps(contents, "pre_tokenizer")] in _WORD_SPLITTERS
    try:
        if model.get("end_of_word_suffix") or splits_words:
            return _parse_word_bpe(contents, roles)
        return (_parse_metaspace if get_flag(model, "byte_fallback") else _parse_byte_level)(contents, roles)
    except RulesTooLargeError as error:
        raise RequiresLibraryError(str(error)) from error


def _parse_byte_level(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> ByteLevelBPE:
    model = contents["model"]
    _check_decoder(contents, "ByteLevel")
    normalizer = get_single_type(contents, "normalizer")
    if normalizer not in (None, "NFC"):
        raise RequiresLibraryError(f"its normalizer is {normalizer}")
    pattern, add_prefix_space = _parse_pattern(contents)
    added_tokens = parse_added_tokens(contents, normalizer=normalizer)
    forms = parse_token_ids(model["vocab"], "the model's vocab")
    added_names = {**added_tokens.special, **added_tokens.ordinary}
    if any(map_unicode_to_bytes(name) not in (None, name.encode("utf-8")) for name in added_names):
        raise RequiresLibraryError("its decoder decodes an added token to bytes that differ from its text")
    check_added_ids(contents.get("added_tokens") or [], forms)
    model_forms = {form: id_ for form, id_ in forms.items() if form not in added_names}
    if get_flag(model, "ignore_merges") and None in map_all_unicode_to_bytes(model_forms):
        raise RequiresLibraryError("it has ignore_merges, and a token that is not written as bytes")
    model_tokens, unreachable_ids = decode_byte_level_forms(model_forms)
    ordinary, added_ids = merge_added_tokens(model_tokens, added_tokens.ordinary)
    if not all(bytes([i]) in ordinary for i in range(256)):
        raise RequiresLibraryError("its vocabulary does not contain every single byte")
    vocabulary = build_definition_vocabulary(
        contents, ordinary, added_tokens, roles, added_ids, unreachable_ids
    )
    merges = _parse_byte_merges(model["merges"], forms)
    # `parse_merges` has checked that all parts and results are in the model's vocabulary.
    if len(model_forms) < len(forms):
        in_merges = chain(chain.from_iterable(merges), map(b"".join, merges))
        if not all(map(ordinary.__contains__, in_merges)):
            raise RequiresLibraryError("a special token is a part or the result of a merge")
    merges = _select_byte_merges(contents, merges)
    return make_byte_level_bpe(
        vocabulary,
        pattern,
        "nfc" if normalizer else None,
        merges=merges,
        ignore_merges=get_flag(model, "ignore_merges"),
        add_prefix_space=add_prefix_space,
        trim_offsets=parse_trim_offsets(contents),
    )


def _parse_pattern(contents: Mapping[str, Any]) -> tuple[Pattern, bool]:
    """Returns the split pattern, and the value of `add_prefix_space`."""
    steps = get_steps(contents, "pre_tokenizer")
    types = [step.get("type") for step in steps]
    if types == ["ByteLevel"] and get_flag(steps[0], "use_regex", True):
        return "gpt2", get_flag(steps[0], "add_prefix_space", True)
    if types.count("ByteLevel") != 1 or len(types) == 1:
        raise RequiresLibraryError(f"its pre-tokenizer is {' and '.join(map(str, types)) or 'none'}")
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
    if not isinstance(expression, str) or not expression:
        raise RequiresLibraryError(f"its pre-tokenizer splits at {pattern!r}")
    if expression.endswith("$"):  # for Oniguruma, the end of a line
        expression = expression[:-1] + r"(?![^\n])"
    name = find_pattern_name(expression)
    try:
        if name is None and (_RAW_BYTE.search(expression) or make_split_step(expression).tables is None):
            raise RequiresLibraryError("its split pattern has parts that the built-in patterns lack")
        splitter = make_pattern_splitter(name or expression)
    except InvalidArgumentError as error:
        raise RequiresLibraryError(str(error)) from error
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
    if not make_split_step(expression).names_only(_VISIBLE_ASCII):
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
    index = [step.get("type") for step in steps].index("ByteLevel")
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


def build_split_steps(pattern: Pattern) -> list[dict[str, Any]]:
    """Builds the steps of a pre-tokenizer that split by a pattern, for export."""
    expressions = make_pattern_splitter(pattern).expression
    return [
        {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
        for expression in ([expressions] if isinstance(expressions, str) else expressions)
    ]


def _parse_byte_merges(merges: Any, forms: Mapping[str, int]) -> list[tuple[bytes, bytes]]:
    """Parses a list of merges, and converts its tokens to bytes."""
    tokens = dict(zip(forms, map_all_unicode_to_bytes(forms), strict=True))
    pairs = parse_merges(merges, forms)
    lefts, rights = (list(map(tokens.__getitem__, map(itemgetter(side), pairs))) for side in (0, 1))
    for side in (lefts, rights):
        if None in side:
            left, right = pairs[side.index(None)]
            raise RequiresLibraryError(f"the merge of {left!r} and {right!r} has tokens that are not bytes")
    return list(zip(lefts, rights, strict=True))  # type: ignore[arg-type]


def _check_decoder(contents: Mapping[str, Any], expected: str | None) -> None:
    """Raises `RequiresLibraryError` unless the decoder has the expected type; `None` expects no decoder."""
    decoder = contents.get("decoder")
    actual = None if decoder is None else get_single_type(contents, "decoder") or "an empty Sequence"
    if actual != expected:
        raise RequiresLibraryError(f"its decoder is {actual or 'none'}")


def _parse_metaspace(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> MetaspaceBPE:
    model = contents["model"]
    if get_flag(model, "ignore_merges"):
        raise RequiresLibraryError("its BPE model has ignore_merges and byte_fallback")
    spaces, strip = _parse_space_handling(contents), _parse_strip(contents)
    normalizer = " and ".join(str(step.get("type")) for step in get_steps(contents, "normalizer"))
    added_tokens = parse_added_tokens(contents, normalizer=normalizer or None)
    forms = parse_token_ids(model["vocab"], "the model's vocab")
    check_added_ids(contents.get("added_tokens") or [], forms)
    merges = _drop_special_merges(parse_merges(model["merges"], forms), forms.keys() & added_tokens.special)
    _check_pieces(forms.keys() - added_tokens.special.keys(), merges)
    unmatched = _find_unmatched_tokens(contents, forms, added_tokens)
    unknown = model.get("unk_token")
    if unknown is not None and unknown not in added_tokens.special and unknown not in unmatched:
        raise RequiresLibraryError(f"its unknown token {unknown!r} is not a special token")
    if parse_trim_offsets(contents) is not None:
        raise RequiresLibraryError("its post-processor has trim_offsets=true")
    ordinary = encode_forms({form: id_ for form, id_ in forms.items() if form not in added_tokens.special})
    all_roles: dict[Role, str] = {**roles, **({} if unknown is None else {"unk": unknown})}
    vocabulary = build_definition_vocabulary(
        contents,
        ordinary | encode_forms(added_tokens.ordinary),
        added_tokens._replace(special=added_tokens.special | unmatched),
        all_roles,
        unmatched,
    )
    return make_metaspace_bpe(vocabulary, merges, **spaces._asdict(), strip=strip)


def _find_unmatched_tokens(
    contents: Mapping[str, Any], forms: Mapping[str, int], added_tokens: AddedTokens
) -> dict[str, int]:
    """Returns name to id of the special tokens that are not matched in texts: they are no added tokens.

    They are the tokens that the template inserts, and the unknown token.
    """
    names = [*list_inserted_names(contents), contents["model"].get("unk_token")]
    added_names = {*added_tokens.special, *added_tokens.ordinary}
    return {name: forms[name] for name in names if name in forms and name not in added_names}


def _drop_special_merges(merges: Merges, special: Collection[str]) -> list[tuple[str, str]]:
    """Returns the merges of ordinary tokens.

    The others have no effect where special tokens are matched in texts. If a special token is to be encoded
    as ordinary text, the library makes it of text, and a built-in tokenizer does not.

    Args:
        merges: pairs of written forms.
        special: written forms of the special tokens.

    Raises:
        RequiresLibraryError: a special token contains `▁`, so that a text with a space can become it.
    """
    in_merges = _find_in_merges(set(special), merges)
    for form in special:
        if METASPACE in form and (form in in_merges or form == METASPACE):
            raise RequiresLibraryError(f"text can become the special token {form!r}")
    if not in_merges:
        return list(merges)
    return [merge for merge in merges if in_merges.isdisjoint((*merge, "".join(merge)))]


def _parse_space_handling(contents: Mapping[str, Any]) -> _SpaceHandling:
    """Returns the options for spaces, if the normalizer and pre-tokenizer handle spaces and nothing else.

    The head of the module has examples.
    """
    normalizers, pre_tokenizers = get_steps(contents, "normalizer"), get_steps(contents, "pre_tokenizer")
    types = [step.get("type") for step in pre_tokenizers]
    if normalizers in ([_PREPEND, _SPACE_TO_METASPACE], [_SPACE_TO_METASPACE]):
        # Gemma's file also splits at spaces. That has no effect: the normalizer has replaced all of them.
        splits_at_spaces = types == ["Split"] and pre_tokenizers[0].get("pattern") == {"String": " "}
        if not types or (splits_at_spaces and not get_flag(pre_tokenizers[0], "invert")):
            return _SpaceHandling("always" if len(normalizers) == 2 else None, False)
    if not normalizers and types == ["Metaspace"]:
        [step] = pre_tokenizers
        scheme = step.get("prepend_scheme")
        # Old files have add_prefix_space in addition to prepend_scheme.
        is_consistent = step.get("add_prefix_space") in (None, scheme != "never")
        if step.get("replacement") == METASPACE and scheme in _SCHEMES and is_consistent:
            return _SpaceHandling(_SCHEMES[scheme], step.get("split") is None or get_flag(step, "split"))
    all_types = [str(step.get("type")) for step in (*normalizers, *pre_tokenizers)]
    raise RequiresLibraryError(f"its normalizer and pre-tokenizer are {' and '.join(all_types) or 'none'}")


def _parse_strip(contents: Mapping[str, Any]) -> bool:
    """Returns whether the decoder removes a space at the start of the text.

    Raises:
        RequiresLibraryError: the decoder is not that of Llama 2, Mistral or Gemma.
    """
    decoders = get_steps(contents, "decoder")
    if not any(_are_same(decoders, expected) for expected in (_DECODERS, [*_DECODERS, _STRIP])):
        raise RequiresLibraryError(
            f"its decoder is {' and '.join(str(step.get('type')) for step in decoders) or 'none'}"
        )
    return len(decoders) > len(_DECODERS)


def _are_same(steps: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    """Returns whether two lists of steps are the same JSON. In Python, `True` and `1` would be equal."""
    return json.dumps(steps, sort_keys=True) == json.dumps(expected, sort_keys=True)


def _find_in_merges(forms: set[str], merges: Sequence[tuple[str, str]]) -> set[str]:
    """Returns the members of `forms` that are a part or the result of a merge."""
    return forms.intersection(chain(chain.from_iterable(merges), map("".join, merges)))


def _check_pieces(ordinary: set[str], merges: Sequence[tuple[str, str]]) -> None:
    """Raises `RequiresLibraryError` if `make_rules_from_pieces` does not accept these tokens.

    Args:
        ordinary: written forms of all tokens that are not special.
        merges: pairs of written forms.
    """
    missing = list_missing_forms(ordinary)
    if missing:
        raise RequiresLibraryError(f"its vocabulary has no ordinary token {missing[0]!r}")
    if not is_encodable("".join(ordinary)):
        raise RequiresLibraryError("a token of its vocabulary has a lone surrogate")
    # A built-in tokenizer merges bytes and writes spaces as `▁`, so these forms have no equivalent there.
    invalid = _find_in_merges({form for form in ordinary if " " in form or form in _BYTE_FORMS}, merges)
    if invalid:
        raise RequiresLibraryError(f"the token {min(invalid)!r} is a part or the result of a merge")
    like_bytes = [form for form in ordinary if form[:3] == "<0x" and LIKE_BYTE.fullmatch(form)]
    like_bytes = [form for form in like_bytes if form not in _BYTE_FORMS]
    if like_bytes:
        raise RequiresLibraryError(
            f"the token {like_bytes[0]!r} is decoded to a byte, but no byte becomes it"
        )


def build_metaspace_parts(tokenizer: MetaspaceBPE) -> dict[str, Any]:
    """Builds the normalizer, pre-tokenizer, decoder and model of a `tokenizer.json`, for export."""
    vocabulary = tokenizer.vocabulary
    forms = {form.decode("utf-8"): id_ for form, id_ in vocabulary.ordinary.items()}
    forms |= vocabulary.unreachable_ids
    forms |= get_added_token_ids(vocabulary, forms)
    return {
        **_build_space_steps(tokenizer),
        "decoder": {"type": "Sequence", "decoders": [*_DECODERS, *([_STRIP] if tokenizer.strip else [])]},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": vocabulary.roles.get("unk"),
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": dict(sorted(forms.items(), key=lambda item: item[1])),
            "merges": [list(merge) for merge in tokenizer.merges],
        },
    }


def _build_space_steps(tokenizer: MetaspaceBPE) -> dict[str, Any]:
    """Builds the normalizer or pre-tokenizer for spaces: the inverse of `_parse_space_handling`."""
    if tokenizer.add_prefix_space == "always":
        return {"normalizer": {"type": "Sequence", "normalizers": [_PREPEND, _SPACE_TO_METASPACE]}}
    if tokenizer.add_prefix_space is None and not tokenizer.split_words:
        return {"normalizer": _SPACE_TO_METASPACE}
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


def _parse_wordpiece(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> WordPieceTokenizer:
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
    _check_decoder(contents, "WordPiece")
    [decoder] = get_steps(contents, "decoder")
    if decoder.get("prefix") != prefix:
        raise RequiresLibraryError(f"its decoder is WordPiece with the prefix {decoder.get('prefix')!r}")
    return get_flag(decoder, "cleanup", True)


def _parse_word_bpe(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> WordBPE:
    model = contents["model"]
    for option in ("byte_fallback", "fuse_unk", "ignore_merges"):
        if get_flag(model, option):
            raise RequiresLibraryError(f"its BPE model of words has {option}=true")
    end_of_word: EndOfWord | None = "suffix" if model.get("end_of_word_suffix") else None
    _check_decoder(contents, "BPEDecoder" if end_of_word else "Fuse")
    if end_of_word and get_steps(contents, "decoder")[0].get("suffix") != END_OF_WORD:
        raise RequiresLibraryError("its decoder is BPEDecoder with another suffix")
    splitter = _SPLITTERS.get(get_single_type(contents, "pre_tokenizer") or "")
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
    vocabulary: Vocabulary, forms: Mapping[str, int], merges: Merges, end_of_word: EndOfWord | None
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
    for name in sorted(_find_in_merges(special, merges)) + [
        name for name in (*special, *added) if len(name.removesuffix(suffix)) <= 1
    ]:
        raise RequiresLibraryError(f"text can become the added token {name!r}")
    if not merge_order_is_unique(merges):
        raise RequiresLibraryError("a token is used before the last merge that makes it")
    names = {*special, *(name.removesuffix(suffix) for name in (*forms, *added) if name not in special)}
    ambiguous = [name for name in names if suffix and suffix in name]
    if ambiguous:
        raise RequiresLibraryError(f"its token {min(ambiguous)!r} has {suffix!r} before its end")


def _parse_word_level(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> WordLevelTokenizer:
    _check_decoder(contents, None)
    options = _parse_bert_options(contents)
    lowercase = options.pop("lowercase")
    splitter = _SPLITTERS.get(get_single_type(contents, "pre_tokenizer") or "")
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


_PARSERS: dict[str, Callable[[Mapping[str, Any], Mapping[Role, str]], SegmentModel]] = {
    "BPE": _parse_bpe,
    "WordPiece": _parse_wordpiece,
    "WordLevel": _parse_word_level,
}
