"""Merge rules: which pairs of symbols merge, and in which order, from a table of ranks or a list of merges.

tiktoken's vocabularies are tables of ranks: two tokens merge if their concatenation is a token, and its id is
the rank. Hugging Face's are lists of merges: the position in the list is the rank, and several merges can
make the same token.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tokjax._util.checks import is_iterable
from tokjax.core.vocabulary import MAX_ID
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Merges = Sequence[tuple[bytes, bytes]]

Token = TypeVar("Token", str, bytes)
MAX_MERGES = MAX_ID - 256 - (1 << 16)
"""Maximum number of merges: ranks are stored in as many bits as ids, and a few of them are reserved."""
LONG_TOKEN = 128
"""Tokens of more bytes are long. Splitting them in all ways takes time that has to be limited."""
_MAX_SPLIT_BYTES = 1 << 26


class RulesTooLargeError(InvalidArgumentError):
    """Raised for valid merges that are too many, or whose tokens are too long, for the merge tables."""


@dataclass(frozen=True)
class MergeRules:
    """The merge rules of a vocabulary: the pair of lowest rank merges first, and of equal ranks the leftmost.

    Attributes:
        symbols: bytes to the number of the symbol, for all single bytes and everything that merges can make.
        pairs: pairs that merge, to their ranks. It may have pairs that never occur, because no merge makes
            one of their halves. `None` if any two symbols merge whose concatenation is a symbol, which is
            then the rank.
        merged_symbols: the symbol that the pair of each rank becomes, `int32`, shape `(ranks,)`; `None` if it
            equals the rank.
        ids: the token id of each symbol, `int32`, shape `(symbols,)`; -1 for a symbol that is not a token,
            and is replaced by its bytes where merging ends at it. `None` if the symbols are the ids.
        atomic_ids: bytes to id, for the pre-tokens that are encoded as one token without merging.
        num_character_merges: number of merges, the first ones, that only build characters from their bytes.
    """

    symbols: Mapping[bytes, int]
    pairs: Mapping[tuple[bytes, bytes], int] | None
    merged_symbols: NDArray[np.int32] | None
    ids: NDArray[np.int32] | None
    atomic_ids: Mapping[bytes, int]
    num_character_merges: int = 0

    @property
    def get_rank(self) -> Callable[[bytes, bytes], int | None]:
        """Function that returns the rank of a pair, or `None` if the pair does not merge."""
        symbols, pairs = self.symbols, self.pairs
        if pairs is None:
            return lambda left, right: symbols.get(left + right)
        return lambda left, right: pairs.get((left, right))

    def get_merged_symbols(self, ranks: NDArray[np.int32]) -> NDArray[np.int32]:
        """Returns the symbols that pairs of the ranks become."""
        return ranks if self.merged_symbols is None else self.merged_symbols.take(ranks)

    def as_ids(self, symbols: NDArray[np.int32]) -> NDArray[np.int32]:
        """Returns the ids of symbols, -1 for those that are not tokens."""
        return symbols if self.ids is None else self.ids.take(symbols)

    def get_ids(self, symbol: bytes) -> list[int]:
        """Returns the id of a symbol by its bytes, or the ids of the bytes if it is not a token."""
        if self.ids is None:
            return [self.symbols[symbol]]
        id_ = int(self.ids[self.symbols[symbol]])
        return [id_] if id_ >= 0 else self.ids[list(symbol)].tolist()


def make_rules_from_ranks(ranks: Mapping[bytes, int]) -> MergeRules:
    """Returns the merge rules of tiktoken, whose ids are ranks.

    Two tokens merge if their concatenation is a token. A pre-token that is a token is not merged.

    Args:
        ranks: bytes to id, for all tokens, which include all single bytes.
    """
    check_symbol_lengths(ranks)
    ids = dict(ranks)
    return MergeRules(ids, None, None, None, ids)


def parse_merge_pairs(
    merges: Sequence[tuple[Token, Token]], kind: type[Token]
) -> tuple[tuple[Token, Token], ...]:
    """Returns merges as a tuple of pairs, after a check of their types.

    Args:
        merges: pairs of tokens.
        kind: the type of a token, `str` or `bytes`.

    Raises:
        InvalidArgumentError: `merges` is not a sequence of pairs of `kind`.
    """
    if isinstance(merges, (str, bytes)) or not is_iterable(merges):
        raise InvalidArgumentError(f"merges must be a list of pairs of tokens, not {merges!r}")
    pairs = tuple(merges)
    # Checks that run in C first: some lists have half a million merges.
    are_pairs = set(map(type, pairs)) <= {tuple} and set(map(len, pairs)) <= {2}
    if are_pairs and set(map(type, chain.from_iterable(pairs))) <= {kind}:
        return pairs
    for i, pair in enumerate(pairs):
        if not isinstance(pair, (tuple, list)) or [type(part) for part in pair] != [kind, kind]:
            raise InvalidArgumentError(f"merge {i} must be a pair of {kind.__name__}, not {pair!r}")
    return tuple((left, right) for left, right in pairs)


def check_symbol_lengths(symbols: Mapping[bytes, int]) -> None:
    """Raises `RulesTooLargeError` if it would take gigabytes to split the long tokens in all ways."""
    lengths = list(map(len, symbols))
    long = [length for length in lengths if length > LONG_TOKEN]
    split_bytes = len(set(lengths)) * sum(long) if long else 0
    if split_bytes > _MAX_SPLIT_BYTES:
        raise RulesTooLargeError(
            f"the vocabulary has too many long tokens: {len(long):,} tokens of more than {LONG_TOKEN} bytes, "
            f"{sum(long):,} bytes in all"
        )


def make_rules_from_merges(ids: Mapping[bytes, int], merges: Merges, *, ignore_merges: bool) -> MergeRules:
    """Returns the merge rules of Hugging Face's tokenizers, which are a list of pairs in order of rank.

    Args:
        ids: bytes to id, for all tokens, which include all single bytes; -1 for bytes that are not a token,
            and are replaced by single bytes if merging ends at them.
        merges: the pairs, in order. Several pairs may make the same token.
        ignore_merges: whether a pre-token that is a token is always encoded as that token, even if merging
            would not make it.

    Raises:
        InvalidArgumentError: a part of a merge, or the token that it makes, is not in `ids`, or a merge is a
            duplicate.
        RulesTooLargeError: there are too many merges, or too many very long tokens.
    """
    if len(merges) > MAX_MERGES:
        raise RulesTooLargeError(
            f"the vocabulary has {len(merges):,} merges; at most {MAX_MERGES:,} are supported"
        )
    # All operations below run in C over all merges: some vocabularies have half a million.
    symbols = {bytes([i]): i for i in range(256)}
    tokens = list(map(b"".join, merges))
    ranks = range(256, 256 + len(merges))
    pairs = dict(zip(merges, ranks, strict=True))
    parts = set(chain.from_iterable(merges))
    if len(pairs) < len(merges) or not all(map(ids.__contains__, chain(parts, tokens))):
        check_merges(merges, partial(_find_missing_token, ids))
    merged_symbols = np.arange(ranks.stop, dtype=np.int32)
    # `setdefault` returns the symbol of the first merge that makes a token, for all merges that make it.
    merged_symbols[256:] = np.fromiter(map(symbols.setdefault, tokens, ranks), np.int32, len(merges))
    symbol_ids = np.zeros(len(merged_symbols), np.int32)
    numbers = np.fromiter(symbols.values(), np.int32, len(symbols))
    symbol_ids[numbers] = np.fromiter(map(ids.__getitem__, symbols), np.int32, len(symbols))
    check_symbol_lengths(symbols)
    byte_ids = {token: ids[token] for token in map(bytes, ([i] for i in range(256)))}
    return MergeRules(
        symbols,
        pairs,
        merged_symbols if len(symbols) < len(merged_symbols) else None,
        symbol_ids,
        dict(ids) if ignore_merges else byte_ids,
    )


def _find_missing_token(ids: Mapping[bytes, int], left: bytes, right: bytes) -> str | None:
    missing = (part for part in (left, right, left + right) if part not in ids)
    return next((f"there is no token {part!r} in the vocabulary" for part in missing), None)


def check_merges(
    merges: Iterable[tuple[Token, Token]], find_problem: Callable[[Token, Token], str | None]
) -> None:
    """Raises `InvalidArgumentError` for the first merge that is a duplicate, or has another problem."""
    seen: set[tuple[Token, Token]] = set()
    for i, pair in enumerate(merges):
        problem = "it is a duplicate" if pair in seen else find_problem(*pair)
        if problem:
            raise InvalidArgumentError(f"merge {i} of {pair[0]!r} and {pair[1]!r}: {problem}")
        seen.add(pair)
