"""Checks of a `tokenizer.json` for the `tokenizers` library: limits, and definitions that it can't handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokjax.errors import TokenizerFormatError
from tokjax.formats.huggingface.growth_limits import check_growth
from tokjax.models.format_errors import check_piece_comparisons, check_vocab_size, check_work_per_position

if TYPE_CHECKING:
    from collections.abc import Mapping


def check_before_loading(contents: Mapping[str, Any]) -> None:
    """Raises `TokenizerFormatError` for a definition that the library must not read.

    That is one that exceeds `tokjax.limits`, or aborts the process.

    Args:
        contents: parsed `tokenizer.json`.
    """
    model = contents.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, (dict, list)):
        check_vocab_size(len(vocab), "the model's vocab")
    check_growth(contents)
    _check_merges(contents["model"])


def check_loaded_model(library_model: Any, model: Mapping[str, Any]) -> None:
    """Raises `TokenizerFormatError` for duplicate pieces, or a model with which encoding takes too long.

    Args:
        library_model: model that the library made of the definition.
        model: model of the parsed `tokenizer.json`.
    """
    if isinstance(model["vocab"], list):
        check_pieces([piece for piece, _ in model["vocab"]])
    elif type(library_model).__name__ == "WordPiece":
        # The library compares every substring of a word with the vocabulary.
        longest = library_model.max_input_chars_per_word
        check_work_per_position(longest * longest // 2, f"max_input_chars_per_word is {longest:,}")


def check_pieces(pieces: list[str]) -> None:
    """Raises `TokenizerFormatError` for duplicate pieces, or pieces with which encoding takes too long."""
    _check_duplicates(pieces)
    check_piece_comparisons(pieces)


def _check_merges(model: Mapping[str, Any]) -> None:
    """Raises `TokenizerFormatError` for merges that abort the process when the library reads them.

    With a `continuing_subword_prefix`, the library removes as many bytes from the second token as the prefix
    has characters. If the token does not begin with the prefix, that can split a character.
    """
    prefix = model.get("continuing_subword_prefix") or ""
    for merge in model.get("merges") or [] if prefix else []:
        second = merge.partition(" ")[2] if isinstance(merge, str) else merge[-1]
        if not second.startswith(prefix):
            raise TokenizerFormatError(
                f"the merge {merge!r}: the second token does not begin with the continuing_subword_prefix "
                f"{prefix!r} of the model"
            )


def _check_duplicates(pieces: list[str]) -> None:
    """Raises `TokenizerFormatError` for a duplicate piece of a Unigram vocabulary."""
    seen: set[str] = set()
    for piece in pieces:
        if piece in seen:
            raise TokenizerFormatError(
                f"the model's vocab has the duplicate piece {piece!r}, so that two ids have the same token; "
                "remove the later one (the library's trainer creates it from text that contains a special "
                "token)"
            )
        seen.add(piece)
