"""The numbers of a report, with the names and forms that tables and pages give them."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.display import visible

if TYPE_CHECKING:
    from tokjax.reports.records import TextSize, TokenUse, VocabularyReport

COUNT, RATIO, SHARE = ",", ".3f", ".2%"
NOTHING = "–"
"""What is shown for `nan`."""
ALL_KINDS = "all together"
"""What all kinds of text are called."""
_BINS = (*range(1, 18), 25, 33, 65, 129)
"""The least length of each bin of a histogram."""


class Number(NamedTuple):
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

    def of(self, record: TextSize | TokenUse) -> Any:
        """The number itself."""
        return getattr(record, self.name)

    def shown(self, record: TextSize | TokenUse) -> str:
        """The number for people to read."""
        return shown(self.of(record), self.form)


def shown(value: float, form: str = RATIO) -> str:
    """A number for people to read."""
    return NOTHING if math.isnan(value) else format(value, form)


_count, _ratio, _share = (partial(Number, form=form) for form in (COUNT, RATIO, SHARE))

OF_TEXT = (
    _count("documents", "documents", "texts that are not empty"),
    _count("nbytes", "bytes", "bytes of UTF-8, of the texts as given"),
    _count("characters", "characters", "code points; a byte that is no UTF-8 is one"),
    _count("words", "words", "runs of characters between white space"),
)
"""Of a `TextSize`."""
OF_VOCABULARY = (
    _count("vocab_size", "ids", "the largest id plus one"),
    _count("num_ordinary", "ordinary tokens", "tokens of the vocabulary that are not special"),
    _count("num_special", "special tokens", "tokens of the vocabulary that are special"),
)
"""Of a `TokenUse`, and of no text."""
OF_USE = (
    _count("tokens", "tokens", "what the texts became; BOS and EOS are not inserted"),
    _ratio("bytes_per_token", "bytes per token", "bytes of text / tokens"),
    _ratio("characters_per_token", "characters per token", "characters of text / tokens"),
    _ratio("tokens_per_word", "tokens per word", "tokens / words of text (also called fertility)"),
    _ratio(
        "bits_per_token",
        "bits per token",
        "entropy of the distribution of single tokens: the sum of -p log2(p) over the ids that came up, "
        "where p is the id's share of all tokens",
    ),
    _ratio("bits_per_byte", "bits per byte", "that entropy by the byte: bits per token / bytes per token"),
    _share("unused_share", "never used", "of the ordinary tokens, those that no text has"),
    _share("single_use_share", "used once", "of the ordinary tokens, those that the texts have once"),
    _share("unknown_share", "unknown tokens", "of the texts' tokens, the one for what is unknown"),
    _share(
        "single_byte_share",
        "single-byte tokens",
        "of the texts' tokens, those that stand for one byte, byte fallback among them",
    ),
)
"""Of a `TokenUse`, and of its text."""


class LengthBin(NamedTuple):
    """Tokens of about one length.

    Attributes:
        least: the least length, in bytes.
        most: the greatest; `None` for any that is greater than the least.
        of_vocabulary: how many of the vocabulary's ordinary tokens are so long.
        of_texts: how many of the texts' ordinary tokens are.
    """

    least: int
    most: int | None
    of_vocabulary: int
    of_texts: int

    @property
    def label(self) -> str:
        """The lengths for people to read."""
        if self.most is None:
            return f"{self.least}+"
        return str(self.least) if self.least == self.most else f"{self.least}–{self.most}"


def length_bins(use: TokenUse) -> list[LengthBin]:
    """A histogram of the tokens' lengths: byte by byte at first, in wider bins then, up to the longest."""
    of_vocabulary, of_texts = use.vocabulary_lengths, use.used_lengths
    return [
        LengthBin(
            least,
            None if after is None else after - 1,
            int(of_vocabulary[least:after].sum()),
            int(of_texts[least:after].sum()),
        )
        for least, after in zip(_BINS, [*_BINS[1:], None], strict=True)
        if least < len(of_vocabulary)
    ]


def readable_name(name: str) -> str:
    """A name of a tokenizer or kind of text, with control characters shown."""
    return name if name.isprintable() else visible(name)


def sections(report: VocabularyReport) -> list[tuple[str, tuple[TokenUse, ...]]]:
    """How the tokenizers fare on each kind of text, and on all of them where there are several."""
    kinds: list[str | None] = [*report.kinds, *([None] if len(report.kinds) > 1 else [])]
    return [
        (
            ALL_KINDS if kind is None else readable_name(kind),
            tuple(report.use(each, kind) for each in report.tokenizers),
        )
        for kind in kinds
    ]
