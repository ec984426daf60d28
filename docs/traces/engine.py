"""What the engine does with words that it has not seen, round by round."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.bpe.batch_merging import _REACH, _propagate_bounds
from tokjax.bpe.chunks import (
    CHUNK_CHARACTERS,
    as_segments,
    group_segments,
    split_pieces,
)
from tokjax.bpe.merge_bounds import NEVER_RANK, unpack_bounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokjax.bpe.batch_merging import BatchMerger, _Symbols
    from tokjax.bpe.chunks import Pieces, PreTokenizer
    from tokjax.bpe.hash_tables import Pretokens
    from tokjax.bpe.pretoken_cache import PretokenCache


_ROUNDS = 5


class MergeBound(NamedTuple):
    """Where two symbols of a word meet.

    Attributes:
        pair: the two symbols.
        rank: with which they merge; `"never"` if they don't.
        left_taken: the lowest rank with which anything further left could take the left symbol away.
        right_taken: the same of the right symbol, from further right.
        is_sure: whether the pair is merged in the next round.
    """

    pair: str
    rank: int | str
    left_taken: int | str
    right_taken: int | str
    is_sure: bool


def compute_merge_bounds(merger: BatchMerger, pretoken: bytes) -> list[MergeBound]:
    """What the first round knows of each two neighbours of a word."""
    symbols = merger._build_symbols(
        np.frombuffer(pretoken, np.uint8), np.array([len(pretoken)])
    )
    bounds = unpack_bounds(symbols.bounds)
    left, right = _propagate_bounds(bounds, _REACH)
    sure = merger._find_safe_pairs(symbols.ids, bounds.rank, left, right, _REACH)
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
        for row in zip(pairs, *ranks, sure[: len(pairs)].tolist(), strict=False)
    ]


def iter_merging_rounds(
    merger: BatchMerger, pretokens: Pretokens
) -> Iterator[list[str]]:
    """The symbols of each word: first its bytes, and then what they are after each round.

    Rounds go on until no pair is sure; what then is left, the engine merges one pair at a time.
    """
    texts = list(pretokens.iter_bytes())
    stops = np.cumsum([0, *map(len, texts)])
    done = np.full(stops[-1], -1, np.int32)
    symbols: _Symbols | None = merger._build_symbols(
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
    """How long each stage of the engine takes when all words are known: the least of some rounds."""
    chunks = list(
        group_segments(as_segments(texts), CHUNK_CHARACTERS, pre_tokenizer.find_split)
    )
    cache.insert(
        [cache.find(split_pieces(pieces, pre_tokenizer).pretokens) for pieces in chunks]
    )
    rounds = [
        [_time_stages(pieces, pre_tokenizer, cache) for pieces in chunks]
        for _ in range(_ROUNDS)
    ]
    minimum = np.array(rounds).sum(axis=1).min(axis=0)
    return dict(zip(("boundaries", "words", "ids"), minimum.tolist(), strict=True))


def _time_stages(
    pieces: Pieces, pre_tokenizer: PreTokenizer, cache: PretokenCache
) -> list[float]:
    times = [time.perf_counter()]
    pretokens = split_pieces(pieces, pre_tokenizer).pretokens
    times.append(time.perf_counter())
    lookup = cache.find(pretokens)
    times.append(time.perf_counter())
    cache.get_ids(lookup)
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
