"""Vocabulary reports: measurement of tokenizers on texts in bounded memory, as JSON values or tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokjax._util.display import make_visible, show_progress_bar
from tokjax._util.threads import resolve_num_threads
from tokjax.core import protocol
from tokjax.core.utf8 import count_bytes, to_characters
from tokjax.corpus.files import get_source_files
from tokjax.corpus.sources import Source, find_source_files, read_documents
from tokjax.encoding.bulk import check_separator, encode_to_array, iter_text_groups
from tokjax.errors import InvalidArgumentError
from tokjax.reports.metrics import TextSize, TokenUse, VocabularyReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray
    from rich.table import Table
    from rich.text import Text as StyledText

    from tokjax.core.encode_options import Special
    from tokjax.core.utf8 import Text


Texts: TypeAlias = Source | Mapping[str, Source]
"""One source, or a mapping from the names of kinds of text to their sources."""
ONLY_KIND = "text"
"""Name of the kind of text if only one source is passed."""

TEXT_METRICS = ("documents", "nbytes", "characters", "words")
"""Attributes of a `TextSize`."""
VOCABULARY_METRICS = ("vocab_size", "num_ordinary", "num_special")
"""Metrics of a `TokenUse` that depend on the vocabulary alone."""
USE_METRICS = (
    "tokens",
    "bytes_per_token",
    "characters_per_token",
    "tokens_per_word",
    "bits_per_token",
    "bits_per_byte",
    "huffman_bits_per_token",
    "huffman_bits_per_byte",
    "renyi_efficiency",
    "unused_share",
    "single_use_share",
    "unknown_share",
    "single_byte_share",
)
"""Metrics of a `TokenUse` that depend on the texts."""
_COLUMNS_PER_TABLE = 4
"""Maximum number of numeric columns that fit in 80 characters."""
_MAX_TOKENS = 10
_TOKEN_WIDTH, _BAR_WIDTH = 26, 24
_NAN_TEXT = "–"
_ALL_KINDS = "all texts"
"""Label of all kinds of text together."""
_BINS = (*range(1, 18), 25, 33, 65, 129)
"""Minimum length of each bin of a histogram, in bytes."""
_LABELS = {
    "nbytes": "bytes",
    "vocab_size": "ids",
    "num_ordinary": "ordinary tokens",
    "num_special": "special tokens",
    "huffman_bits_per_token": "Huffman bits per token",
    "huffman_bits_per_byte": "Huffman bits per byte",
    "renyi_efficiency": "Rényi efficiency",
    "unused_share": "never used",
    "single_use_share": "used once",
    "unknown_share": "unknown tokens",
    "single_byte_share": "single-byte tokens",
}
"""Labels of metrics whose label is not their name with spaces."""


def compute_text_size(documents: Iterable[Text]) -> TextSize:
    r"""Computes the size of documents.

    >>> compute_text_size(["naïve café", b"\xff\n"])
    TextSize(documents=2, nbytes=14, characters=12, words=3)
    """
    size = TextSize()
    for document in documents:
        readable = to_characters(document)
        characters = len(document) if isinstance(document, str) else len(readable)
        size += TextSize(1, count_bytes(document), characters, len(readable.split()))
    return size


def _check_names(noun: str, names: Iterable[object]) -> None:
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidArgumentError(f"the name of a {noun} must be a non-empty string, not {name!r}")


def vocabulary_report(
    tokenizer: Any,
    texts: Texts,
    *,
    against: Mapping[str, Any] | None = None,
    name: str = "tokenizer",
    separator: str | None = None,
    allowed_special: Special = (),
    disallowed_special: Special = (),
    threads: int | None = None,
    progress: bool = True,
) -> VocabularyReport:
    """Measures tokenizers on the same texts.

    Texts are read once, about 8 MB at a time. Memory is bounded by that size, or by the longest document if
    that is longer. BOS and EOS are not inserted.

    Args:
        tokenizer: any registered tokenizer, the subject of the report.
        texts: a path, a list of paths (`os.PathLike`) or an iterable of texts; or a mapping from the names of
            kinds of text (`"en"`, `"code"`) to such sources.
        against: other tokenizers by name, measured on the same texts.
        name: name of `tokenizer` in the report.
        separator: text between the documents of a file or text, which is not measured; `None` if each file or
            text is one document. Empty documents are skipped.
        allowed_special: special tokens that are recognized in documents: a set of names, each a special token
            of every tokenizer, or `"all"`. By default none is recognized, and all tokenizers encode their
            names as ordinary text.
        disallowed_special: special tokens that raise an error if a document contains them: a set of names, or
            `"all"` for all that are not allowed.
        threads: number of threads.
        progress: whether to show a progress bar on standard error.

    Returns:
        The report: a `TokenUse` for each tokenizer and kind of text, and for each tokenizer over all texts.

    Raises:
        InvalidArgumentError: an argument is invalid, or a path is not a file.
        DisallowedSpecialTokenError: a document contains a disallowed special token.

    >>> from tokjax.models.byte_bpe import byte_level_bpe
    >>> single_bytes = {bytes([i]): i for i in range(256)}
    >>> report = vocabulary_report(
    ...     byte_level_bpe(single_bytes | {b"lo": 256, b"low": 257}),
    ...     {"plain": ["low low"], "accented": ["löw"]},
    ...     against={"bytes": byte_level_bpe(single_bytes)},
    ...     progress=False,
    ... )
    >>> report.use(kind="plain").tokens, report.use("bytes", "plain").tokens
    (3, 7)
    >>> round(report.use().bytes_per_token, 3)
    1.571
    """
    if not isinstance(against, (Mapping, type(None))):
        raise InvalidArgumentError(
            f"against must map names to tokenizers, not be a {type(against).__name__}; "
            "pass {NAME: tokenizer}"
        )
    tokenizers = {name: tokenizer, **(against or {})}
    if against and name in against:
        raise InvalidArgumentError(
            f"{name!r} names two tokenizers, one of them in against; pass name= for the first of them"
        )
    sources = dict(texts) if isinstance(texts, Mapping) else {ONLY_KIND: texts}
    if not sources:
        raise InvalidArgumentError("texts is an empty mapping; pass {NAME: source}, or one source")
    _check_names("tokenizer", tokenizers)
    _check_names("kind of text", sources)
    files = list(map(find_source_files, sources.values()))
    check_separator(separator)
    resolve_num_threads(threads)

    def encode(tokenizer: Any, group: Sequence[Text]) -> NDArray[np.int32]:
        encoded = encode_to_array(
            tokenizer,
            group,
            add_special_tokens=False,
            allowed_special=allowed_special,
            disallowed_special=disallowed_special,
            threads=threads,
        )
        return np.asarray(encoded.ids)

    uses = []
    sizes = [None if each is None else sum(f.nbytes for f in get_source_files(each)) for each in files]
    total = None if None in sizes else sum(filter(None, sizes))
    with show_progress_bar("measuring", total, unit="bytes", enabled=progress) as advance:
        for kind, source in sources.items():
            documents = read_documents(source, separator)
            uses.append(
                _measure_texts(list(tokenizers.values()), documents, encode, partial(advance, note=kind))
            )
    return VocabularyReport(tuple(tokenizers), tuple(sources), tuple(uses))


def _measure_texts(
    tokenizers: Sequence[Any],
    documents: Iterable[Text],
    encode: Callable[[Any, Sequence[Text]], NDArray[np.int32]],
    advance: Callable[[int], None],
) -> tuple[TokenUse, ...]:
    """Counts the tokens of one kind of text, with each of the tokenizers."""
    vocabularies = list(map(protocol.get_vocabulary, tokenizers))
    counts = [np.zeros(table.size, np.int64) for table in vocabularies]
    size = TextSize()
    for group in iter_text_groups(documents, threads=1):
        for tokenizer, table, tokenizer_counts in zip(tokenizers, vocabularies, counts, strict=True):
            ids = encode(tokenizer, group)
            table.check_ids(ids)  # A custom tokenizer type may return invalid ids.
            np.add(tokenizer_counts, np.bincount(ids, minlength=table.size), out=tokenizer_counts)
        group_size = compute_text_size(group)
        size += group_size
        advance(group_size.nbytes)
    return tuple(TokenUse(table, size, times) for table, times in zip(vocabularies, counts, strict=True))


def report_to_json(report: VocabularyReport) -> dict[str, Any]:
    """Converts a report to plain JSON values. Keys are attribute names of the records; `nan` becomes `null`.

    Args:
        report: result of `vocabulary_report`.

    Returns:
        A dictionary with these keys, without the counts of single ids:

        - `"tokenizers"` and `"kinds"`: the names.
        - `"texts"`: the attributes of a `TextSize` by kind of text.
        - `"vocabularies"`: by tokenizer, the metrics that do not depend on texts, and the `longest` tokens.
        - `"uses"`: by kind of text and tokenizer, the metrics of a `TokenUse` and its `most_frequent` tokens.
        - `"overall"`: by tokenizer, the same for all kinds of text together.

    >>> from tokjax.models.byte_bpe import byte_level_bpe
    >>> tokenizer = byte_level_bpe({bytes([i]): i for i in range(256)})
    >>> described = report_to_json(vocabulary_report(tokenizer, {"en": ["low"]}, progress=False))
    >>> described["uses"]["en"]["tokenizer"]["tokens"], described["texts"]["en"]["words"]
    (3, 1)
    """
    overall = {name: report.use(name) for name in report.tokenizers}
    by_kind = {kind: {name: report.use(name, kind) for name in overall} for kind in report.kinds}
    return {
        "tokenizers": list(report.tokenizers),
        "kinds": list(report.kinds),
        "texts": {
            kind: _metrics_to_json(next(iter(uses.values())).text, TEXT_METRICS)
            for kind, uses in by_kind.items()
        },
        "vocabularies": {name: _vocabulary_to_json(use) for name, use in overall.items()},
        "uses": {
            kind: {name: _use_to_json(use) for name, use in uses.items()} for kind, uses in by_kind.items()
        },
        "overall": {name: _use_to_json(use) for name, use in overall.items()},
    }


def _vocabulary_to_json(use: TokenUse) -> dict[str, Any]:
    return _metrics_to_json(use, VOCABULARY_METRICS) | {
        "vocabulary_lengths": use.vocabulary_lengths.tolist(),
        "longest": [token._asdict() for token in use.longest()],
    }


def _use_to_json(use: TokenUse) -> dict[str, Any]:
    return _metrics_to_json(use, USE_METRICS) | {
        "used_lengths": use.used_lengths.tolist(),
        "most_frequent": [token._asdict() for token in use.most_frequent()],
    }


def _metrics_to_json(record: TextSize | TokenUse, metrics: Sequence[str]) -> dict[str, Any]:
    values = {name: getattr(record, name) for name in metrics}
    return {name: None if math.isnan(value) else value for name, value in values.items()}


def report_tables(report: VocabularyReport) -> tuple[Table, ...]:
    """Renders a report as `rich` tables of at most 80 columns. Print them with `rich.print(*tables)`.

    Args:
        report: result of `vocabulary_report`.

    Returns:
        In this order: the sizes of the texts; the metrics by kind of text, with up to four tokenizers side by
        side per table; for each tokenizer, its longest and its most frequent tokens, and a histogram of
        token lengths.

    >>> from tokjax.models.byte_bpe import byte_level_bpe
    >>> tokenizer = byte_level_bpe({bytes([i]): i for i in range(256)})
    >>> tables = report_tables(vocabulary_report(tokenizer, ["low"], progress=False))
    >>> [str(table.title) for table in tables]
    ['texts', 'metrics', 'tokens of tokenizer', 'token lengths of tokenizer']
    """
    overall = [(_make_printable(name), report.use(name)) for name in report.tokenizers]
    return (
        _make_texts_table(report),
        *_iter_metric_tables(report),
        *itertools.chain.from_iterable(
            (_make_tokens_table(name, use), _make_lengths_table(name, use)) for name, use in overall
        ),
    )


def _make_texts_table(report: VocabularyReport) -> Table:
    table = _make_table("texts", "kind", list(map(get_label, TEXT_METRICS)))
    for kind, (use, *_) in _group_by_kind(report):
        table.add_row(_make_text(kind), *(format_metric(use.text, name) for name in TEXT_METRICS))
    return table


def _iter_metric_tables(report: VocabularyReport) -> Iterator[Table]:
    for start in range(0, len(report.tokenizers), _COLUMNS_PER_TABLE):
        columns = slice(start, start + _COLUMNS_PER_TABLE)
        table = _make_table("metrics", "", list(map(_make_printable, report.tokenizers[columns])))
        by_kind = _group_by_kind(report)
        groups = [("vocabulary", VOCABULARY_METRICS, by_kind[-1][1])]
        for title, metrics, uses in groups + [(kind, USE_METRICS, uses) for kind, uses in by_kind]:
            table.add_section()
            table.add_row(_make_text(title, "bold"))
            for name in metrics:
                table.add_row(f"  {get_label(name)}", *(format_metric(use, name) for use in uses[columns]))
        yield table


def _make_tokens_table(name: str, use: TokenUse) -> Table:
    """Returns a table of the longest and the most frequent tokens, side by side."""
    table = _make_table(f"tokens of {name}", "longest", ["bytes", "count"])
    table.add_column("most frequent")
    table.add_column("count", justify="right")
    longest, most_frequent = use.longest(_MAX_TOKENS), use.most_frequent(_MAX_TOKENS)
    for long, frequent in itertools.zip_longest(longest, most_frequent):
        left = (
            ["", "", ""] if long is None else [_format_token(long.token), str(long.nbytes), f"{long.times:,}"]
        )
        right = ["", ""] if frequent is None else [_format_token(frequent.token), f"{frequent.times:,}"]
        table.add_row(*left, *right)
    return table


def _make_lengths_table(name: str, use: TokenUse) -> Table:
    """Returns a histogram of token lengths, of the vocabulary and of the texts, drawn with characters."""
    table = _make_table(f"token lengths of {name}", "bytes", [])
    for title in ("in the vocabulary", "in the texts"):
        table.add_column("", justify="right")
        table.add_column(title, min_width=_BAR_WIDTH)
    bins = compute_length_bins(use)
    columns = [counts for _, *counts in bins]
    totals, maxima = map(sum, zip(*columns, strict=True)), map(max, zip(*columns, strict=True))
    scales = list(zip(totals, maxima, strict=True))
    for label, *counts in bins:
        bars = (_format_bar(count, *scale) for count, scale in zip(counts, scales, strict=True))
        table.add_row(label, *itertools.chain.from_iterable(bars))
    return table


def compute_length_bins(use: TokenUse) -> list[tuple[str, int, int]]:
    """Computes a histogram of token lengths, up to the bin of the longest token of the vocabulary.

    Bins are one byte wide up to 16 bytes, and wider above.

    Returns:
        For each bin its range of lengths, such as `17–24` or `129+`, and the number of ordinary tokens in the
        vocabulary and in the texts.
    """
    lengths = use.vocabulary_lengths, use.used_lengths
    bins = []
    for minimum, stop in zip(_BINS, [*_BINS[1:], None], strict=True):
        last = f"–{stop - 1}" if stop is not None and stop - minimum > 1 else ""
        label = f"{minimum}{'+' if stop is None else last}"
        if minimum < len(lengths[0]):
            in_vocabulary, in_texts = (int(numbers[minimum:stop].sum()) for numbers in lengths)
            bins.append((label, in_vocabulary, in_texts))
    return bins


def _format_bar(count: int, total: int, maximum: int) -> tuple[str, str]:
    """Returns the share of a count in its column, and a bar whose length is relative to the largest count."""
    share = f"{count / total:.2%}" if total else _NAN_TEXT
    return share, "█" * (maximum and round(_BAR_WIDTH * count / maximum))


def get_label(name: str) -> str:
    """Returns the label of a metric."""
    return _LABELS.get(name, name.replace("_", " "))


def format_metric(record: TextSize | TokenUse, name: str) -> str:
    """Returns a metric as text: a count, a share in percent or a ratio; `nan` becomes a dash."""
    value = getattr(record, name)
    form = "," if isinstance(value, int) else ".2%" if name.endswith("share") else ".3f"
    return _NAN_TEXT if math.isnan(value) else format(value, form)


def _group_by_kind(report: VocabularyReport) -> list[tuple[str, tuple[TokenUse, ...]]]:
    """Returns each kind of text with the token counts of all tokenizers.

    A report of several kinds of text has one more entry, for all kinds together, at the end.
    """
    kinds: list[str | None] = [*report.kinds, *([None] if len(report.kinds) > 1 else [])]
    return [
        (
            _ALL_KINDS if kind is None else _make_printable(kind),
            tuple(report.use(each, kind) for each in report.tokenizers),
        )
        for kind in kinds
    ]


def _make_printable(name: str) -> str:
    """Returns the name of a tokenizer or kind of text with its control characters escaped."""
    return name if name.isprintable() else make_visible(name)


def _make_table(title: str, first: str, columns: Sequence[str]) -> Table:
    from rich.table import Table  # noqa: PLC0415 (slow to import)

    heading = _make_text(title)
    table = Table(
        title=heading,
        title_justify="left",
        min_width=heading.cell_len,  # Otherwise rich wraps a title that is wider than the columns.
        box=None,
        header_style="bold",
        pad_edge=False,
    )
    table.add_column(_make_text(first))
    for column in columns:
        table.add_column(_make_text(column), justify="right")
    return table


def _format_token(token: str) -> StyledText:
    text = _make_text(make_visible(token), "cyan")
    text.truncate(_TOKEN_WIDTH, overflow="ellipsis")
    return text


def _make_text(text: str, style: str = "") -> StyledText:
    """Returns text that `rich` does not parse as markup."""
    from rich.text import Text  # noqa: PLC0415 (slow to import)

    return Text(text, style=style)
