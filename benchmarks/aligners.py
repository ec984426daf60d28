"""Alignment of labelled spans with tokens: tokjax, and loops over `char_to_token` of tokenizers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

import tokjax
from benchmarks.inputs import InputError, load_ranks_tokenizer, write_vocabulary_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = re.compile(r"\b[A-Z][a-z]+(?: [A-Z][a-z]+)*")
PARAGRAPHS = 10_000
Entities = list[list[tuple[int, int, str]]]


def split_paragraphs(documents: list[str]) -> list[str]:
    """Returns up to 10,000 paragraphs that are longer than 200 characters."""
    parts = [part for document in documents for part in document.split("\n\n")]
    return [part for part in parts if len(part) > 200 and "<|" not in part][:PARAGRAPHS]


def align_characters(encodings: list[Any], entities: Entities) -> list[list[int]]:
    """Returns the tags of each text (0 outside, 1 first, 2 inside), with one lookup per character."""
    rows = []
    for encoding, row in zip(encodings, entities, strict=True):
        tags = [0] * len(encoding)
        for start, stop, _ in row:
            positions = {encoding.char_to_token(character) for character in range(start, stop)} - {None}
            first = min(positions, default=None)
            for position in positions:
                tags[position] = 1 if position == first else 2
        rows.append(tags)
    return rows


def align_ends(encodings: list[Any], entities: Entities) -> list[list[int]]:
    """Returns the same tags, with two lookups per name: its first and its last character."""
    rows = []
    for encoding, row in zip(encodings, entities, strict=True):
        tags = [0] * len(encoding)
        for start, stop, _ in row:
            first, last = encoding.char_to_token(start), encoding.char_to_token(stop - 1)
            tags[first : last + 1] = [1, *[2] * (last - first)]
        rows.append(tags)
    return rows


def make_alignment(documents: list[str], ranks: Path) -> dict[str, Callable[[], object]]:
    """Makes contenders that label the tokens of capitalised names in paragraphs.

    All contenders start from encoded texts, and the spans of the names are in characters.

    Raises:
        InputError: the contenders give different labels.
    """
    texts = split_paragraphs(documents)
    entities: Entities = [[(*match.span(), "NAME") for match in NAME.finditer(part)] for part in texts]
    tokenizer = load_ranks_tokenizer(ranks)
    batch = tokjax.encode_batch_result(tokenizer, texts, add_special_tokens=False, disallowed_special=())
    spans = tokjax.align.spans_from_characters(texts, entities)
    columns = tokjax.align.span_columns(spans, ["NAME"])
    exported = Tokenizer.from_file(str(write_vocabulary_file(ranks, "huggingface") / "tokenizer.json"))
    encodings = exported.encode_batch(texts, add_special_tokens=False)
    by_arrays = tokjax.align.align_spans(batch, columns, labels=["NAME"]).labels.tolist()
    for loop in (align_characters, align_ends):
        if by_arrays != [tag for row in loop(encodings, entities) for tag in row]:
            raise InputError(f"{loop.__name__} and tokjax give different labels")
    return {
        "tokjax": lambda: tokjax.align.align_spans(
            batch, tokjax.align.spans_from_characters(texts, entities), labels=["NAME"]
        ),
        "tokjax, spans of bytes": lambda: tokjax.align.align_spans(batch, spans, labels=["NAME"]),
        "tokjax, spans of bytes in arrays": lambda: tokjax.align.align_spans(batch, columns, labels=["NAME"]),
        "char_to_token of each character": lambda: align_characters(encodings, entities),
        "char_to_token of both ends": lambda: align_ends(encodings, entities),
    }
