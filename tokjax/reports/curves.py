"""What bytes a token a vocabulary would give if it were smaller: from one count of the words of texts."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.progress import show_progress_bar
from tokjax._util.threads import resolve_num_threads
from tokjax.bpe.batch_merging import BatchMerger
from tokjax.bpe.hash_tables import concatenate_pretokens
from tokjax.bpe.merge_rules import make_rules_from_ranks
from tokjax.bpe.pretoken_cache import PretokenCache
from tokjax.core import protocol
from tokjax.core.utf8 import count_bytes
from tokjax.corpus.sources import make_rereadable, read_documents
from tokjax.encoding.bulk import check_separator
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError
from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.reports.vocabulary_report import (
    name_sources,
    name_tokenizers,
)
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
    from tokjax.reports.vocabulary_report import Texts
    from tokjax.trainer.pretoken_counts import PretokenCounts

_PRETOKENS_PER_BATCH = 1 << 16


@dataclass(frozen=True)
class SizeCurve:
    """How many tokens a kind of text has with a vocabulary that is cut to its first ids.

    Attributes:
        tokenizer: the tokenizer's name.
        kind: the name of the kind of text.
        nbytes: bytes of text, as given.
        sizes: how many ids are kept, rising: those below the size.
        tokens: how many tokens the text then has, one number a size.
    """

    tokenizer: str
    kind: str
    nbytes: int
    sizes: tuple[int, ...]
    tokens: tuple[int, ...]

    @property
    def bytes_per_token(self) -> tuple[float, ...]:
        """Bytes of text a token, one number a size; `nan` where there is no text."""
        return tuple(self.nbytes / tokens if tokens else float("nan") for tokens in self.tokens)


class _SplitSettings(NamedTuple):
    """What decides which words a text has: tokenizers that agree in it share one count.

    Attributes:
        pattern: the split pattern.
        normalizer: what is done to a text before it is split.
        special_tokens: special tokens, which no normaliser changes.
    """

    pattern: str
    normalizer: str | None
    special_tokens: frozenset[str]


class _TextCounts(NamedTuple):
    """The words of a kind of text.

    Attributes:
        pretokens: how often each of them stands there.
        nbytes: bytes of text, before it was normalised.
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
    """How bytes a token grow with the size of a byte-level BPE vocabulary.

    A vocabulary trained for `n` ids is the first `n` of a larger one trained on the same text. So the words
    of the texts are counted once for each pattern among the tokenizers, and for each size only the different
    words are encoded, with the tokens of the first ids. Special tokens in texts are ordinary text.

    Args:
        tokenizer: a byte-level BPE tokenizer.
        texts: as in `vocabulary_report`.
        against: other byte-level BPE tokenizers by name.
        name: what the curves call the first tokenizer.
        sizes: how many ids to keep. Sizes that a tokenizer can't be cut to are left out of its curve: those
            with which it would lack a single byte (mostly below 256), or above its vocabulary's. `None` for
            powers of two, with the least and the full size of each tokenizer.
        separator: as in `vocabulary_report`.
        threads: how many threads count words.
        progress: show progress bars on standard error.

    Returns:
        A curve for each tokenizer and kind of text, tokenizer by tokenizer.

    Raises:
        InvalidArgumentError: an argument makes no sense, or no size is left for a tokenizer.
        UnsupportedTokenizerError: a tokenizer is no byte-level BPE.

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
    sizes_of = {label: _select_sizes(label, each, requested) for label, each in tokenizers.items()}
    splits = {_get_split_settings(each): each for each in tokenizers.values()}
    counted = {
        kind: _count_by_split(splits, source, separator, threads=threads, progress=progress)
        for kind, source in sources.items()
    }
    curves = []
    steps = sum(map(len, sizes_of.values()))
    with show_progress_bar("encoding words", steps, unit="sizes", enabled=progress) as advance:
        for label, each in tokenizers.items():
            counts_by_kind = [by_split[_get_split_settings(each)] for by_split in counted.values()]
            pretokens = [pretokens for pretokens, _ in counts_by_kind]
            tokens = _count_tokens_by_size(pretokens, each.vocabulary, sizes_of[label], advance)
            curves += [
                SizeCurve(label, kind, nbytes, sizes_of[label], tokens_of_kind)
                for kind, (_, nbytes), tokens_of_kind in zip(sources, counts_by_kind, tokens, strict=True)
            ]
    return tuple(curves)


def _get_split_settings(tokenizer: ByteLevelBPE) -> _SplitSettings:
    special_tokens = frozenset() if tokenizer.normalizer is None else tokenizer.vocabulary.split_token_names
    return _SplitSettings(tokenizer.pattern, tokenizer.normalizer, special_tokens)


def _select_sizes(name: str, tokenizer: Any, requested: list[int] | None) -> tuple[int, ...]:
    """The sizes of a tokenizer's curve.

    Raises:
        InvalidArgumentError: none of the given ones can be.
        UnsupportedTokenizerError: the tokenizer is no byte-level BPE.
    """
    if not isinstance(tokenizer, ByteLevelBPE):
        raise UnsupportedTokenizerError(
            f"tokenizer {name!r} is a {type(tokenizer).__name__}, and only a byte-level BPE vocabulary "
            "can be cut to a smaller one; leave it out of size_curves"
        )
    table = tokenizer.vocabulary
    if tokenizer.merges is not None:
        raise InvalidArgumentError(
            f"{name!r} goes by a list of merges: its first ids are no smaller vocabulary; leave it out"
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
            f"sizes has none that tokenizer {name!r} can be cut to: those from {minimum} to {table.size}"
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
    """The words of one kind of text, for each way to split it, one of whose tokenizers is given."""
    with make_rereadable(source) if len(splits) > 1 else nullcontext(source) as again:
        return {
            split: _count_pretokens(
                tokenizer, read_documents(again, separator), threads=threads, progress=progress
            )
            for split, tokenizer in splits.items()
        }


def _count_pretokens(
    tokenizer: ByteLevelBPE, documents: Iterable[Text], *, threads: int | None, progress: bool
) -> _TextCounts:
    """Count the words that a tokenizer finds in documents."""
    nbytes = 0

    def iter_normalized() -> Iterator[Text]:
        nonlocal nbytes
        for document in documents:
            nbytes += count_bytes(document)
            yield protocol.normalize(tokenizer, document)

    pretokens = count_pretokens(
        iter_normalized(), pattern=tokenizer.pattern, workers=threads, progress=progress
    )
    return _TextCounts(pretokens, nbytes)


def _count_tokens_by_size(
    kinds: Sequence[PretokenCounts], vocabulary: Vocabulary, sizes: Sequence[int], advance: AdvanceProgress
) -> list[tuple[int, ...]]:
    """For each kind of text, how many tokens its words have with the first ids, for each number of ids."""
    parts = list(map(_split_counts, kinds))
    by_size = []
    for size in sizes:
        ranks = {token: id_ for token, id_ in vocabulary.ordinary.items() if id_ < size}
        cache = PretokenCache(ranks, BatchMerger(make_rules_from_ranks(ranks)))
        by_size.append(
            [sum(int(_count_tokens(cache, pretokens) @ times) for pretokens, times in of) for of in parts]
        )
        advance(1)
    return list(zip(*by_size, strict=True))


def _split_counts(counts: PretokenCounts) -> list[CountedPretokens]:
    """Counted words, in parts that are quickly encoded."""
    pretokens, times = counts.counted()
    starts = range(0, len(times), _PRETOKENS_PER_BATCH)
    groups = [np.arange(start, min(start + _PRETOKENS_PER_BATCH, len(times))) for start in starts]
    return [
        CountedPretokens(concatenate_pretokens([pretokens.take(indices)]), times.take(indices))
        for indices in groups
    ]


def _count_tokens(cache: PretokenCache, pretokens: Pretokens) -> NDArray[np.int64]:
    """How many tokens each word has, shape `(pretokens,)`."""
    (entries,) = cache.insert([cache.find(pretokens)])
    return np.diff(cache.get_ids(entries).ends, prepend=0)
