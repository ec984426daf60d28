"""Alignment of labelled text spans and words with the labels of tokens, in both directions."""

from tokjax._util.imports import mark_namespace
from tokjax.align.character_spans import spans_from_characters, spans_to_characters
from tokjax.align.flat_tokens import (
    byte_to_token,
    char_to_token,
    token_to_span,
    token_to_word,
    word_to_tokens,
)
from tokjax.align.labels_to_spans import spans_from_labels
from tokjax.align.offset_trimming import trim_offsets
from tokjax.align.spans import SpanColumns, pad_spans, span_columns
from tokjax.align.spans_to_labels import SpanLabels, align_span_arrays, align_spans
from tokjax.align.tagset import TagSet
from tokjax.align.window_merging import merge_windows
from tokjax.align.word_labels import labels_from_words, word_ids_from_spans, words_from_labels
from tokjax.core.records import MergedWindows

__all__ = [
    "MergedWindows",
    "SpanColumns",
    "SpanLabels",
    "TagSet",
    "align_span_arrays",
    "align_spans",
    "byte_to_token",
    "char_to_token",
    "labels_from_words",
    "merge_windows",
    "pad_spans",
    "span_columns",
    "spans_from_characters",
    "spans_from_labels",
    "spans_to_characters",
    "token_to_span",
    "token_to_word",
    "trim_offsets",
    "word_ids_from_spans",
    "word_to_tokens",
    "words_from_labels",
]
mark_namespace(__name__)
