"""Bytes per token as a function of vocabulary size, from one count of pre-tokens.

A byte-level BPE vocabulary of `n` ids is the first `n` ids of a larger one that was trained on the same text.
So a large vocabulary contains all smaller ones. For the text `low low low lower`, whose first merges are
`ow`, `low` and `␣low`:

    pre-token    count    256 ids          257 (`ow`)      258 (`low`)     259 (`␣low`)
    low          1        l o w            l ow            low             low
    ␣low         2        ␣ l o w          ␣ l ow          ␣ low           ␣low
    ␣lower       1        ␣ l o w e r      ␣ l ow e r      ␣ low e r       ␣low e r
    tokens                3 + 2·4 + 6      2 + 2·3 + 5     1 + 2·2 + 4     1 + 2·1 + 3
                          = 17             = 13            = 9             = 6

The texts are split into pre-tokens once. For each size, every distinct pre-token is encoded once, and its
number of tokens is multiplied by its count. So the cost of a size depends on the number of distinct
pre-tokens, not on the length of the texts.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.display import short_repr
from tokjax._util.progress import show_progress_bar
from tokjax._util.threads import resolve_num_threads
from tokjax.bpe.batched_merging import BatchMerger
from tokjax.bpe.hash_tables import concatenate_pretokens
from tokjax.bpe.merge_rules import make_rules_from_ranks
from tokjax.bpe.pretoken_cache import PretokenCache
from tokjax.core import protocol
from tokjax.core.utf8 import count_bytes
from tokjax.corpus.sources import make_rereadable, read_documents
from tokjax.encoding.bulk import check_separator
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError
from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.reports.vocabulary_statistics import name_sources, name_tokenizers
from tokjax.trainer.counting import count_pretokens
from tokjax.trainer.pretoken_counts import CountedPretokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax._util.progress import AdvanceProgress
    from tokjax.bpe.hash_tables import Pretokens
    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Vocabulary
    from tokjax.corpus.sources import Source
    from tokjax.pretokenize.patterns import Pattern
    from tokjax.reports.vocabulary_statistics import Texts
    from tokjax.trainer.pretoken_counts import PretokenCounts

_PRETOKENS_PER_BATCH = 1 << 16


@short_repr
@dataclass(frozen=True)
class SizeCurve:
    """Number of tokens of one kind of text, by size of the truncated vocabulary.

    Attributes:
        tokenizer: name of the tokenizer.
        kind: name of the kind of text.
        nbytes: UTF-8 bytes of the text, before any normalization.
        sizes: vocabulary sizes, ascending; a vocabulary of size `n` has the ids below `n`.
        tokens: number of tokens of the text for each size.
    """

    tokenizer: str
    kind: str
    nbytes: int
    sizes: tuple[int, ...]
    tokens: tuple[int, ...]

    @property
    def bytes_per_token(self) -> tuple[float, ...]:
        """Bytes of text per token for each size; `nan` without text."""
        return tuple(self.nbytes / tokens if tokens else float("nan") for tokens in self.tokens)


class _SplitSettings(NamedTuple):
    """Settings that determine the pre-tokens of a text. Tokenizers with equal settings share one count.

    Attributes:
        pattern: split pattern.
        normalizer: name of the normalization that is applied before the split; `None` without one.
        special_tokens: names of special tokens, which the normalizer leaves unchanged.
    """

    pattern: Pattern
    normalizer: str | None
    special_tokens: frozenset[str]


class _TextCounts(NamedTuple):
    """Pre-tokens of one kind of text.

    Attributes:
        pretokens: distinct pre-tokens with their counts.
        nbytes: UTF-8 bytes of the text, before normalization.
    """

    pretokens: PretokenCounts
    nbytes: int


def size_curves(
    tokenizer: ByteLevelBPE,
    texts: Texts,
    *,
    against: Mapping[str, ByteLevelBPE] | None = None,
    name: str = "tokenizer",
    sizes: Iterable[int] | None = None,
    separator: str | None = None,
    threads: int | None = None,
    progress: bool = True,
) -> tuple[SizeCurve, ...]:
    """Computes bytes per token as a function of the size of byte-level BPE vocabularies.

    A vocabulary trained for `n` ids is the first `n` ids of a larger one trained on the same text. So the
    pre-tokens of the texts are counted once for each split pattern, and for each size only the distinct
    pre-tokens are encoded, with the tokens below that size. Special tokens in texts are ordinary text.

    Args:
        tokenizer: byte-level BPE tokenizer.
        texts: sources of texts, as in `vocabulary_report`.
        against: other byte-level BPE tokenizers by name.
        name: name of `tokenizer` in the curves.
        sizes: vocabulary sizes. The curve of a tokenizer has only the sizes that it can be truncated to: at
            most its vocabulary size, and large enough for the tokens of all 256 bytes (usually 256). `None`
            for powers of two, and the minimum and the full size of each tokenizer.
        separator: text between documents, as in `vocabulary_report`.
        threads: number of threads that count pre-tokens.
        progress: whether to show progress bars on standard error.

    Returns:
        A curve for each tokenizer and kind of text, sorted by tokenizer.

    Raises:
        InvalidArgumentError: an argument is invalid, or no size is valid for a tokenizer.
        UnsupportedTokenizerError: a tokenizer is not a byte-level BPE.

    >>> from tokjax.trainer import train_bpe
    >>> texts = ["low low low lower"]
    >>> trained = train_bpe(texts, vocab_size=259, progress=False)
    >>> (curve,) = size_curves(trained.tokenizer, texts, sizes=range(256, 260), progress=False)
    >>> curve.tokens
    (17, 13, 9, 6)
    """
    tokenizers = name_tokenizers(tokenizer, name, against)
    sources = name_sources(texts)
    check_separator(separator)
    resolve_num_threads(threads)
    requested = None if sizes is None else sorted({check_int("a size", size, minimum=1) for size in sizes})
    sizes_by_name = {label: _select_sizes(label, each, requested) for label, each in tokenizers.items()}
    splits = {_get_split_settings(each): each for each in tokenizers.values()}
    counts_by_kind = {
        kind: _count_by_split(splits, source, separator, threads=threads, progress=progress)
        for kind, source in sources.items()
    }
    curves = []
    steps = sum(map(len, sizes_by_name.values()))
    with show_progress_bar("encoding pre-tokens", steps, unit="sizes", enabled=progress) as advance:
        for label, each in tokenizers.items():
            counts = [by_split[_get_split_settings(each)] for by_split in counts_by_kind.values()]
            pretokens = [pretokens for pretokens, _ in counts]
            tokens = _count_tokens_by_size(pretokens, each.vocabulary, sizes_by_name[label], advance)
            curves += [
                SizeCurve(label, kind, nbytes, sizes_by_name[label], tokens_by_size)
                for kind, (_, nbytes), tokens_by_size in zip(sources, counts, tokens, strict=True)
            ]
    return tuple(curves)


def _get_split_settings(tokenizer: ByteLevelBPE) -> _SplitSettings:
    # Without a normalizer, special tokens make no difference: they are ordinary text here.
    special_tokens = frozenset() if tokenizer.normalizer is None else tokenizer.vocabulary.split_token_names
    return _SplitSettings(tokenizer.pattern, tokenizer.normalizer, special_tokens)


def _select_sizes(name: str, tokenizer: Any, requested: list[int] | None) -> tuple[int, ...]:
    """Returns the sizes of a tokenizer's curve.

    Raises:
        InvalidArgumentError: no requested size is valid, or the tokenizer has a list of merges.
        UnsupportedTokenizerError: the tokenizer is not a byte-level BPE.
    """
    if not isinstance(tokenizer, ByteLevelBPE):
        raise UnsupportedTokenizerError(
            f"tokenizer {name!r} is a {type(tokenizer).__name__}, and only a byte-level BPE vocabulary "
            "can be truncated; leave it out of size_curves"
        )
    table = tokenizer.vocabulary
    if tokenizer.merges is not None:
        raise InvalidArgumentError(
            f"tokenizer {name!r} has a list of merges, so its first ids are not a smaller vocabulary; "
            "leave it out of size_curves"
        )
    minimum = 1 + max(table.ordinary[bytes([byte])] for byte in range(256))
    if requested is None:
        powers = (1 << exponent for exponent in range(table.size.bit_length()))
        return tuple(
            sorted({minimum, table.size}.union(size for size in powers if minimum < size < table.size))
        )
    sizes = tuple(size for size in requested if minimum <= size <= table.size)
    if not sizes:
        raise InvalidArgumentError(
            f"no value of sizes is valid for tokenizer {name!r}; pass sizes from {minimum} to {table.size}"
        )
    return sizes


def _count_by_split(
    splits: Mapping[_SplitSettings, ByteLevelBPE],
    source: Source,
    separator: str | None,
    *,
    threads: int | None,
    progress: bool,
) -> dict[_SplitSettings, _TextCounts]:
    """Counts the pre-tokens of one kind of text, once for each of the split settings.

    Args:
        splits: split settings, each with one of the tokenizers that have them.
        source: source of the texts.
        separator: text between documents.
        threads: number of threads.
        progress: whether to show a progress bar.
    """
    # A source that can be read only once, such as an iterator, is spooled if it is needed several times.
    with make_rereadable(source) if len(splits) > 1 else nullcontext(source) as rereadable:
        return {
            split: _count_pretokens(
                tokenizer, read_documents(rereadable, separator), threads=threads, progress=progress
            )
            for split, tokenizer in splits.items()
        }


def _count_pretokens(
    tokenizer: ByteLevelBPE, documents: Iterable[Text], *, threads: int | None, progress: bool
) -> _TextCounts:
    """Counts the pre-tokens of documents, after the normalization of the tokenizer."""
    nbytes = 0

    def iter_normalized() -> Iterator[Text]:
        nonlocal nbytes
        for document in documents:
            nbytes += count_bytes(document)
            yield protocol.normalize(tokenizer, document)

    pretokens = count_pretokens(
        iter_normalized(), pattern=tokenizer.pattern, normalize=None, workers=threads, progress=progress
    )
    return _TextCounts(pretokens, nbytes)


def _count_tokens_by_size(
    pretokens_by_kind: Sequence[PretokenCounts],
    vocabulary: Vocabulary,
    sizes: Sequence[int],
    advance: AdvanceProgress,
) -> list[tuple[int, ...]]:
    """Counts the tokens of each kind of text for each vocabulary size.

    Args:
        pretokens_by_kind: pre-tokens of each kind of text.
        vocabulary: full vocabulary.
        sizes: sizes to truncate it to.
        advance: callback after each size.

    Returns:
        For each kind of text, the number of tokens for each size.
    """
    batches_by_kind = list(map(_split_counts, pretokens_by_kind))
    by_size = []
    for size in sizes:
        ranks = {token: id_ for token, id_ in vocabulary.ordinary.items() if id_ < size}
        cache = PretokenCache(ranks, BatchMerger(make_rules_from_ranks(ranks)))
        by_size.append(
            [
                sum(int(_count_tokens(cache, pretokens) @ times) for pretokens, times in batches)
                for batches in batches_by_kind
            ]
        )
        advance(1)
    return list(zip(*by_size, strict=True))


def _split_counts(counts: PretokenCounts) -> list[CountedPretokens]:
    """Splits counted pre-tokens into batches, which bound the memory of encoding."""
    pretokens, times = counts.to_counted_pretokens()
    starts = range(0, len(times), _PRETOKENS_PER_BATCH)
    groups = [np.arange(start, min(start + _PRETOKENS_PER_BATCH, len(times))) for start in starts]
    return [
        CountedPretokens(concatenate_pretokens([pretokens.take(indices)]), times.take(indices))
        for indices in groups
    ]


def _count_tokens(cache: PretokenCache, pretokens: Pretokens) -> NDArray[np.int64]:
    """Returns the number of tokens of each pre-token, shape `(num_pretokens,)`."""
    (entries,) = cache.insert([cache.find(pretokens)])
    return np.diff(cache.get_ids(entries).ends, prepend=0)
