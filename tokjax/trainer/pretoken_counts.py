"""Counts of the distinct pre-tokens of a corpus: a thread-safe counter, and a record that can be saved.

Merges do not cross pre-tokens. So training needs only the distinct pre-tokens and their counts, not the text:

    text                    low low lower
    pre-tokens (`gpt2`)     low, ␣low, ␣lower
    `PretokenCounts`        data = "low low lower", lengths = [3, 4, 6], counts = [1, 1, 1]

`PretokenCounter` counts while a corpus is read, and `PretokenCounts` is the immutable result. The sum of two
results has the counts of both corpora, and `3 * counts` are those of a corpus that is repeated three times.

`mix_counts` gives each source its share by repetition: each is repeated a whole number of times, so that no
count is rounded and no rare pre-token is lost. The numbers of repetitions are the smallest that give the
wanted proportions to within 0.1 %. An example with equal shares::

    source     bytes     share   wanted repetitions        repetitions
    en         3,000     1/2     1 / 3,000  =  1 x 1/3,000     1
    de         1,500     1/2     1 / 1,500  =  2 x 1/3,000     2
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.atomic_files import check_path, read_arrays, write_atomically
from tokjax._util.checks import check_float, check_int
from tokjax._util.display import short_repr
from tokjax._util.locks import ThreadLock
from tokjax.bpe.hash_tables import (
    ABSENT,
    PADDING_BYTES,
    HashTables,
    Pretokens,
    append_rows,
    concatenate_pretokens,
    make_pretokens,
)
from tokjax.corpus.files import SourceFile
from tokjax.errors import InvalidArgumentError
from tokjax.pretokenize.patterns import Pattern, make_pattern_splitter

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray


_VERSION = 1
"""Version of the files of `save_pretoken_counts`."""
_MAX_BYTES = 1 << 53
"""Maximum size of a repeated corpus. Sums of counts up to it are exact in floating point, which the trainer
uses."""


class CountedPretokens(NamedTuple):
    """Distinct pre-tokens and their counts.

    Attributes:
        pretokens: distinct pre-tokens.
        counts: number of occurrences of each pre-token, `int64`, shape `(num_pretokens,)`.
    """

    pretokens: Pretokens
    counts: NDArray[np.int64]


@short_repr
@dataclass(frozen=True, eq=False)
class PretokenCounts:
    """Distinct pre-tokens of a corpus and their counts: the input of training.

    `a + b` has the counts of both corpora, and `3 * a` has those of three copies of the corpus; `mix_counts`
    does both by weights. Equality ignores the order of pre-tokens, and `files`.

    Attributes:
        data: concatenated bytes of all pre-tokens, `uint8`, shape `(num_bytes,)`.
        lengths: number of bytes of each pre-token, `int64`, shape `(num_pretokens,)`.
        counts: number of occurrences of each pre-token in the corpus, `int64`, shape `(num_pretokens,)`.
        pattern: the split pattern.
        special_tokens: names of the special tokens at which the text was split; they are not counted.
        documents: number of non-empty segments of text between special tokens and ends of texts.
        nbytes: number of bytes of text, without special tokens.
        files: path, size and modification time of each source file when it was read.
    """

    data: NDArray[np.uint8]
    lengths: NDArray[np.int64]
    counts: NDArray[np.int64]
    pattern: Pattern
    special_tokens: tuple[str, ...]
    documents: int
    nbytes: int
    files: tuple[SourceFile, ...] = ()

    def __post_init__(self) -> None:
        """Makes the arrays read-only."""
        for array in (self.data, self.lengths, self.counts):
            array.setflags(write=False)

    def __len__(self) -> int:
        """Returns the number of distinct pre-tokens."""
        return len(self.counts)

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Returns an iterator over pre-tokens and counts, sorted by length and then by bytes."""
        pretokens = self.to_counted_pretokens().pretokens.iter_bytes()
        items = zip(pretokens, self.counts.tolist(), strict=True)
        return iter(sorted(items, key=lambda item: (len(item[0]), item[0])))

    def __eq__(self, other: object) -> bool:
        """Returns whether both have the same pre-tokens with the same counts, in any order."""
        if not isinstance(other, PretokenCounts):
            return NotImplemented
        return self._describe() == other._describe() and list(self.items()) == list(other.items())

    def __hash__(self) -> int:
        """Hashes the fields that do not depend on the order of pre-tokens."""
        return hash((self.pattern, self.special_tokens, self.documents, self.nbytes, len(self)))

    def __radd__(self, other: object) -> PretokenCounts:
        """Supports `sum`, which starts with 0."""
        return self if other == 0 else NotImplemented

    def __add__(self, other: PretokenCounts) -> PretokenCounts:
        """Returns the counts of both corpora.

        Raises:
            InvalidArgumentError: the counts have different patterns or different special tokens.
        """
        if not isinstance(other, PretokenCounts):
            return NotImplemented
        for name in ("pattern", "special_tokens"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise InvalidArgumentError(
                    f"counts with {name}={mine!r} and counts with {name}={theirs!r} can't be added; count "
                    f"both corpora with the same {name}"
                )
        counter = PretokenCounter()
        for part in (self, other):
            counter.merge(part.to_counted_pretokens())
        return make_pretoken_counts(
            counter.to_counted_pretokens(),
            self.pattern,
            self.special_tokens,
            self.documents + other.documents,
            self.nbytes + other.nbytes,
            tuple(dict.fromkeys(self.files + other.files)),
        )

    def __mul__(self, times: int) -> PretokenCounts:
        """Returns the counts of a corpus that is repeated.

        Raises:
            InvalidArgumentError: `times` is less than 1, or the result has more than 2**53 bytes of text.
        """
        if isinstance(times, bool) or not isinstance(times, (int, np.integer)):
            return NotImplemented
        times = check_int("the number of repetitions", times, minimum=1)
        if times * self.nbytes > _MAX_BYTES:
            raise InvalidArgumentError(
                f"{times:,} times {self.nbytes:,} bytes of text are more than 2**53; count a sample of the "
                "corpus, with count_pretokens(..., max_bytes=...)"
            )
        return replace(
            self,
            counts=self.counts * times,
            documents=self.documents * times,
            nbytes=self.nbytes * times,
        )

    __rmul__ = __mul__

    def _sort_columns(self) -> dict[str, NDArray[Any]]:
        """Returns `data`, `lengths` and `counts` in the order of `items`."""
        items = list(self.items())
        return {
            "data": np.frombuffer(b"".join(pretoken for pretoken, _ in items), np.uint8),
            "lengths": np.fromiter((len(pretoken) for pretoken, _ in items), np.int64, len(items)),
            "counts": np.fromiter((count for _, count in items), np.int64, len(items)),
        }

    def to_counted_pretokens(self) -> CountedPretokens:
        """Returns the pre-tokens in the form that the hash tables use, with their counts."""
        # Readers of a pre-token load a fixed number of bytes, so the data needs padding at its end.
        data = np.concatenate([self.data, np.zeros(PADDING_BYTES, np.uint8)])
        return CountedPretokens(
            Pretokens(data, np.cumsum(self.lengths) - self.lengths, self.lengths), self.counts
        )

    def _describe(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "pattern": self.pattern,
            "special_tokens": list(self.special_tokens),
            "documents": self.documents,
            "nbytes": self.nbytes,
        }


class PretokenCounter:
    """Thread-safe counter of pre-tokens. Its memory grows with the number of distinct pre-tokens only."""

    def __init__(self) -> None:
        self._lock = ThreadLock()
        initial = make_pretokens([b"\n"])  # always in the tables; its count is 0 until it is seen
        self._tables = HashTables(initial, np.zeros(1, np.int64))
        self._inserted = [initial]
        self._counts = np.zeros(1, np.int64)  # with zeros at the end, for those to come
        self._num_slots = 1

    def __len__(self) -> int:
        """Returns the number of distinct pre-tokens."""
        return self._num_slots

    def add(self, pretokens: Pretokens) -> None:
        """Adds 1 to the count of each pre-token, once per occurrence."""
        slots = self._tables.find(pretokens)
        absent = pretokens.take(np.flatnonzero(slots == ABSENT))
        if len(absent.lengths):
            slots = slots.take(np.flatnonzero(slots != ABSENT))
            first_indices, inverse = self._tables.unique(absent)
            self.merge(CountedPretokens(absent.take(first_indices), np.bincount(inverse)))
        increments = np.bincount(slots)
        with self._lock.current:
            self._counts[: len(increments)] += increments

    def merge(self, counted: CountedPretokens) -> None:
        """Adds the counts of another counter, whose pre-tokens are all different."""
        with self._lock.current:
            slots = self._get_or_add_slots(counted.pretokens)
            self._counts[slots] += counted.counts

    def to_counted_pretokens(self) -> CountedPretokens:
        """Returns all pre-tokens that were counted."""
        seen = np.flatnonzero(self._counts)
        counted = concatenate_pretokens(self._inserted).take(seen)
        return CountedPretokens(concatenate_pretokens([counted]), self._counts.take(seen))

    def _get_or_add_slots(self, unique: Pretokens) -> NDArray[np.int64]:
        """Returns the index of each pre-token in `_counts`, and adds those that are not in the tables."""
        # `unique` has no duplicates, so every new pre-token gets one new index.
        slots = self._tables.find(unique)  # another thread may have inserted some of them in the meantime
        absent = np.flatnonzero(slots == ABSENT)
        slots[absent] = np.arange(self._num_slots, self._num_slots + len(absent))
        new = concatenate_pretokens([unique.take(absent)])
        self._inserted.append(new)
        self._counts = append_rows(self._counts, self._num_slots, np.zeros(len(absent), np.int64))
        self._num_slots += len(absent)
        self._tables.add(new, slots[absent])
        return slots


def make_pretoken_counts(
    counted: CountedPretokens,
    pattern: Pattern,
    special_tokens: tuple[str, ...],
    documents: int,
    nbytes: int,
    files: tuple[SourceFile, ...] = (),
) -> PretokenCounts:
    """Makes a `PretokenCounts` from counted pre-tokens, which must be contiguous and start at byte 0."""
    pretokens, counts = counted
    size = int(pretokens.lengths.sum())
    return PretokenCounts(
        pretokens.data[:size], pretokens.lengths, counts, pattern, special_tokens, documents, nbytes, files
    )


def save_pretoken_counts(counts: PretokenCounts, path: str | os.PathLike[str]) -> None:
    """Writes counts to an `.npz` file, which `numpy.load` also reads. Equal counts give equal arrays.

    The file has the arrays `data`, `lengths` and `counts`, as in `PretokenCounts`, and `about`, a JSON object
    in UTF-8. The write is atomic.

    Args:
        counts: counts of pre-tokens.
        path: path of the file, which is replaced if it exists.
    """
    about = json.dumps(counts._describe() | {"files": counts.files})
    columns: dict[str, Any] = counts._sort_columns() | {
        "about": np.frombuffer(about.encode("utf-8"), np.uint8)
    }
    write_atomically(check_path(path), lambda file: np.savez_compressed(file, **columns))


def load_pretoken_counts(path: str | os.PathLike[str]) -> PretokenCounts:
    """Loads counts that `save_pretoken_counts` wrote.

    Raises:
        InvalidArgumentError: the file does not contain pre-token counts, is truncated or altered, or has
            another version.
    """
    try:
        arrays = read_arrays(check_path(path))
        about = json.loads(arrays["about"].tobytes())
        data, lengths, counts = (arrays[name] for name in ("data", "lengths", "counts"))
        if about["version"] != _VERSION:
            raise InvalidArgumentError(
                f"{str(path)!r} has version {about['version']!r}; this tokjax reads version {_VERSION}"
            )
        loaded = PretokenCounts(
            data,
            lengths,
            counts,
            make_pattern_splitter(about["pattern"]).pattern,
            tuple(about["special_tokens"]),
            about["documents"],
            about["nbytes"],
            tuple(SourceFile(*file) for file in about["files"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(f"{str(path)!r} does not contain pre-token counts: {error}") from error
    if not _is_consistent(loaded):
        raise InvalidArgumentError(f"{str(path)!r} was altered: its pre-tokens and counts are inconsistent")
    return loaded


def _is_consistent(counts: PretokenCounts) -> bool:
    """Returns whether loaded arrays have valid shapes, dtypes, lengths, counts and total size."""
    columns = ((counts.data, np.uint8), (counts.lengths, np.int64), (counts.counts, np.int64))
    if any(column.ndim != 1 or column.dtype != dtype for column, dtype in columns):
        return False
    sizes_match = len(counts.lengths) == len(counts.counts) and counts.lengths.sum() == len(counts.data)
    positive = sizes_match and (counts.lengths > 0).all() and (counts.counts > 0).all()
    return bool(positive) and int(counts.lengths @ counts.counts) == counts.nbytes


_TOLERANCE = 1e-3
"""Maximum relative error of a proportion. Half of its reciprocal is the largest number of repetitions that
has to be tried."""


def mix_counts(sources: Mapping[str, PretokenCounts], weights: Mapping[str, float]) -> PretokenCounts:
    """Combines the pre-token counts of several corpora so that each has a given share of the bytes.

    Each corpus is repeated a whole number of times: the result is exactly the sum of `n * counts` over the
    sources. The numbers `n` are the smallest whose proportions equal the requested ones to within 0.1 %, and
    at least one of them is at most 500. So no count is rounded. `min_frequency` of a trainer refers to the
    repeated text.

    Args:
        sources: name to the pre-token counts of a corpus. All were counted with the same pattern and the same
            special tokens.
        weights: name of each source to its share of the bytes of the mixture, on any scale: equal shares are
            `dict.fromkeys(sources, 1)`, and `{name: counts.nbytes ** 0.3 for name, counts in
            sources.items()}` raises the share of small corpora.

    Returns:
        The counts of the mixture, for any trainer.

    Raises:
        InvalidArgumentError: a weight is missing, unknown, or not positive; a source has no text; the counts
            have different patterns or special tokens; or the mixture has more than 2**53 bytes of text.

    >>> from tokjax.trainer import count_pretokens
    >>> sources = {
    ...     "en": count_pretokens(["low lower"], progress=False),
    ...     "de": count_pretokens(["leer"], progress=False),
    ... }
    >>> list(mix_counts(sources, {"en": 9, "de": 8}).items())
    [(b'low', 1), (b'leer', 2), (b' lower', 1)]
    """
    check_counts_by_source(sources)
    shares = check_weights(list(sources), weights)
    repetitions = _find_repetitions([counts.nbytes for counts in sources.values()], shares)
    first, *others = (times * counts for times, counts in zip(repetitions, sources.values(), strict=True))
    return sum(others, start=first)


def check_counts_by_source(sources: Mapping[str, PretokenCounts]) -> None:
    """Raises `InvalidArgumentError` unless each source has a name, pre-token counts, and text."""
    if not isinstance(sources, Mapping) or not sources:
        raise InvalidArgumentError(f"sources must map names to pre-token counts, not be {sources!r:.80}")
    for name, counts in sources.items():
        if not isinstance(counts, PretokenCounts):
            raise InvalidArgumentError(
                f"source {name!r} must be pre-token counts, not a {type(counts).__name__}; pass "
                "count_pretokens(source)"
            )
        if not counts.nbytes:
            raise InvalidArgumentError(f"source {name!r} has no text; leave it out")


def check_weights(names: list[str], weights: Mapping[str, float]) -> list[float]:
    """Returns the weights in the order of the sources.

    Raises:
        InvalidArgumentError: a weight is missing, unknown, or not positive.
    """
    if not isinstance(weights, Mapping) or set(weights) != set(names):
        raise InvalidArgumentError(
            f"weights must map each of the sources {names} to a number, not {weights!r}"
        )
    checked = [check_float(f"the weight of {name!r}", weights[name], minimum=0) for name in names]
    if 0 in checked:
        raise InvalidArgumentError(
            f"the weight of {names[checked.index(0)]!r} is 0; leave the source out, or pass a positive weight"
        )
    return checked


def _find_repetitions(sizes: Sequence[int], shares: Sequence[float]) -> list[int]:
    """Returns how often each source is repeated to have its share of the bytes.

    Args:
        sizes: number of bytes of each source.
        shares: share of each source, on any scale.
    """
    wanted = np.array(shares, np.float64) / np.array(sizes, np.float64)
    # Rounding changes a number n by at most 1/2, so 500 repetitions of the rarest source are always enough.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        scaled = wanted / wanted.min() * np.arange(1, round(0.5 / _TOLERANCE) + 1)[:, np.newaxis]
    if not np.isfinite(scaled).all():
        raise InvalidArgumentError(f"the weights {shares} are too far apart; pass weights of similar size")
    repetitions = np.rint(scaled)
    errors = np.abs(repetitions / scaled - 1).max(axis=1)
    first = int(np.argmax(errors <= _TOLERANCE))
    return [int(times) for times in repetitions[first]]
