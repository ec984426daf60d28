"""Which pairs of tokens merge, and in which order: as a table of ranks says, or a list of merges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tokjax.errors import InvalidArgumentError
from tokjax.vocabulary import MAX_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Merges = Sequence[tuple[bytes, bytes]]

Token = TypeVar("Token", str, bytes)
MOST_MERGES = MAX_ID - 256 - (1 << 16)
"""A rank fits where an id does; some are left for merges of our own making."""
LONG_TOKEN = 128
_MOST_CUT_BYTES = 1 << 33


class RulesTooLargeError(InvalidArgumentError):
    """Merges that make sense, and are more, or of longer tokens, than the tables for them can hold."""


@dataclass(frozen=True)
class MergeRules:
    """What merging goes by: always the pair of lowest rank merges, of equals the leftmost.

    Attributes:
        symbols: numbers of every token that merging can make, every single byte among them.
        pairs: the pairs that merge, with their ranks; `None` if any two do that make a token, whose number is
            the rank.
        made: the symbol that a pair of each rank makes, `int32`; `None` where it is the rank.
        ids: the id of each symbol, `int32`, or -1 for one that is no token, and falls apart into its bytes;
            `None` where the symbol is the id.
        whole: id of each word that is known without merging.
    """

    symbols: Mapping[bytes, int]
    pairs: Mapping[tuple[bytes, bytes], int] | None
    made: NDArray[np.int32] | None
    ids: NDArray[np.int32] | None
    whole: Mapping[bytes, int]

    @property
    def rank_of(self) -> Callable[[bytes, bytes], int | None]:
        """Gives the rank of a pair, `None` if it does not merge."""
        symbols, pairs = self.symbols, self.pairs
        if pairs is None:
            return lambda left, right: symbols.get(left + right)
        return lambda left, right: pairs.get((left, right))

    def made_by(self, ranks: NDArray[np.int32]) -> NDArray[np.int32]:
        """The symbols that pairs of some ranks make."""
        return ranks if self.made is None else self.made.take(ranks)

    def as_ids(self, symbols: NDArray[np.int32]) -> NDArray[np.int32]:
        """The ids of symbols."""
        return symbols if self.ids is None else self.ids.take(symbols)

    def ids_of(self, made: bytes) -> list[int]:
        """The id of a token that merging made, or those of its bytes if it is none."""
        if self.ids is None:
            return [self.symbols[made]]
        id_ = int(self.ids[self.symbols[made]])
        return [id_] if id_ >= 0 else self.ids[list(made)].tolist()


def rules_of_ranks(ranks: Mapping[bytes, int]) -> MergeRules:
    """The rule of tiktoken: an id is a rank, any two tokens merge that make one, and tokens stay whole.

    Args:
        ranks: bytes to id, every single byte among them.
    """
    _check_lengths(ranks)
    return MergeRules(ranks, None, None, None, ranks)


def checked_pairs(
    merges: Sequence[tuple[Token, Token]], kind: type[Token]
) -> tuple[tuple[Token, Token], ...]:
    """Merges as pairs of tokens of one kind.

    Raises:
        InvalidArgumentError: one of them is none.
    """
    if isinstance(merges, (str, bytes)) or not isinstance(merges, Iterable):
        raise InvalidArgumentError(f"merges is a list of pairs of tokens, not {merges!r}")
    pairs = tuple(merges)
    for i, pair in enumerate(pairs):
        if not isinstance(pair, (tuple, list)) or [type(part) for part in pair] != [kind, kind]:
            raise InvalidArgumentError(f"merge {i} is {pair!r}; a pair of {kind.__name__} is expected")
    return tuple((left, right) for left, right in pairs)


def _check_lengths(symbols: Mapping[bytes, int]) -> None:
    """Refuse long tokens of which it would take minutes to tell how they can be cut."""
    long = [len(token) for token in symbols if len(token) > LONG_TOKEN]
    cuts = len(set(map(len, symbols))) * sum(long) if long else 0
    if cuts > _MOST_CUT_BYTES:
        raise RulesTooLargeError(
            f"there are {len(long):,} tokens of more than {LONG_TOKEN} bytes, {sum(long):,} in all: too many"
        )


def rules_of_merges(ids: Mapping[bytes, int], merges: Merges, *, whole_words: bool) -> MergeRules:
    """The rule of Hugging Face's tokenizers: pairs of a list merge, those that stand first before others.

    Args:
        ids: bytes to id, every single byte among them; -1 for what is no token, and falls apart into its
            bytes if merging ends there.
        merges: the pairs, in order. Several of them may make one token.
        whole_words: whether a word that is a token is that token even if merging would not arrive there.

    Raises:
        InvalidArgumentError: a merge has a part, or makes a token, that there is not, or stands twice.
        RulesTooLargeError: there are too many of them, or of tokens that are very long.
    """
    if len(merges) > MOST_MERGES:
        raise RulesTooLargeError(f"there are {len(merges):,} merges; {MOST_MERGES:,} are possible")
    symbols = {bytes([i]): i for i in range(256)}
    pairs: dict[tuple[bytes, bytes], int] = {}
    made = np.arange(256 + len(merges), dtype=np.int32)
    for rank, (left, right) in enumerate(merges, 256):
        token = left + right
        if left not in ids or right not in ids or token not in ids:
            missing = next(part for part in (left, right, token) if part not in ids)
            raise InvalidArgumentError(
                f"merge {rank - 256}, {left!r} and {right!r}: there is no token {missing!r}"
            )
        if (left, right) in pairs:
            raise InvalidArgumentError(f"merge {rank - 256}, {left!r} and {right!r}, stands twice")
        pairs[left, right] = rank
        made[rank] = symbols.setdefault(token, rank)
    if any(left not in symbols or right not in symbols for left, right in pairs):  # some never meet
        pairs = {pair: rank for pair, rank in pairs.items() if symbols.keys() >= set(pair)}
    of_symbols = np.zeros(len(made), np.int32)
    for token, symbol in symbols.items():
        of_symbols[symbol] = ids[token]
    _check_lengths(symbols)
    bytes_alone = {token: ids[token] for token in map(bytes, ([i] for i in range(256)))}
    return MergeRules(
        symbols,
        pairs,
        made if len(symbols) < len(made) else None,
        of_symbols,
        ids if whole_words else bytes_alone,
    )
