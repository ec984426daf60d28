"""tokjax's own tokenizers as a `tokenizer.json`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tokjax.core.template import EMPTY_TEMPLATE
from tokjax.errors import UnsupportedTokenizerError
from tokjax.formats.huggingface.built_in import build_metaspace_parts
from tokjax.formats.huggingface.definition import get_literal_tokens
from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.models.metaspace_bpe import MetaspaceBPE
from tokjax.models.word_level import WordLevelTokenizer
from tokjax.models.wordpiece import WordPieceTokenizer
from tokjax.pretokenize.bytes_to_unicode import map_bytes_to_unicode
from tokjax.pretokenize.patterns import PATTERNS, make_pattern_splitter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tokjax.core.template import TemplatePiece
    from tokjax.core.vocabulary import Vocabulary


def iter_merges(ranks: Mapping[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    """Every pair of tokens that makes a token, by the ranks of what they make.

    Args:
        ranks: bytes to id, the id being the rank.

    >>> list(iter_merges({b"a": 0, b"b": 1, b"aab": 4, b"ab": 2, b"aa": 3}))
    [(b'a', b'b'), (b'a', b'a'), (b'a', b'ab'), (b'aa', b'b')]
    """
    for token in sorted(ranks, key=ranks.__getitem__):
        for index in range(1, len(token)):
            if token[:index] in ranks and token[index:] in ranks:
                yield token[:index], token[index:]


_PRE_TOKENIZERS = {"whitespace": "WhitespaceSplit", "bert": "BertPreTokenizer"}


def as_huggingface(tokenizer: Any) -> dict[str, Any]:
    """A `tokenizer.json` whose ids and offsets are the tokenizer's.

    Raises:
        UnsupportedTokenizerError: the format can't express something of it.
    """
    if type(tokenizer) not in _EXPORTERS:
        supported = ", ".join(kind.__name__ for kind in _EXPORTERS)
        raise UnsupportedTokenizerError(
            f"a tokenizer.json is written of {supported}; not of {type(tokenizer).__name__}"
        )
    parts = _EXPORTERS[type(tokenizer)](tokenizer)
    table = tokenizer.vocabulary
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _build_added_tokens(table),
        "normalizer": None,
        "post_processor": _build_template(table),
        **parts,
    }


def _build_byte_level(tokenizer: ByteLevelBPE) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "trim_offsets": False, "use_regex": True}
    processors = [
        {
            **byte_level,
            "trim_offsets": tokenizer.trim_offsets is not None,
            "add_prefix_space": tokenizer.trim_offsets == "but_first",
        }
    ]
    template = _build_template(tokenizer.vocabulary)
    if template is not None:
        processors.append(template)
    return {
        "normalizer": {"type": "NFC"} if tokenizer.normalizer else None,
        "pre_tokenizer": _build_pre_tokenizer(tokenizer),
        "post_processor": processors[0]
        if template is None
        else {"type": "Sequence", "processors": processors},
        "decoder": {**byte_level, "add_prefix_space": tokenizer.add_prefix_space},
        "model": _build_byte_level_model(tokenizer),
    }


def _build_byte_level_model(tokenizer: ByteLevelBPE) -> dict[str, Any]:
    ranks = tokenizer.vocabulary.mergeable
    forms = {map_bytes_to_unicode(token): id_ for token, id_ in ranks.items()}
    forms |= get_literal_tokens(tokenizer.vocabulary, forms)
    pairs = iter_merges(ranks) if tokenizer.merges is None else tokenizer.merges
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": tokenizer.ignore_merges,
        "vocab": dict(sorted(forms.items(), key=lambda item: item[1])),
        "merges": [[map_bytes_to_unicode(lstrip), map_bytes_to_unicode(rstrip)] for lstrip, rstrip in pairs],
    }


def _build_pre_tokenizer(tokenizer: ByteLevelBPE) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": tokenizer.add_prefix_space, "trim_offsets": False}
    name = make_pattern_splitter(tokenizer.pattern).name
    if name == "gpt2":
        return {**byte_level, "use_regex": True}
    if name is None or name == "whitespace":
        raise UnsupportedTokenizerError(
            f"a tokenizer.json can't be written with the pattern {tokenizer.pattern!r}: its library has "
            "another engine for regular expressions, which might split otherwise; published patterns are "
            f"{', '.join(supported for supported in PATTERNS if supported != 'whitespace')}"
        )
    if tokenizer.add_prefix_space:
        raise UnsupportedTokenizerError(
            f"a tokenizer.json can say add_prefix_space=True with the pattern 'gpt2', not {tokenizer.pattern!r}"
        )
    split = {"type": "Split", "pattern": {"Regex": PATTERNS[name]}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, {**byte_level, "use_regex": False}]}


def _build_wordpiece(tokenizer: WordPieceTokenizer) -> dict[str, Any]:
    prefix = tokenizer.continuing_prefix
    return {
        "normalizer": None
        if tokenizer.normalizer.is_identity
        else {"type": "BertNormalizer", **asdict(tokenizer.normalizer)},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
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
    return {
        "normalizer": {"type": "BertNormalizer", **asdict(tokenizer.normalizer)}
        if tokenizer.lowercase
        else None,
        "pre_tokenizer": {"type": _PRE_TOKENIZERS[tokenizer.splitter]},
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "unk_token": tokenizer.vocabulary.roles["unk"],
            "vocab": _build_vocab(tokenizer.vocabulary),
        },
    }


def _build_vocab(vocabulary: Vocabulary) -> dict[str, int]:
    forms = {token.decode("utf-8"): id_ for token, id_ in vocabulary.ordinary.items()}
    forms |= get_literal_tokens(vocabulary, forms)
    return dict(sorted(forms.items(), key=lambda item: item[1]))


def _build_added_tokens(vocabulary: Vocabulary) -> list[dict[str, Any]]:
    ids = {name: vocabulary.get_id(name) for name in vocabulary.split_token_names}
    return [
        {
            "id": id_,
            "content": name,
            "single_word": False,
            "lstrip": name in vocabulary.added_tokens and vocabulary.added_tokens[name].lstrip,
            "rstrip": name in vocabulary.added_tokens and vocabulary.added_tokens[name].rstrip,
            "normalized": False,
            "special": name in vocabulary.special,
        }
        for name, id_ in sorted(ids.items(), key=lambda item: item[1])
    ]


def _build_template(vocabulary: Vocabulary) -> dict[str, Any] | None:
    template = vocabulary.template
    if template == EMPTY_TEMPLATE:
        return None
    names = set(template.tokens)
    return {
        "type": "TemplateProcessing",
        "single": list(map(_build_template_piece, template.single)),
        "pair": list(map(_build_template_piece, template.pair)),
        "special_tokens": {
            name: {"id": name, "ids": [vocabulary.special[name]], "tokens": [name]} for name in sorted(names)
        },
    }


def _build_template_piece(piece: TemplatePiece) -> dict[str, Any]:
    if piece.text is None:
        return {"SpecialToken": {"id": piece.token, "type_id": piece.type_id}}
    return {"Sequence": {"id": "AB"[piece.text], "type_id": piece.type_id}}


_EXPORTERS: Mapping[type, Callable[[Any], dict[str, Any]]] = {
    ByteLevelBPE: _build_byte_level,
    MetaspaceBPE: build_metaspace_parts,
    WordPieceTokenizer: _build_wordpiece,
    WordLevelTokenizer: _build_word_level,
}
