"""Bulk encoding: many texts to flat arrays, files to batches, and token counts.

No function here creates a Python object per token. The text is processed in groups of 8 to 64 MB, by the
number of threads, so memory is bounded for iterables and files of any size.
"""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from tokjax._util.checks import check_iterable, reject_path, reject_tables
from tokjax._util.display import show_progress_bar
from tokjax._util.threads import resolve_num_threads
from tokjax.core.encode_options import (
    EncodeOptions,
    TextOptions,
    TruncationOptions,
    accept_options,
    check_options,
)
from tokjax.corpus.decompression import check_are_text
from tokjax.corpus.files import TextFiles, get_source_files, text_files
from tokjax.corpus.sources import read_documents
from tokjax.encoding.encode import encode_batch_result
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tokjax.core.ragged import Ragged
    from tokjax.core.records import TokenizationBatch
    from tokjax.core.utf8 import Text

_BATCH_BYTES = 1 << 23
"""Size at which a group of texts is encoded. Characters of `str` count as bytes here."""
_MAX_BATCH_FACTOR = 8
"""A group has up to this many times the size, so that many cores can share it."""


@accept_options(EncodeOptions)
def encode_to_array(
    tokenizer: Any,
    texts: Sequence[Text] | Sequence[Sequence[Text]],
    pairs: Sequence[Text] | Sequence[Sequence[Text]] | None = None,
    **options: Unpack[EncodeOptions],
) -> Ragged:
    """Encodes many texts to ids only: `encode_batch_result` without offsets and masks.

    The arguments are those of `encode_batch_result`.

    Returns:
        A `Ragged` with `ids`, `int32`, shape `(num_tokens,)`, and `row_splits`, `int64`, shape
        `(num_texts + 1,)`. The ids of text `i` are `ids[row_splits[i]:row_splits[i + 1]]`. The other columns
        are `None`.

    >>> from tokjax.models.byte_bpe import byte_level_bpe
    >>> tokenizer = byte_level_bpe({bytes([i]): i for i in range(256)} | {b"he": 256})
    >>> ids, row_splits, *_ = encode_to_array(tokenizer, ["he", "", "hey"])
    >>> ids.tolist(), row_splits.tolist()
    ([256, 256, 121], [0, 1, 1, 3])
    """
    batch = encode_batch_result(tokenizer, texts, pairs, return_offsets=False, return_masks=False, **options)
    return batch.ragged


@accept_options(TruncationOptions)
def encode_files(
    tokenizer: Any,
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | TextFiles,
    *,
    separator: str | None,
    return_offsets: bool = False,
    return_masks: bool = False,
    assume_normalized: bool = False,
    progress: bool = False,
    **options: Unpack[TruncationOptions],
) -> Iterator[TokenizationBatch]:
    r"""Encodes the documents of text files lazily, in batches of about 8 MB of text for every two threads.

    A batch has at most about 64 MB. Peak memory is proportional to the size of a batch, or to the longest
    document if that is larger.

    Args:
        tokenizer: any registered tokenizer.
        paths: one path or glob pattern, or several, read in this order; or the result of `text_files(...)`.
        separator: string between two documents, for example `"<|endoftext|>"` or `"\n"`; `None` if each file
            is one document. Empty documents are skipped.
        return_offsets: whether to compute `offsets`, `word_ids` and `sequence_ids`.
        return_masks: whether to compute `attention_mask`, `special_tokens_mask` and `token_type_ids`.
        assume_normalized: whether the documents are already in the form that `tokenization_view` returns.
        progress: whether to show a progress bar on standard error.
        **options: `add_special_tokens`, `max_length`, `truncation_side`, `allowed_special`,
            `disallowed_special` and `threads`, as in `encode_batch_result`.

    Returns:
        An iterator of batches. Their rows are the documents in the order of the files.

    Raises:
        InvalidArgumentError: an argument is invalid, or a path is not a file. Raised by the call itself,
            before the first batch is requested.
    """
    flags: dict[str, Any] = {"return_offsets": return_offsets, "return_masks": return_masks}
    flags |= {"assume_normalized": assume_normalized}
    check_options({**options, **flags, "progress": progress})
    check_separator(separator)
    threads = resolve_num_threads(options.get("threads"))
    files = paths if isinstance(paths, TextFiles) else text_files(paths)
    check_are_text(files)

    def encode(documents: list[Any]) -> TokenizationBatch:
        return encode_batch_result(tokenizer, documents, **flags, **options)

    encode([])  # reports invalid options now, not when the first batch is requested

    def iter_batches() -> Iterator[TokenizationBatch]:
        total = sum(file.nbytes for file in get_source_files(files))
        separator_bytes = len((separator or "").encode("utf-8"))
        with show_progress_bar("Encoding", total, unit="bytes", enabled=progress) as advance:
            for documents in iter_text_groups(read_documents(files, separator), threads):
                yield encode(documents)
                advance(sum(len(document) + separator_bytes for document in documents))

    return iter_batches()


