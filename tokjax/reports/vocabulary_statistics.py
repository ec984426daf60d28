"""Measurement of tokenizers on texts, in one pass and bounded memory, and its results as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokjax._util.progress import show_progress_bar
from tokjax._util.threads import resolve_num_threads
from tokjax.core import protocol
from tokjax.core.utf8 import count_bytes, to_characters
from tokjax.corpus.files import get_source_files
from tokjax.corpus.sources import Source, find_source_files, read_documents
from tokjax.encoding.bulk import check_separator, encode_to_array, iter_text_groups
from tokjax.errors import InvalidArgumentError
from tokjax.reports.metrics import TextSize, TokenUse, VocabularyReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from tokjax.core.protocol import Special
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


def compute_text_size(documents: Iterable[Text]) -> TextSize:
    r"""Computes the size of documents.

    >>> compute_text_size(["naïve café", b"\xff\n"])
    TextSize(documents=2, nbytes=14, characters=12, words=3)
    """
    return sum(map(_compute_document_size, documents), TextSize())


def _compute_document_size(document: Text) -> TextSize:
    readable = to_characters(document)
    characters = len(document) if isinstance(document, str) else len(readable)
    return TextSize(1, count_bytes(document), characters, len(readable.split()))


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
