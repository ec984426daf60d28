"""`PretokenCounts`: the words of a corpus with their counts, a value that is saved, loaded and added up."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from tokjax._util.files import compute_json_checksum, read_arrays, write_atomically
from tokjax._util.locks import ThreadLock
from tokjax.bpe.hash_tables import (
    ABSENT,
    MAX_PRETOKEN_BYTES,
    HashTables,
    Pretokens,
    can_hold,
    concatenate_pretokens,
    make_pretokens,
)
from tokjax.core.ragged import concatenate_ranges
from tokjax.corpus.files import SourceFile
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from numpy.typing import NDArray


_INSERT_BATCH_SIZE = 1 << 15


class CountedPretokens(NamedTuple):
    """Different words, and how often each was seen.

    Attributes:
        words: no two of them alike.
        counts: `int64`, shape `(words,)`.
    """

    words: Pretokens
    counts: NDArray[np.int64]


class PretokenCounter:
    """Counts words. Its memory is bounded by the different ones, and threads can share it.

    New words wait until there are many of them, since it is quicker to learn many at once.
    """

    def __init__(self) -> None:
        self._lock = ThreadLock()
        initial = make_pretokens([b"\n"])  # tables know it from the first
        self._tables = HashTables(initial, np.zeros(1, np.int64))
        self._inserted = [initial]
        self._counts = np.zeros(1, np.int64)
        self._others: Counter[bytes] = Counter()  # words that no table holds
        self._waiting: list[CountedPretokens] = []
        self._num_waiting = 0

    def __len__(self) -> int:
        """How many different words there are, about."""
        return len(self._counts) + len(self._others)

    def add(self, words: Pretokens) -> None:
        """Count each of some words once more."""
        slots = self._tables.find(words)
        absent = np.flatnonzero(slots == ABSENT)
        if len(absent):
            slots = slots.take(np.flatnonzero(slots != ABSENT))
            self._wait(CountedPretokens(words.take(absent), np.ones(len(absent), np.int64)))
        times = np.bincount(slots)
        with self._lock.current:
            self._counts[: len(times)] += times

    def merge(self, counted: CountedPretokens) -> None:
        """Take in what another counter has seen."""
        self._wait(counted)

    def counted(self) -> CountedPretokens:
        """Every word that was seen."""
        self._insert_waiting()
        seen = np.flatnonzero(self._counts)
        storable = concatenate_pretokens(self._inserted).take(seen)
        others = make_pretokens(list(self._others))
        counts = [self._counts.take(seen), np.fromiter(self._others.values(), np.int64, len(self._others))]
        return CountedPretokens(concatenate_pretokens([storable, others]), np.concatenate(counts))

    def _wait(self, new: CountedPretokens) -> None:
        """Keep words that no table has until there are enough of them."""
        words, counts = new
        fits_table = can_hold(words)
        storable = np.flatnonzero(fits_table)
        new_counts = CountedPretokens(concatenate_pretokens([words.take(storable)]), counts.take(storable))
        others = np.flatnonzero(~fits_table)
        texts = list(zip(words.take(others).iter_bytes(), counts.take(others).tolist(), strict=True))
        with self._lock.current:
            for text, count in texts:
                self._others[text] += count
            if len(storable):
                self._waiting.append(new_counts)
                self._num_waiting += len(storable)
            enough = self._num_waiting >= _INSERT_BATCH_SIZE
        if enough:
            self._insert_waiting()

    def _insert_waiting(self) -> None:
        """Give a place to each word that waits, one to all that are alike, and count them."""
        with self._lock.current:
            waiting, self._waiting, self._num_waiting = self._waiting, [], 0
        if not waiting:
            return
        words = concatenate_pretokens([part.words for part in waiting])
        example, which = self._tables.unique(words)
        unique = words.take(example)
        with self._lock.current:
            slots = self._get_or_add_slots(unique)
            counts = np.concatenate([part.counts for part in waiting])
            np.add.at(self._counts, slots.take(which), counts)

    def _get_or_add_slots(self, unique: Pretokens) -> NDArray[np.int64]:
        """The places of words, new ones for those that have none; no two of them are alike."""
        slots = self._tables.find(unique)  # some were learned while they waited
        absent = np.flatnonzero(slots == ABSENT)
        first = len(self._counts)
        slots[absent] = np.arange(first, first + len(absent))
        new = concatenate_pretokens([unique.take(absent)])
        self._inserted.append(new)
        self._counts = np.concatenate([self._counts, np.zeros(len(absent), np.int64)])
        self._tables.add(new, slots[absent])
        return slots


_VERSION = 1
_CHUNK_PRETOKENS = 1 << 16
_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93)


@dataclass(frozen=True, eq=False)
class PretokenCounts:
    """All that training needs to know of a corpus. `a + b` is what both together hold.

    Attributes:
        data: the bytes of all words, laid end to end, `uint8`.
        lengths: how many bytes each word has, `int64`, shape `(pretokens,)`.
        counts: how often each word stands in the corpus, `int64`, shape `(pretokens,)`.
        pattern: the split pattern that made the words.
        special_tokens: they split the text, and were not counted.
        documents: stretches of text that are not empty, between special tokens and ends of texts.
        nbytes: bytes of text, special tokens not counted.
        files: the files that were read, as they were then (which no comparison looks at).
    """

    data: NDArray[np.uint8]
    lengths: NDArray[np.int64]
    counts: NDArray[np.int64]
    pattern: str
    special_tokens: tuple[str, ...]
    documents: int
    nbytes: int
    files: tuple[SourceFile, ...] = ()

    def __post_init__(self) -> None:
        """Seal the arrays."""
        for array in (self.data, self.lengths, self.counts):
            array.setflags(write=False)

    def __len__(self) -> int:
        """How many different words there are."""
        return len(self.counts)

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Each word with its count, shorter words first, words of one length by their bytes."""
        return iter(sorted(zip(self._iter_pretokens(), self.counts.tolist(), strict=True), key=_get_sort_key))

    def __eq__(self, other: object) -> bool:
        """Whether two corpora hold the same words as often, in any order."""
        if not isinstance(other, PretokenCounts):
            return NotImplemented
        return self._describe() == other._describe() and list(self.items()) == list(other.items())

    def __hash__(self) -> int:
        """Of what equal counts have in common, whatever the order of their words."""
        return hash((self.pattern, self.special_tokens, self.documents, self.nbytes, len(self)))

    def __radd__(self, other: object) -> PretokenCounts:
        """`sum` begins with 0."""
        return self if other == 0 else NotImplemented

    def __add__(self, other: PretokenCounts) -> PretokenCounts:
        """The counts of both corpora together.

        Raises:
            InvalidArgumentError: the two were counted with different patterns or special tokens.
        """
        if not isinstance(other, PretokenCounts):
            return NotImplemented
        for name in ("pattern", "special_tokens"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise InvalidArgumentError(
                    f"counts with {name}={mine!r} and with {name}={theirs!r} don't add up; count both "
                    f"corpora with the same {name}"
                )
        counter = PretokenCounter()
        for part in (self, other):
            counter.merge(part.to_counted_pretokens())
        return make_pretoken_counts(
            counter.counted(),
            self.pattern,
            self.special_tokens,
            self.documents + other.documents,
            self.nbytes + other.nbytes,
            tuple(dict.fromkeys(self.files + other.files)),
        )

    @cached_property
    def fingerprint(self) -> str:
        """A short name for these words and counts, in any order (no proof against forgers)."""
        described = [
            self._describe(),
            [_compute_checksum(self.to_counted_pretokens(), multiplier) for multiplier in _MULTIPLIERS],
        ]
        return compute_json_checksum(described)

    def to_counted_pretokens(self) -> CountedPretokens:
        """The words as the engine has them."""
        data = np.concatenate([self.data, np.zeros(MAX_PRETOKEN_BYTES, np.uint8)])
        return CountedPretokens(
            Pretokens(data, np.cumsum(self.lengths) - self.lengths, self.lengths), self.counts
        )

    def _iter_pretokens(self) -> Iterator[bytes]:
        data, stops = self.data.tobytes(), np.cumsum(self.lengths).tolist()
        return (data[start:stop] for start, stop in zip([0, *stops], stops, strict=False))

    def _describe(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "pattern": self.pattern,
            "special_tokens": list(self.special_tokens),
            "documents": self.documents,
            "nbytes": self.nbytes,
        }


def make_pretoken_counts(
    counted: CountedPretokens,
    pattern: str,
    special_tokens: tuple[str, ...],
    documents: int,
    nbytes: int,
    files: tuple[SourceFile, ...] = (),
) -> PretokenCounts:
    """The value for counted words."""
    pretokens, counts = counted
    size = int(pretokens.lengths.sum())
    return PretokenCounts(
        pretokens.data[:size], pretokens.lengths, counts, pattern, special_tokens, documents, nbytes, files
    )


def save_pretoken_counts(counts: PretokenCounts, path: str | os.PathLike[str]) -> None:
    """Write counts to a file that `numpy.load` reads too: equal counts give equal arrays.

    The file has `data`, `lengths` and `counts` as in `PretokenCounts`, and `about`, JSON in UTF-8.

    Args:
        counts: the counts.
        path: the file, which is replaced if it exists.
    """
    items = list(counts.items())
    about = counts._describe() | {"files": counts.files}
    columns: dict[str, Any] = {
        "data": np.frombuffer(b"".join(pretoken for pretoken, _ in items), np.uint8),
        "lengths": np.fromiter((len(pretoken) for pretoken, _ in items), np.int64, len(items)),
        "counts": np.fromiter((count for _, count in items), np.int64, len(items)),
        "about": np.frombuffer(json.dumps(about).encode("utf-8"), np.uint8),
    }

    def write(file: BinaryIO) -> None:
        np.savez_compressed(file, **columns)

    write_atomically(Path(path), write)


def load_pretoken_counts(path: str | os.PathLike[str]) -> PretokenCounts:
    """Read what `save_pretoken_counts` wrote.

    Raises:
        InvalidArgumentError: the file holds no counts, or was cut or altered, or is of another version.
    """
    try:
        arrays = read_arrays(Path(path))
        about = json.loads(arrays["about"].tobytes())
        data, lengths, counts = (arrays[name] for name in ("data", "lengths", "counts"))
        if about["version"] != _VERSION:
            raise InvalidArgumentError(
                f"{str(path)!r} is of version {about['version']!r}; this tokjax reads version {_VERSION}"
            )
        loaded = PretokenCounts(
            data,
            lengths,
            counts,
            about["pattern"],
            tuple(about["special_tokens"]),
            about["documents"],
            about["nbytes"],
            tuple(SourceFile(*file) for file in about["files"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(f"{str(path)!r} holds no counts of words: {error}") from error
    if not _is_consistent(loaded):
        raise InvalidArgumentError(f"{str(path)!r} was altered: its words and counts don't fit together")
    return loaded


def _is_consistent(counts: PretokenCounts) -> bool:
    """Whether what was read can be counts of words."""
    columns = ((counts.data, np.uint8), (counts.lengths, np.int64), (counts.counts, np.int64))
    if any(column.ndim != 1 or column.dtype != dtype for column, dtype in columns):
        return False
    same = len(counts.lengths) == len(counts.counts) and counts.lengths.sum() == len(counts.data)
    positive = same and (counts.lengths > 0).all() and (counts.counts > 0).all()
    return bool(positive) and int(counts.lengths @ counts.counts) == counts.nbytes


def _get_sort_key(item: tuple[bytes, int]) -> tuple[int, bytes]:
    return len(item[0]), item[0]


def _compute_checksum(counted: CountedPretokens, multiplier: int) -> int:
    """The sum over all words of a number for the word, times its count: the same in any order."""
    pretokens, counts = counted
    powers = np.cumprod(np.full(int(pretokens.lengths.max(initial=0)), multiplier, np.uint64))
    total = np.zeros(1, np.uint64)
    for first in range(0, len(counts), _CHUNK_PRETOKENS):
        some = slice(first, first + _CHUNK_PRETOKENS)
        lengths = pretokens.lengths[some]
        letters = pretokens.data.take(concatenate_ranges(pretokens.starts[some], lengths)).astype(
            np.uint64
        ) + np.uint64(1)
        letters *= powers.take(concatenate_ranges(np.zeros(len(lengths), np.int64), lengths))
        numbers = np.add.reduceat(letters, np.cumsum(lengths) - lengths)
        numbers = (numbers ^ numbers >> np.uint64(31)) * np.uint64(multiplier)
        total += ((numbers ^ numbers >> np.uint64(29)) * counts[some].astype(np.uint64)).sum()
    return int(total[0])
