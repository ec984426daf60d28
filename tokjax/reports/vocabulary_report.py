"""Measuring tokenizers on texts: one reading, some megabytes at a time."""

from __future__ import annotations

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
from tokjax.reports.records import TextSize, TokenUse, VocabularyReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from tokjax.core.protocol import Special
    from tokjax.core.utf8 import Text


Texts: TypeAlias = Source | Mapping[str, Source]
"""A source, or the name of each kind of text with its source."""
ONLY_KIND = "text"
"""The name of texts that are not told apart."""

_CHARACTERS_PER_SPLIT = 1 << 16


def name_sources(texts: Texts) -> dict[str, Source]:
    """The kinds of text by name.

    Raises:
        InvalidArgumentError: a name that is none, a source that is none, or no kind at all.
    """
    sources = dict(texts) if isinstance(texts, Mapping) else {ONLY_KIND: texts}
    if not sources:
        raise InvalidArgumentError("texts is an empty mapping; pass {NAME: source}, or one source")
    _check_names("kind of text", sources)
    for source in sources.values():
        find_source_files(source)
    return sources


def name_tokenizers(tokenizer: Any, name: str, against: Mapping[str, Any] | None) -> dict[str, Any]:
    """All tokenizers by name, the one that a report is about first.

    Raises:
        InvalidArgumentError: a name that is none, or that stands twice.
    """
    if not isinstance(against, (Mapping, type(None))):
        raise InvalidArgumentError(
            f"against must map names to tokenizers, not be a {type(against).__name__}; "
            "pass {NAME: tokenizer}"
        )
    others = against or {}
    _check_names("tokenizer", [name, *others])
    if name in others:
        raise InvalidArgumentError(
            f"{name!r} names two tokenizers, one of them in against; pass name= for the first of them"
        )
    return {name: tokenizer, **others}


def get_total_nbytes(sources: Iterable[Source]) -> int | None:
    """How many bytes sources have, or `None` where one of them is not made of files."""
    by_source = list(map(find_source_files, sources))
    if None in by_source:
        return None
    return sum(file.nbytes for files in by_source if files is not None for file in get_source_files(files))


def compute_text_size(documents: Iterable[Text]) -> TextSize:
    r"""How much text some documents are.

    >>> compute_text_size(["naïve café", b"\xff\n"])
    TextSize(documents=2, nbytes=14, characters=12, words=3)
    """
    return sum(map(_compute_document_size, documents), TextSize())


def _compute_document_size(document: Text) -> TextSize:
    readable = to_characters(document)
    characters = len(document) if isinstance(document, str) else len(readable)
    return TextSize(1, count_bytes(document), characters, _count_words(readable))


def _count_words(text: str) -> int:
    """`len(text.split())`, but a long text's words are never held all at once."""
    count = 0
    for start in range(0, len(text), _CHARACTERS_PER_SPLIT):
        count += len(text[start : start + _CHARACTERS_PER_SPLIT].split())
        splits_word = start > 0 and not text[start - 1].isspace() and not text[start].isspace()
        count -= splits_word
    return count


def _check_names(what: str, names: Iterable[object]) -> None:
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidArgumentError(f"the name of a {what} must be a text, not {name!r}")


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
    """How a tokenizer's vocabulary fares on texts, beside others on the same texts.

    Texts are read once, some 8 MB at a time; memory is bounded by that, or by the longest document where one
    is longer. No BOS or EOS is inserted.

    Args:
        tokenizer: any registered tokenizer.
        texts: a path, a list of paths (`os.PathLike`) or an iterable of texts; or a mapping from the names of
            kinds of text (`"en"`, `"code"`) to such sources.
        against: other tokenizers by name, measured on the same texts.
        name: what the report calls the tokenizer.
        separator: what stands between the documents of a file or text, and is not measured; `None` if each of
            them is one document. Empty documents are left out.
        allowed_special: special tokens that are recognised in documents: names, which every tokenizer must
            have, or `"all"`. None of them by default: what documents say is ordinary text to every
            tokenizer, whatever its special tokens.
        disallowed_special: special tokens that raise an error in documents: names, or `"all"` for every one
            that is not allowed.
        threads: how many threads share the work.
        progress: show a progress bar on standard error.

    Returns:
        For each tokenizer, the `TokenUse` of each kind of text and of all together.

    Raises:
        InvalidArgumentError: an argument makes no sense, or a path is no file.
        DisallowedSpecialTokenError: a document holds a special token that is disallowed.

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
    tokenizers = name_tokenizers(tokenizer, name, against)
    sources = name_sources(texts)
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
    total = get_total_nbytes(sources.values())
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
    """How tokenizers fare on one kind of text."""
    vocabularies = list(map(protocol.get_vocabulary, tokenizers))
    counts = [np.zeros(table.size, np.int64) for table in vocabularies]
    size = TextSize()
    for group in iter_text_groups(documents):
        for tokenizer, table, tokenizer_counts in zip(tokenizers, vocabularies, counts, strict=True):
            ids = encode(tokenizer, group)
            table.check_ids(ids)  # (someone else's type may give any)
            np.add(tokenizer_counts, np.bincount(ids, minlength=table.size), out=tokenizer_counts)
        group_size = compute_text_size(group)
        size += group_size
        advance(group_size.nbytes)
    return tuple(TokenUse(table, size, times) for table, times in zip(vocabularies, counts, strict=True))
