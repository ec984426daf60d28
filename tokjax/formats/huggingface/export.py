"""tokjax's own tokenizers as a `tokenizer.json`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tokjax.core.errors import UnsupportedTokenizerError
from tokjax.core.template import NOTHING_AROUND
from tokjax.formats.huggingface.metaspace import metaspace_parts
from tokjax.formats.huggingface.parts import written_as_they_are
from tokjax.formats.merges_from_ranks import all_merges
from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.models.metaspace_bpe import MetaspaceBPE
from tokjax.models.word_level import WordLevelTokenizer
from tokjax.models.wordpiece import WordPieceTokenizer
from tokjax.pretokenize.bytes_to_unicode import to_stand_ins
from tokjax.pretokenize.patterns import PATTERNS, word_splitter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokjax.core.template import Place
    from tokjax.core.vocabulary import Vocabulary

_PRE_TOKENIZERS = {"whitespace": "WhitespaceSplit", "bert": "BertPreTokenizer"}


def as_huggingface(tokenizer: Any) -> dict[str, Any]:
    """A `tokenizer.json` whose ids and offsets are the tokenizer's.

    Raises:
        UnsupportedTokenizerError: the format can't express something of it.
    """
    if type(tokenizer) not in _EXPORTERS:
        known = ", ".join(kind.__name__ for kind in _EXPORTERS)
        raise UnsupportedTokenizerError(
            f"a tokenizer.json is written of {known}; not of {type(tokenizer).__name__}"
        )
    parts = _EXPORTERS[type(tokenizer)](tokenizer)
    table = tokenizer.vocabulary
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(table),
        "normalizer": None,
        "post_processor": _template(table),
        **parts,
    }


def _byte_level(tokenizer: ByteLevelBPE) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "trim_offsets": False, "use_regex": True}
    processors = [
        {
            **byte_level,
            "trim_offsets": tokenizer.trim is not None,
            "add_prefix_space": tokenizer.trim == "but_first",
        }
    ]
    template = _template(tokenizer.vocabulary)
    if template is not None:
        processors.append(template)
    return {
        "normalizer": {"type": "NFC"} if tokenizer.normalizer else None,
        "pre_tokenizer": _split(tokenizer),
        "post_processor": processors[0]
        if template is None
        else {"type": "Sequence", "processors": processors},
        "decoder": {**byte_level, "add_prefix_space": tokenizer.prefix_space},
        "model": _byte_level_model(tokenizer),
    }


def _byte_level_model(tokenizer: ByteLevelBPE) -> dict[str, Any]:
    own = tokenizer.vocabulary.mergeable
    forms = {to_stand_ins(token): id_ for token, id_ in own.items()}
    forms |= written_as_they_are(tokenizer.vocabulary, forms)
    pairs = all_merges(own) if tokenizer.merges is None else tokenizer.merges
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": tokenizer.whole_words,
        "vocab": dict(sorted(forms.items(), key=lambda item: item[1])),
        "merges": [[to_stand_ins(left), to_stand_ins(right)] for left, right in pairs],
    }


def _split(tokenizer: ByteLevelBPE) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": tokenizer.prefix_space, "trim_offsets": False}
    name = word_splitter(tokenizer.pattern).name
    if name == "gpt2":
        return {**byte_level, "use_regex": True}
    if name is None or name == "whitespace":
        raise UnsupportedTokenizerError(
            f"a tokenizer.json can't be written with the pattern {tokenizer.pattern!r}: its library has "
            "another engine for regular expressions, which might split otherwise; published patterns are "
            f"{', '.join(known for known in PATTERNS if known != 'whitespace')}"
        )
    if tokenizer.prefix_space:
        raise UnsupportedTokenizerError(
            f"a tokenizer.json can say prefix_space=True with the pattern 'gpt2', not {tokenizer.pattern!r}"
        )
    split = {"type": "Split", "pattern": {"Regex": PATTERNS[name]}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, {**byte_level, "use_regex": False}]}


def _wordpiece(tokenizer: WordPieceTokenizer) -> dict[str, Any]:
    prefix = tokenizer.continuing_prefix
    return {
        "normalizer": None
        if tokenizer.normalizer.is_idle
        else {"type": "BertNormalizer", **asdict(tokenizer.normalizer)},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": prefix, "cleanup": tokenizer.cleanup},
        "model": {
            "type": "WordPiece",
            "unk_token": tokenizer.vocabulary.roles["unk"],
            "continuing_subword_prefix": prefix,
            "max_input_chars_per_word": tokenizer.max_word_characters,
            "vocab": _vocab_of_words(tokenizer.vocabulary),
        },
    }


def _word_level(tokenizer: WordLevelTokenizer) -> dict[str, Any]:
    return {
        "normalizer": {"type": "BertNormalizer", **asdict(tokenizer.normalizer)}
        if tokenizer.lowercase
        else None,
        "pre_tokenizer": {"type": _PRE_TOKENIZERS[tokenizer.splitter]},
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "unk_token": tokenizer.vocabulary.roles["unk"],
            "vocab": _vocab_of_words(tokenizer.vocabulary),
        },
    }


def _vocab_of_words(vocabulary: Vocabulary) -> dict[str, int]:
    forms = {token.decode("utf-8"): id_ for token, id_ in vocabulary.ordinary.items()}
    forms |= written_as_they_are(vocabulary, forms)
    return dict(sorted(forms.items(), key=lambda item: item[1]))


def _added_tokens(vocabulary: Vocabulary) -> list[dict[str, Any]]:
    ids = {name: vocabulary.id_of(name) for name in vocabulary.parting}
    return [
        {
            "id": id_,
            "content": name,
            "single_word": False,
            "lstrip": name in vocabulary.added and vocabulary.added[name].left,
            "rstrip": name in vocabulary.added and vocabulary.added[name].right,
            "normalized": False,
            "special": name in vocabulary.special,
        }
        for name, id_ in sorted(ids.items(), key=lambda item: item[1])
    ]


def _template(vocabulary: Vocabulary) -> dict[str, Any] | None:
    template = vocabulary.template
    if template == NOTHING_AROUND:
        return None
    names = {place.token for place in (*template.single, *template.pair) if place.token is not None}
    return {
        "type": "TemplateProcessing",
        "single": list(map(_piece, template.single)),
        "pair": list(map(_piece, template.pair)),
        "special_tokens": {
            name: {"id": name, "ids": [vocabulary.special[name]], "tokens": [name]} for name in sorted(names)
        },
    }


def _piece(place: Place) -> dict[str, Any]:
    if place.text is None:
        return {"SpecialToken": {"id": place.token, "type_id": place.type_id}}
    return {"Sequence": {"id": "AB"[place.text], "type_id": place.type_id}}


_EXPORTERS: Mapping[type, Callable[[Any], dict[str, Any]]] = {
    ByteLevelBPE: _byte_level,
    MetaspaceBPE: metaspace_parts,
    WordPieceTokenizer: _wordpiece,
    WordLevelTokenizer: _word_level,
}