@overload
def count_tokens(tokenizer: Any, texts: str | bytes, **options: Unpack[TextOptions]) -> int: ...
@overload
def count_tokens(
    tokenizer: Any, texts: Iterable[Text], **options: Unpack[TextOptions]
) -> NDArray[np.int64]: ...
@accept_options(TextOptions)
def count_tokens(
    tokenizer: Any, texts: str | bytes | Iterable[Text], **options: Unpack[TextOptions]
) -> int | NDArray[np.int64]:
    """Counts the tokens of one or several texts.

    The ids are discarded group by group, so an iterable of any size needs little memory.

    Args:
        tokenizer: any registered tokenizer.
        texts: one text, or an iterable of texts.
        **options: `add_special_tokens`, `allowed_special`, `disallowed_special` and `threads`, as in
            `encode_batch_result`.

    Returns:
        An `int` for one text; for an iterable, the number of tokens of each text, `int64`, shape
        `(num_texts,)`.

    Raises:
        DisallowedSpecialTokenError: a text contains a disallowed special token.
        InvalidArgumentError: `texts` is neither a text nor an iterable of texts.

    >>> from tokjax.models.byte_bpe import byte_level_bpe
    >>> tokenizer = byte_level_bpe({bytes([i]): i for i in range(256)} | {b"he": 256})
    >>> count_tokens(tokenizer, "hey"), count_tokens(tokenizer, ["he", "", "hey"]).tolist()
    (2, [1, 0, 2])
    """
    reject_tables(texts, "texts")
    reject_path(texts, "texts")
    is_text = isinstance(texts, (str, bytes))
    if isinstance(texts, (bytearray, memoryview)):
        raise InvalidArgumentError(f"texts must be str or bytes, not {type(texts).__name__}; pass bytes(...)")
    iterator: Iterator[Any] = check_iterable("texts", [texts] if is_text else texts)
    threads = resolve_num_threads(options.get("threads"))
    counts = [
        encode_batch_result(
            tokenizer, group, return_offsets=False, return_masks=False, **options
        ).ragged.lengths
        for group in iter_text_groups(iterator, threads)
    ]
    if is_text:
        return int(counts[0][0])
    return np.concatenate([np.zeros(0, np.int64), *counts])


def check_separator(separator: object) -> None:
    """Raises `InvalidArgumentError` unless the separator is a non-empty `str` or `None`."""
    if not isinstance(separator, (str, NoneType)):
        raise InvalidArgumentError(f"separator must be str or None, not {type(separator).__name__}")
    try:
        (separator or "").encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"separator is {separator!r}, which no file in UTF-8 contains") from None
    if separator == "":
        raise InvalidArgumentError(
            "separator is the empty string; pass None if each file is one document, or '\\n' for lines"
        )


def iter_text_groups(texts: Iterable[Text], threads: int) -> Iterator[list[Text]]:
    """Yields the texts in lists of about `_BATCH_BYTES` for two threads, at least one text each."""
    max_size = _BATCH_BYTES * min(max(threads // 2, 1), _MAX_BATCH_FACTOR)
    group: list[Text] = []
    size = 0
    for text in texts:
        group.append(text)
        size += len(text) + 1 if isinstance(text, (str, bytes)) else 1
        if size >= max_size:
            yield group
            group, size = [], 0
    if group:
        yield group
