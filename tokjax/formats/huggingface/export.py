"""Export of built-in tokenizers as a `tokenizer.json`.

Merges from ranks
-----------------
A tokenizer of tiktoken has ranks instead of merges: of all adjacent pairs of tokens, it merges the one whose
concatenation has the lowest rank. A `tokenizer.json` needs a list of pairs in order of priority.
`iter_merges` lists every way to split a token into two tokens, ordered by the rank of the token:

    token   rank   splits          merges
    "a"     0      -               -
    "b"     1      -               -
    "ab"    2      a|b             (a, b)
    "aa"    3      a|a             (a, a)
    "aab"   4      a|ab, aa|b      (a, ab), (aa, b)

All splits are listed, because the ranks of the other tokens and the surrounding text decide which of them
occurs. Here the text "aab" becomes a|ab first, since (a, b) has a higher priority than (a, a). With the ranks
of "ab" and "aa" exchanged, it becomes aa|b.

A token without a split, such as "xyz" if neither "xy" nor "yz" is a token, has no merge. It needs
`ignore_merges`, which the rule of tiktoken implies: a pre-token that is a token becomes that token.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tokjax.core.template import EMPTY_TEMPLATE
from tokjax.errors import UnsupportedTokenizerError
from tokjax.formats.huggingface.built_in import SPLITTERS
from tokjax.formats.huggingface.definition import RequiresLibraryError, check_added_ids
from tokjax.formats.huggingface.metaspace_export import (
    build_bpe_model,
    build_forms,
    build_metaspace_parts,
    build_metaspace_step,
    build_sentencepiece_parts,
    build_text_forms,
)
from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.models.metaspace_bpe import MetaspaceBPE
from tokjax.models.sentencepiece import SentencePieceTokenizer
from tokjax.models.unigram import Unigram
from tokjax.models.word_bpe import END_OF_WORD, WordBPE, merge_order_is_unique
from tokjax.models.word_level import WordLevelTokenizer
from tokjax.models.wordpiece import WordPieceTokenizer
from tokjax.pretokenize.bytes_to_unicode import map_bytes_to_unicode
from tokjax.pretokenize.patterns import PATTERNS, make_pattern_splitter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tokjax.core.template import TemplatePiece
    from tokjax.core.vocabulary import AddedToken, Vocabulary
    from tokjax.models.unigram_words import NormalizedToken
    from tokjax.pretokenize.normalization import BertNormalizer
    from tokjax.pretokenize.word_boundaries import Splitter


def build_tokenizer_json(tokenizer: Any) -> dict[str, Any]:
    """Builds a `tokenizer.json` that gives the same ids and offsets as a built-in tokenizer.

    Args:
        tokenizer: one of the types in `_EXPORTERS`.

    Returns:
        The definition, as a JSON object.

    Raises:
        UnsupportedTokenizerError: the format can't represent the tokenizer or one of its options.
    """
    if type(tokenizer) not in _EXPORTERS:
        supported = ", ".join(kind.__name__ for kind in _EXPORTERS)
        raise UnsupportedTokenizerError(
            f"a tokenizer.json can be written for {supported}, not for {type(tokenizer).__name__}"
        )
    parts = _EXPORTERS[type(tokenizer)](tokenizer)
    vocabulary = tokenizer.vocabulary
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _build_added_tokens(vocabulary),
        "normalizer": None,
        "post_processor": _build_template(vocabulary),
        **parts,
    }


def iter_merges(ranks: Mapping[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    """Yields every pair of tokens whose concatenation is a token, ordered by the rank of the concatenation.

    Pairs with the same concatenation are ordered by the length of their first token. The head of the module
    explains why this list merges texts as the ranks do.

    Args:
        ranks: token bytes to id; the id is the rank.

    >>> list(iter_merges({b"a": 0, b"b": 1, b"aab": 4, b"ab": 2, b"aa": 3}))
    [(b'a', b'b'), (b'a', b'a'), (b'a', b'ab'), (b'aa', b'b')]
    """
    for token in sorted(ranks, key=ranks.__getitem__):
        for index in range(1, len(token)):
            if token[:index] in ranks and token[index:] in ranks:
                yield token[:index], token[index:]


def _build_byte_level(tokenizer: ByteLevelBPE) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "trim_offsets": False, "use_regex": True}
    trim = {
        **byte_level,
        "trim_offsets": tokenizer.trim_offsets is not None,
        "add_prefix_space": tokenizer.trim_offsets == "but_first",
    }
    template = _build_template(tokenizer.vocabulary)
    ranks = tokenizer.vocabulary.mergeable
    pairs = iter_merges(ranks) if tokenizer.merges is None else tokenizer.merges
    return {
        "normalizer": {"type": "NFC"} if tokenizer.normalizer else None,
        "pre_tokenizer": _build_pre_tokenizer(tokenizer),
        "post_processor": {"type": "Sequence", "processors": [trim, template]} if template else trim,
        "decoder": {**byte_level, "add_prefix_space": tokenizer.add_prefix_space},
        "model": build_bpe_model(
            build_forms(
                tokenizer.vocabulary, {map_bytes_to_unicode(token): id_ for token, id_ in ranks.items()}
            ),
            [list(map(map_bytes_to_unicode, pair)) for pair in pairs],
            ignore_merges=tokenizer.ignore_merges,
        ),
    }


def _build_pre_tokenizer(tokenizer: ByteLevelBPE) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": tokenizer.add_prefix_space, "trim_offsets": False}
    splitter = make_pattern_splitter(tokenizer.pattern)
    if splitter.name == "gpt2":
        return {**byte_level, "use_regex": True}
    if not splitter.has_tables or splitter.name == "whitespace":
        raise UnsupportedTokenizerError(
            f"a tokenizer.json can't be written with the pattern {tokenizer.pattern!r}: the tokenizers "
            "library has another engine for regular expressions, which may split differently; supported are "
            f"{', '.join(supported for supported in PATTERNS if supported != 'whitespace')}, and expressions "
            "of sets, alternatives, repetitions and lookaheads of one character"
        )
    if tokenizer.add_prefix_space:
        raise UnsupportedTokenizerError(
            "a tokenizer.json supports add_prefix_space=True with the pattern 'gpt2', not with "
            f"{tokenizer.pattern!r}"
        )
    expression = splitter.expression
    steps = [
        {"type": "Split", "pattern": {"Regex": part}, "behavior": "Isolated", "invert": False}
        for part in ([expression] if isinstance(expression, str) else expression)
    ]
    return {"type": "Sequence", "pretokenizers": [*steps, {**byte_level, "use_regex": False}]}


def _build_word_steps(normalizer: BertNormalizer, splitter: Splitter) -> dict[str, Any]:
    """Builds the normalizer and the pre-tokenizer of a tokenizer of words."""
    step = {"type": "BertNormalizer", **asdict(normalizer)}
    [name] = (name for name, other in SPLITTERS.items() if other == splitter)
    return {"normalizer": None if normalizer.is_identity else step, "pre_tokenizer": {"type": name}}


def _build_wordpiece(tokenizer: WordPieceTokenizer) -> dict[str, Any]:
    prefix = tokenizer.continuing_prefix
    return {
        **_build_word_steps(tokenizer.normalizer, "bert"),
        "decoder": {"type": "WordPiece", "prefix": prefix, "cleanup": tokenizer.cleanup},
        "model": {
            "type": "WordPiece",
            "unk_token": tokenizer.vocabulary.roles["unk"],
            "continuing_subword_prefix": prefix,
            "max_input_chars_per_word": tokenizer.max_word_characters,
            "vocab": _build_vocab(tokenizer.vocabulary),
        },
    }


def _build_word_level(tokenizer: WordLevelTokenizer) -> dict[str, Any]:
    unknown, vocab = tokenizer.vocabulary.roles["unk"], _build_vocab(tokenizer.vocabulary)
    model = {"type": "WordLevel", "unk_token": unknown, "vocab": vocab}
    return {**_build_word_steps(tokenizer.normalizer, tokenizer.splitter), "decoder": None, "model": model}


def _build_word_bpe(tokenizer: WordBPE) -> dict[str, Any]:
    _check_word_bpe(tokenizer)
    suffix = END_OF_WORD if tokenizer.end_of_word else None
    return {
        **_build_word_steps(tokenizer.normalizer, tokenizer.splitter),
        "decoder": {"type": "BPEDecoder", "suffix": suffix} if suffix else {"type": "Fuse"},
        "model": build_bpe_model(
            _build_vocab(tokenizer.vocabulary),
            tokenizer.merges,
            unk_token=tokenizer.vocabulary.roles["unk"],
            end_of_word_suffix=suffix,
        ),
    }


def _check_word_bpe(tokenizer: WordBPE) -> None:
    """Raises `UnsupportedTokenizerError` for options and merges that `tokenizers` does not have."""
    for option, value in (
        ("end_of_word", "symbol"),
        ("byte_level", True),
        ("unknown", "word"),
    ):
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


def _build_vocab(vocabulary: Vocabulary) -> dict[str, int]:
    """Builds the vocabulary of the model, without the added tokens that only an exact match makes.

    If the library would assign other ids to these, they remain in the vocabulary.
    """
    forms = build_text_forms(vocabulary)
    only_matched = vocabulary.added_names - vocabulary.duplicate_token_ids.keys()
    model_forms = {form: id_ for form, id_ in forms.items() if form not in only_matched}
    try:
        check_added_ids(_build_added_tokens(vocabulary), model_forms)
    except RequiresLibraryError:
        return forms
    return model_forms


def _build_added_tokens(vocabulary: Vocabulary) -> list[dict[str, Any]]:
    names = vocabulary.split_token_names - vocabulary.unmatched_names - vocabulary.second_names
    return [
        _build_added_token(vocabulary, name, vocabulary.get_id(name), vocabulary.added_tokens.get(name))
        for name in sorted(names, key=vocabulary.get_id)
    ]


def _build_added_token(
    vocabulary: Vocabulary,
    name: str,
    id_: int,
    flags: AddedToken | NormalizedToken | None,
    *,
    normalized: bool = False,
) -> dict[str, Any]:
    return {
        "id": id_,
        "content": name,
        "single_word": False,
        "lstrip": flags is not None and flags.lstrip,
        "rstrip": flags is not None and flags.rstrip,
        "normalized": normalized,
        "special": name in vocabulary.special,
    }


def _build_template(vocabulary: Vocabulary) -> dict[str, Any] | None:
    template = vocabulary.template
    if template == EMPTY_TEMPLATE:
        return None
    return {
        "type": "TemplateProcessing",
        "single": list(map(_build_template_piece, template.single)),
        "pair": list(map(_build_template_piece, template.pair)),
        "special_tokens": {
            name: {"id": name, "ids": [vocabulary.get_id(name)], "tokens": [name]}
            for name in sorted(set(template.tokens))
        },
    }


def _build_template_piece(piece: TemplatePiece) -> dict[str, Any]:
    if piece.text is None:
        return {"SpecialToken": {"id": piece.token, "type_id": piece.type_id}}
    return {"Sequence": {"id": "AB"[piece.text], "type_id": piece.type_id}}


def _build_unigram(tokenizer: Unigram) -> dict[str, Any]:
    vocabulary, steps = tokenizer.vocabulary, json.loads(tokenizer.steps)
    split = build_metaspace_step(tokenizer.prepends)
    splits = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, split]}
    normalized = [
        _build_added_token(vocabulary, name, token.id, token, normalized=True)
        for name, token in tokenizer.normalized_tokens
    ]
    return {
        "added_tokens": sorted([*_build_added_tokens(vocabulary), *normalized], key=itemgetter("id")),
        "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
        "pre_tokenizer": splits if tokenizer.splits_whitespace else split,
        "decoder": build_metaspace_step("always" if tokenizer.strip else "never"),
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unknown_id,
            "vocab": list(map(list, tokenizer.pieces)),
            "byte_fallback": tokenizer.byte_fallback,
        },
    }


_EXPORTERS: Mapping[type, Callable[[Any], dict[str, Any]]] = {
    ByteLevelBPE: _build_byte_level,
    MetaspaceBPE: build_metaspace_parts,
    SentencePieceTokenizer: build_sentencepiece_parts,
    WordBPE: _build_word_bpe,
    WordPieceTokenizer: _build_wordpiece,
    WordLevelTokenizer: _build_word_level,
    Unigram: _build_unigram,
}
