"""Traces of batched merging, round by round, and the time of each stage of the engine."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.bpe.batched_merging import _propagate_bounds
from tokjax.bpe.chunks import (
    CHUNK_CHARACTERS,
    as_segments,
    group_segments,
    split_pieces,
)
from tokjax.bpe.merge_bounds import NEVER_RANK, unpack_bounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokjax.bpe.batched_merging import BatchMerger, Symbols
    from tokjax.bpe.chunks import Pieces, PreTokenizer
    from tokjax.bpe.hash_tables import Pretokens
    from tokjax.bpe.pretoken_cache import PretokenCache


_ROUNDS = 5


class MergeBound(NamedTuple):
    """Two adjacent symbols of a pre-token.

    Attributes:
        pair: the two symbols.
        rank: the rank with which they merge; `"never"` if they don't.
        left_bound: the lowest rank with which a symbol further left can take the left symbol.
        right_bound: the lowest rank with which a symbol further right can take the right symbol.
        is_safe: whether the pair is merged in the next round.
    """

    pair: str
    rank: int | str
    left_bound: int | str
    right_bound: int | str
    is_safe: bool


def compute_merge_bounds(merger: BatchMerger, pretoken: bytes) -> list[MergeBound]:
    """Returns the merge bounds of each pair of a pre-token, as the first round finds them."""
    symbols = merger.build_symbols(
        np.frombuffer(pretoken, np.uint8), np.array([len(pretoken)])
    )
    bounds = unpack_bounds(symbols.bounds)
    left, right = _propagate_bounds(bounds)
    safe = merger._find_safe_pairs(symbols.ids, bounds.rank, left, right)
    pairs = [
        _format_bytes(pretoken[i : i + 1])
        + "·"
        + _format_bytes(pretoken[i + 1 : i + 2])
        for i in range(len(pretoken) - 1)
    ]
    columns = (bounds.rank[1:-1], left[:-2], right[2:])
    ranks = [[_format_rank(value) for value in column.tolist()] for column in columns]
    return [
        MergeBound(*row)
        for row in zip(pairs, *ranks, safe[: len(pairs)].tolist(), strict=False)
    ]


def iter_merging_rounds(
    merger: BatchMerger, pretokens: Pretokens
) -> Iterator[list[str]]:
    """Iterates over the symbols of each pre-token: first its bytes, then the symbols after each round.

    The last round is the one after which no pair is safe. The engine merges the rest one pair at a time.
    """
    texts = list(pretokens.iter_bytes())
    stops = np.cumsum([0, *map(len, texts)])
    done = np.full(stops[-1], -1, np.int32)
    symbols: Symbols | None = merger.build_symbols(
        np.frombuffer(b"".join(texts), np.uint8), stops[1:]
    )
    while symbols is not None:
        starts = np.union1d(np.flatnonzero(done >= 0), symbols.positions[1:-1])
        yield [
            _format_symbols(
                pretoken,
                starts[(starts > first) & (starts < first + len(pretoken))] - first,
            )
            for pretoken, first in zip(texts, stops[:-1], strict=True)
        ]
        symbols = merger._merge_round(symbols, done, 0)


def measure_stage_seconds(
    texts: Sequence[str], pre_tokenizer: PreTokenizer, cache: PretokenCache
) -> dict[str, float]:
    """Measures the seconds of each stage of the engine with a warm cache: the minimum of several rounds."""
    chunks = list(
        group_segments(as_segments(texts), CHUNK_CHARACTERS, pre_tokenizer.find_split)
    )
    for _ in cache.encode(
        split_pieces(pieces, pre_tokenizer).pretokens for pieces in chunks
    ):
        pass  # inserts the pre-tokens
    rounds = [
        [_time_stages(pieces, pre_tokenizer, cache) for pieces in chunks]
        for _ in range(_ROUNDS)
    ]
    minimum = np.array(rounds).sum(axis=1).min(axis=0)
    return dict(zip(("boundaries", "lookup", "ids"), minimum.tolist(), strict=True))


def _time_stages(
    pieces: Pieces, pre_tokenizer: PreTokenizer, cache: PretokenCache
) -> list[float]:
    times = [time.perf_counter()]
    pretokens = split_pieces(pieces, pre_tokenizer).pretokens
    times.append(time.perf_counter())
    values = cache.entries.tables.find(pretokens)
    times.append(time.perf_counter())
    cache.entries.pool.expand(values)
    times.append(time.perf_counter())
    return [end - begin for begin, end in pairwise(times)]


def _format_symbols(pretoken: bytes, splits: Sequence[int]) -> str:
    return "·".join(
        _format_bytes(pretoken[i:j])
        for i, j in zip([0, *splits], [*splits, len(pretoken)], strict=True)
    )


def _format_bytes(part: bytes) -> str:
    return part.decode("utf-8", "backslashreplace").replace(" ", "␣")


def _format_rank(value: int) -> int | str:
    return value if value < NEVER_RANK else "never"
