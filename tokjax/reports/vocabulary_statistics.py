"""Vocabulary reports: measurement of tokenizers on texts in bounded memory, as JSON values or tables."""

from __future__ import annotations

import itertools
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
from tokjax.reports.report_table import ReportTable, Share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from tokjax.core.encode_options import Special
    from tokjax.core.utf8 import Text


Texts: TypeAlias = Source | Mapping[str, Source]
"""One source, or a mapping from the names of kinds of text to their sources."""
ONLY_KIND = "text"
"""Name of the kind of text if only one source is passed."""

TEXT_METRICS = ("documents", "nbytes", "characters", "words")
"""Attributes of a `TextSize`."""
VOCABULARY_METRICS: tuple[str, ...] = ("vocab_size", "num_ordinary", "num_special")
"""Metrics of a `TokenUse` that depend on the vocabulary alone."""
USE_METRICS: tuple[str, ...] = (
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
_MAX_TOKENS = 20
_ALL_KINDS = "all texts"
"""Label of all kinds of text together."""
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
    _check_names("tokenizer", [name, *(against or ())])
    tokenizers = {name: tokenizer, **(against or {})}
    if against and name in against:
        raise InvalidArgumentError(
            f"{name!r} names two tokenizers, one of them in against; pass name= for the first of them"
        )
    sources = dict(texts) if isinstance(texts, Mapping) else {ONLY_KIND: texts}
    if not sources:
        raise InvalidArgumentError("texts is an empty mapping; pass {NAME: source}, or one source")
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


def report_to_json(report: VocabularyReport) -> dict[str, list[dict[str, Any]]]:
    """Converts a report to plain JSON values: the rows of `report_tables` by the title of each table.

    >>> from tokjax.models.byte_bpe import byte_level_bpe
    >>> tokenizer = byte_level_bpe({bytes([i]): i for i in range(256)})
    >>> report_to_json(vocabulary_report(tokenizer, {"en": ["low"]}, progress=False))["texts"]
    [{'kind': 'en', 'documents': 1, 'bytes': 3, 'characters': 3, 'words': 1}]
    """
    return {table.title: table.to_json() for table in report_tables(report)}


def report_tables(report: VocabularyReport) -> tuple[ReportTable, ...]:
    """Returns the tables of a report. Print them with `rich.print(*tables)`.

    Args:
        report: result of `vocabulary_report`.

    Returns:
        In this order: the sizes of the texts; the metrics by kind of text, with a column for each tokenizer;
        for each tokenizer, its longest and its most frequent tokens, and the shares of tokens by length.

    >>> from tokjax.models.byte_bpe import byte_level_bpe
    >>> tokenizer = byte_level_bpe({bytes([i]): i for i in range(256)})
    >>> tables = report_tables(vocabulary_report(tokenizer, ["low"], progress=False))
    >>> [table.title for table in tables][:3]
    ['texts', 'metrics', 'longest tokens of tokenizer']
    """
    if not isinstance(report, VocabularyReport):
        raise InvalidArgumentError(f"report must be a VocabularyReport, not {report!r:.80}")
    by_kind = _group_by_kind(report)
    texts = [(kind, *(getattr(uses[0].text, name) for name in TEXT_METRICS)) for kind, uses in by_kind]
    groups = [("vocabulary", VOCABULARY_METRICS, by_kind[-1][1])] + [
        (kind, USE_METRICS, uses) for kind, uses in by_kind
    ]
    metrics = [
        (kind, get_label(name), *(get_metric(use, name) for use in uses))
        for kind, names, uses in groups
        for name in names
    ]
    return (
        ReportTable("texts", ("kind", *map(get_label, TEXT_METRICS)), tuple(texts)),
        ReportTable("metrics", ("kind", "metric", *report.tokenizers), tuple(metrics)),
        *itertools.chain.from_iterable(map(_make_token_tables, report.tokenizers, by_kind[-1][1])),
    )


def _make_token_tables(name: str, use: TokenUse) -> list[ReportTable]:
    """Returns the tables of one tokenizer: its longest and most frequent tokens, and the lengths of all."""
    token_lists = {"longest": use.longest(_MAX_TOKENS), "most frequent": use.most_frequent(_MAX_TOKENS)}
    tables = [
        ReportTable(
            f"{which} tokens of {name}",
            ("token", "bytes", "count"),
            tuple((make_visible(each.token), each.nbytes, each.times) for each in tokens),
        )
        for which, tokens in token_lists.items()
    ]
    columns = use.vocabulary_lengths, use.used_lengths
    shares = (column / max(column.sum(), 1) for column in columns)
    lengths = [
        (length, *map(Share, row))
        for length, row in enumerate(zip(*shares, strict=True))
        if columns[0][length]
    ]
    title = f"token lengths of {name}"
    return [*tables, ReportTable(title, ("bytes", "in the vocabulary", "in the texts"), tuple(lengths))]


def get_label(name: str) -> str:
    """Returns the label of a metric."""
    return _LABELS.get(name, name.replace("_", " "))


def get_metric(use: TokenUse, name: str) -> float:
    """Returns a metric; a `Share` if it is printed in percent."""
    value: float = getattr(use, name)
    return Share(value) if name.endswith("share") else value


def _group_by_kind(report: VocabularyReport) -> list[tuple[str, tuple[TokenUse, ...]]]:
    """Returns each kind of text with the token counts of all tokenizers.

    A report of several kinds of text has one more entry, for all kinds together, at the end.
    """
    kinds: list[str | None] = [*report.kinds, *([None] if len(report.kinds) > 1 else [])]
    return [
        (kind or _ALL_KINDS, tuple(report.use(each, kind) for each in report.tokenizers)) for kind in kinds
    ]
