"""The numbers of a report, with the names and forms that tables and pages give them."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.display import make_visible

if TYPE_CHECKING:
    from tokjax.reports.records import TextSize, TokenUse, VocabularyReport

COUNT, RATIO, SHARE = ",", ".3f", ".2%"
NAN_TEXT = "–"
"""What is shown for `nan`."""
ALL_KINDS = "all together"
"""What all kinds of text are called."""
_BINS = (*range(1, 18), 25, 33, 65, 129)
"""The least length of each bin of a histogram."""


class Metric(NamedTuple):
    """One number of a record.

    Attributes:
        name: the record's attribute.
        label: what it is called.
        meaning: what it is, in words.
        form: how it is written.
    """

    name: str
    label: str
    meaning: str
    form: str

    def get_value(self, record: TextSize | TokenUse) -> Any:
        """The number itself."""
        return getattr(record, self.name)

    def format_number(self, record: TextSize | TokenUse) -> str:
        """The number for people to read."""
        return format_number(self.get_value(record), self.form)


def format_number(value: float, form: str = RATIO) -> str:
    """A number for people to read."""
    return NAN_TEXT if math.isnan(value) else format(value, form)


_count_metric, _ratio_metric, _share_metric = (partial(Metric, form=form) for form in (COUNT, RATIO, SHARE))

TEXT_METRICS = (
    _count_metric("documents", "documents", "texts that are not empty"),
    _count_metric("nbytes", "bytes", "bytes of UTF-8, of the texts as given"),
    _count_metric("characters", "characters", "code points; a byte that is no UTF-8 is one"),
    _count_metric("words", "words", "runs of characters between white space"),
)
"""Of a `TextSize`."""
VOCABULARY_METRICS = (
    _count_metric("vocab_size", "ids", "the largest id plus one"),
    _count_metric("num_ordinary", "ordinary tokens", "tokens of the vocabulary that are not special"),
    _count_metric("num_special", "special tokens", "tokens of the vocabulary that are special"),
)
"""Of a `TokenUse`, and of no text."""
USE_METRICS = (
    _count_metric("tokens", "tokens", "what the texts became; BOS and EOS are not inserted"),
    _ratio_metric("bytes_per_token", "bytes per token", "bytes of text / tokens"),
    _ratio_metric("characters_per_token", "characters per token", "characters of text / tokens"),
    _ratio_metric("tokens_per_word", "tokens per word", "tokens / words of text (also called fertility)"),
    _ratio_metric(
        "bits_per_token",
        "bits per token",
        "entropy of the distribution of single tokens: the sum of -p log2(p) over the ids that came up, "
        "where p is the id's share of all tokens",
    ),
    _ratio_metric(
        "bits_per_byte", "bits per byte", "that entropy by the byte: bits per token / bytes per token"
    ),
    _share_metric("unused_share", "never used", "of the ordinary tokens, those that no text has"),
    _share_metric("single_use_share", "used once", "of the ordinary tokens, those that the texts have once"),
    _share_metric("unknown_share", "unknown tokens", "of the texts' tokens, the one for what is unknown"),
    _share_metric(
        "single_byte_share",
        "single-byte tokens",
        "of the texts' tokens, those that stand for one byte, byte fallback among them",
    ),
)
"""Of a `TokenUse`, and of its text."""


class LengthBin(NamedTuple):
    """Tokens of about one length.

    Attributes:
        minimum: the least length, in bytes.
        maximum: the greatest; `None` for any that is greater than the least.
        num_in_vocabulary: how many of the vocabulary's ordinary tokens are so long.
        num_in_texts: how many of the texts' ordinary tokens are.
    """

    minimum: int
    maximum: int | None
    num_in_vocabulary: int
    num_in_texts: int

    @property
    def label(self) -> str:
        """The lengths for people to read."""
        if self.maximum is None:
            return f"{self.minimum}+"
        return str(self.minimum) if self.minimum == self.maximum else f"{self.minimum}–{self.maximum}"


def compute_length_bins(use: TokenUse) -> list[LengthBin]:
    """A histogram of the tokens' lengths: byte by byte at first, in wider bins then, up to the longest."""
    num_in_vocabulary, num_in_texts = use.vocabulary_lengths, use.used_lengths
    return [
        LengthBin(
            minimum,
            None if after is None else after - 1,
            int(num_in_vocabulary[minimum:after].sum()),
            int(num_in_texts[minimum:after].sum()),
        )
        for minimum, after in zip(_BINS, [*_BINS[1:], None], strict=True)
        if minimum < len(num_in_vocabulary)
    ]


def make_printable(name: str) -> str:
    """A name of a tokenizer or kind of text, with control characters shown."""
    return name if name.isprintable() else make_visible(name)


def sections(report: VocabularyReport) -> list[tuple[str, tuple[TokenUse, ...]]]:
    """How the tokenizers fare on each kind of text, and on all of them where there are several."""
    kinds: list[str | None] = [*report.kinds, *([None] if len(report.kinds) > 1 else [])]
    return [
        (
            ALL_KINDS if kind is None else make_printable(kind),
            tuple(report.use(each, kind) for each in report.tokenizers),
        )
        for kind in kinds
    ]
