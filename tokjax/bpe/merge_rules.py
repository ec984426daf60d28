"""Which pairs of tokens merge, and in which order: as a table of ranks says, or a list of merges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NoReturn, TypeVar

import numpy as np

from tokjax.core.vocabulary import MAX_ID
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Merges = Sequence[tuple[bytes, bytes]]

Token = TypeVar("Token", str, bytes)
MAX_MERGES = MAX_ID - 256 - (1 << 16)
"""A rank fits where an id does; some are left for merges of our own making."""
LONG_TOKEN = 128
_MAX_SPLIT_BYTES = 1 << 33


class RulesTooLargeError(InvalidArgumentError):
    """Merges that make sense, and are more, or of longer tokens, than the tables for them can hold."""


@dataclass(frozen=True)
class MergeRules:
    """What merging goes by: always the pair of lowest rank merges, of equals the leftmost.

    Attributes:
        symbols: numbers of every token that merging can make, every single byte among them.
        pairs: the pairs that merge, with their ranks, and perhaps some that never meet since no merge makes a
            part of theirs; `None` if any two do that make a token, whose number is
            the rank.
        made: the symbol that a pair of each rank makes, `int32`; `None` where it is the rank.
        ids: the id of each symbol, `int32`, or -1 for one that is no token, and falls apart into its bytes;
            `None` where the symbol is the id.
        atomic_ids: id of each word that is known without merging.
    """

    symbols: Mapping[bytes, int]
    pairs: Mapping[tuple[bytes, bytes], int] | None
    made: NDArray[np.int32] | None
    ids: NDArray[np.int32] | None
    atomic_ids: Mapping[bytes, int]

    @property
    def get_rank(self) -> Callable[[bytes, bytes], int | None]:
        """Gives the rank of a pair, `None` if it does not merge."""
        symbols, pairs = self.symbols, self.pairs
        if pairs is None:
            return lambda left, right: symbols.get(left + right)
        return lambda left, right: pairs.get((left, right))

    def get_merged_symbols(self, ranks: NDArray[np.int32]) -> NDArray[np.int32]:
        """The symbols that pairs of some ranks make."""
        return ranks if self.made is None else self.made.take(ranks)

    def as_ids(self, symbols: NDArray[np.int32]) -> NDArray[np.int32]:
        """The ids of symbols."""
        return symbols if self.ids is None else self.ids.take(symbols)

    def get_ids(self, made: bytes) -> list[int]:
        """The id of a token that merging made, or those of its bytes if it is none."""
        if self.ids is None:
            return [self.symbols[made]]
        id_ = int(self.ids[self.symbols[made]])
        return [id_] if id_ >= 0 else self.ids[list(made)].tolist()


def make_rules_from_ranks(ranks: Mapping[bytes, int]) -> MergeRules:
    """The rule of tiktoken: an id is a rank, any two tokens merge that make one, and tokens stay whole.

    Args:
        ranks: bytes to id, every single byte among them.
    """
    _check_lengths(ranks)
    return MergeRules(ranks, None, None, None, ranks)


def parse_merge_pairs(
    merges: Sequence[tuple[Token, Token]], kind: type[Token]
) -> tuple[tuple[Token, Token], ...]:
    """Merges as pairs of tokens of one kind.

    Raises:
        InvalidArgumentError: one of them is none.
    """
    if isinstance(merges, (str, bytes)) or not isinstance(merges, Iterable):
        raise InvalidArgumentError(f"merges is a list of pairs of tokens, not {merges!r}")
    pairs = tuple(merges)
    of_tuples = set(map(type, pairs)) <= {tuple} and set(map(len, pairs)) <= {2}
    if of_tuples and set(map(type, chain.from_iterable(pairs))) <= {kind}:
        return pairs
    for i, pair in enumerate(pairs):
        if not isinstance(pair, (tuple, list)) or [type(part) for part in pair] != [kind, kind]:
            raise InvalidArgumentError(f"merge {i} is {pair!r}; a pair of {kind.__name__} is expected")
    return tuple((left, right) for left, right in pairs)


def _check_lengths(symbols: Mapping[bytes, int]) -> None:
    """Refuse long tokens of which it would take minutes to tell how they can be cut."""
    lengths = list(map(len, symbols))
    long = [length for length in lengths if length > LONG_TOKEN]
    cuts = len(set(lengths)) * sum(long) if long else 0
    if cuts > _MAX_SPLIT_BYTES:
        raise RulesTooLargeError(
            f"there are {len(long):,} tokens of more than {LONG_TOKEN} bytes, {sum(long):,} in all: too many"
        )


def make_rules_from_merges(ids: Mapping[bytes, int], merges: Merges, *, ignore_merges: bool) -> MergeRules:
    """The rule of Hugging Face's tokenizers: pairs of a list merge, those that stand first before others.

    Args:
        ids: bytes to id, every single byte among them; -1 for what is no token, and falls apart into its
            bytes if merging ends there.
        merges: the pairs, in order. Several of them may make one token.
        ignore_merges: whether a word that is a token is that token even if merging would not arrive there.

    Raises:
        InvalidArgumentError: a merge has a part, or makes a token, that there is not, or stands twice.
        RulesTooLargeError: there are too many of them, or of tokens that are very long.
    """
    if len(merges) > MAX_MERGES:
        raise RulesTooLargeError(f"there are {len(merges):,} merges; {MAX_MERGES:,} are possible")
    # Everything here is done to all merges at once: some vocabularies have half a million.
    symbols = {bytes([i]): i for i in range(256)}
    tokens = list(map(b"".join, merges))
    ranks = range(256, 256 + len(merges))
    pairs = dict(zip(merges, ranks, strict=True))
    parts = set(chain.from_iterable(merges))
    if len(pairs) < len(merges) or not all(map(ids.__contains__, chain(parts, tokens))):
        _reject_merges(ids, merges)
    made = np.arange(ranks.stop, dtype=np.int32)
    made[256:] = np.fromiter(map(symbols.setdefault, tokens, ranks), np.int32, len(merges))
    of_symbols = np.zeros(len(made), np.int32)
    numbers = np.fromiter(symbols.values(), np.int32, len(symbols))
    of_symbols[numbers] = np.fromiter(map(ids.__getitem__, symbols), np.int32, len(symbols))
    _check_lengths(symbols)
    bytes_alone = {token: ids[token] for token in map(bytes, ([i] for i in range(256)))}
    return MergeRules(
        symbols,
        pairs,
        made if len(symbols) < len(made) else None,
        of_symbols,
        ids if ignore_merges else bytes_alone,
    )


def _reject_merges(ids: Mapping[bytes, int], merges: Merges) -> NoReturn:
    """Raises `InvalidArgumentError` for the first merge that is wrong, of which there is one."""
    seen: set[tuple[bytes, bytes]] = set()
    for i, (left, right) in enumerate(merges):
        for part in (left, right, left + right):
            if part not in ids:
                raise InvalidArgumentError(f"merge {i}, {left!r} and {right!r}: there is no token {part!r}")
        if (left, right) in seen:
            break
        seen.add((left, right))
    raise InvalidArgumentError(f"merge {i}, {left!r} and {right!r}, stands twice")
