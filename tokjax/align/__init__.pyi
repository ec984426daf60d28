from .character_spans import (
    spans_from_characters as spans_from_characters,
    spans_to_characters as spans_to_characters,
)
from .flat_tokens import (
    byte_to_token as byte_to_token,
    char_to_token as char_to_token,
    token_to_span as token_to_span,
    token_to_word as token_to_word,
    word_to_tokens as word_to_tokens,
)
from .labels_to_spans import (
    spans_from_labels as spans_from_labels,
)
from .offset_trimming import (
    trim_offsets as trim_offsets,
)
from .spans import (
    SpanColumns as SpanColumns,
    span_columns as span_columns,
)
from .spans_to_labels import (
    SpanLabels as SpanLabels,
    align_spans as align_spans,
)
from .tagset import (
    TagSet as TagSet,
)
from .window_merging import (
    MergedWindows as MergedWindows,
    merge_windows as merge_windows,
)
from .word_labels import (
    labels_from_words as labels_from_words,
    word_ids_from_spans as word_ids_from_spans,
    words_from_labels as words_from_labels,
)
