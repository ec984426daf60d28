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
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokjax.bpe.merge_rules import RulesTooLargeError
from tokjax.formats.huggingface.byte_level_definition import parse_byte_level
from tokjax.formats.huggingface.definition import (
    RequiresLibraryError,
    get_flag,
    get_steps,
)
from tokjax.formats.huggingface.metaspace_definition import parse_metaspace
from tokjax.formats.huggingface.unigram_definition import parse_unigram
from tokjax.formats.huggingface.word_definition import (
    SPLITTERS,
    parse_word_bpe,
    parse_word_level,
    parse_wordpiece,
)
from tokjax.models.word_bpe import END_OF_WORD

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokjax.core.vocabulary import Role
    from tokjax.models.base import SegmentModel

_WORD_SPLITTERS = [[name] for name in SPLITTERS]


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


def _parse_bpe(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> SegmentModel:
    model = contents["model"]
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option) and (option, model[option]) != ("end_of_word_suffix", END_OF_WORD):
            raise RequiresLibraryError(f"its BPE model has {option}={model[option]!r}")
    splits_words = [step.get("type") for step in get_steps(contents, "pre_tokenizer")] in _WORD_SPLITTERS
    try:
        if model.get("end_of_word_suffix") or splits_words:
            return parse_word_bpe(contents, roles)
        return (parse_metaspace if get_flag(model, "byte_fallback") else parse_byte_level)(contents, roles)
    except RulesTooLargeError as error:
        raise RequiresLibraryError(str(error)) from error


_PARSERS: dict[str, Callable[[Mapping[str, Any], Mapping[Role, str]], SegmentModel]] = {
    "BPE": _parse_bpe,
    "WordPiece": parse_wordpiece,
    "WordLevel": parse_word_level,
    "Unigram": parse_unigram,
}
