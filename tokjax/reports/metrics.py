"""Metrics of a vocabulary report, with the labels and number formats that tables and HTML pages use."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.display import make_visible

if TYPE_CHECKING:
    from tokjax.reports.records import TextSize, TokenUse, VocabularyReport

COUNT, RATIO, SHARE = ",", ".3f", ".2%"
NAN_TEXT = "–"
"""Text that is shown for `nan`."""
ALL_KINDS = "all texts"
"""Label of all kinds of text together."""
_BINS = (*range(1, 18), 25, 33, 65, 129)
"""Minimum length of each bin of a histogram, in bytes."""


class Metric(NamedTuple):
    """Numeric attribute of a record, with its label and format.

    Attributes:
        name: name of the attribute.
        label: label in tables and pages.
        meaning: definition of the metric, one phrase.
        form: format specification of the number.
    """

    name: str
    label: str
    meaning: str
    form: str

    def get_value(self, record: TextSize | TokenUse) -> Any:
        """Returns the value of the metric."""
        return getattr(record, self.name)

    def format_number(self, record: TextSize | TokenUse) -> str:
        """Returns the formatted value of the metric."""
        return format_number(self.get_value(record), self.form)


def format_number(value: float, form: str = RATIO) -> str:
    """Formats a number; `nan` becomes a dash."""
    return NAN_TEXT if math.isnan(value) else format(value, form)


_make_count, _make_ratio, _make_share = (partial(Metric, form=form) for form in (COUNT, RATIO, SHARE))

TEXT_METRICS = (
    _make_count("documents", "documents", "non-empty texts"),
    _make_count("nbytes", "bytes", "UTF-8 bytes of the texts, before any normalization"),
    _make_count("characters", "characters", "code points; an invalid UTF-8 byte counts as one"),
    _make_count("words", "words", "words separated by whitespace"),
)
"""Metrics of a `TextSize`."""
VOCABULARY_METRICS = (
    _make_count("vocab_size", "ids", "the largest id plus one"),
    _make_count("num_ordinary", "ordinary tokens", "tokens of the vocabulary that are not special"),
    _make_count("num_special", "special tokens", "tokens of the vocabulary that are special"),
)
"""Metrics of a `TokenUse` that depend on the vocabulary alone."""
USE_METRICS = (
    _make_count("tokens", "tokens", "tokens of the texts, without BOS and EOS"),
    _make_ratio("bytes_per_token", "bytes per token", "bytes of text / tokens"),
    _make_ratio("characters_per_token", "characters per token", "characters of text / tokens"),
    _make_ratio("tokens_per_word", "tokens per word", "tokens / words of text (also called fertility)"),
    _make_ratio(
        "bits_per_token",
        "bits per token",
        "entropy of the distribution of single tokens: the sum of -p log2(p) over the ids that occur, "
        "where p is the share of the id among all tokens",
    ),
    _make_ratio("bits_per_byte", "bits per byte", "entropy per byte: bits per token / bytes per token"),
    _make_share("unused_share", "never used", "share of the ordinary tokens that never occur in the texts"),
    _make_share("single_use_share", "used once", "share of the ordinary tokens that occur once in the texts"),
    _make_share(
        "unknown_share", "unknown tokens", "share of the unknown token among the tokens of the texts"
    ),
    _make_share(
        "single_byte_share",
        "single-byte tokens",
        "share of single-byte tokens among the tokens of the texts, byte fallback included",
    ),
)
"""Metrics of a `TokenUse` that depend on the texts."""


class LengthBin(NamedTuple):
    """Histogram bin of token lengths.

    Attributes:
        minimum: minimum length, in bytes.
        maximum: maximum length, in bytes; `None` without an upper limit.
        num_in_vocabulary: number of ordinary tokens of the vocabulary in this bin.
        num_in_texts: number of ordinary tokens of the texts in this bin.
    """

    minimum: int
    maximum: int | None
    num_in_vocabulary: int
    num_in_texts: int

    @property
    def label(self) -> str:
        """Formatted range of lengths, such as `17–24` or `129+`."""
        if self.maximum is None:
            return f"{self.minimum}+"
        return str(self.minimum) if self.minimum == self.maximum else f"{self.minimum}–{self.maximum}"


def compute_length_bins(use: TokenUse) -> list[LengthBin]:
    """Computes a histogram of token lengths, up to the bin of the longest token of the vocabulary.

    Bins are one byte wide up to 16 bytes, and wider above.
    """
    num_in_vocabulary, num_in_texts = use.vocabulary_lengths, use.used_lengths
    return [
        LengthBin(
            minimum,
            None if stop is None else stop - 1,
            int(num_in_vocabulary[minimum:stop].sum()),
            int(num_in_texts[minimum:stop].sum()),
        )
        for minimum, stop in zip(_BINS, [*_BINS[1:], None], strict=True)
        if minimum < len(num_in_vocabulary)
    ]


def make_printable(name: str) -> str:
    """Returns the name of a tokenizer or kind of text with its control characters escaped."""
    return name if name.isprintable() else make_visible(name)


def group_by_kind(report: VocabularyReport) -> list[tuple[str, tuple[TokenUse, ...]]]:
    """Returns each kind of text with the token counts of all tokenizers.

    A report of several kinds of text has one more entry, for all kinds together, at the end.
    """
    kinds: list[str | None] = [*report.kinds, *([None] if len(report.kinds) > 1 else [])]
    return [
        (
            ALL_KINDS if kind is None else make_printable(kind),
            tuple(report.use(each, kind) for each in report.tokenizers),
        )
        for kind in kinds
    ]
