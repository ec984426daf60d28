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
    gather,
    split_pieces,
)
from tokjax.bpe.merge_bounds import NEVER, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokjax.bpe.batch_merging import BatchMerger, _Symbols
    from tokjax.bpe.chunks import Cutter, Pieces
    from tokjax.bpe.hash_tables import Words
    from tokjax.bpe.pretoken_cache import KnownWords


_ROUNDS = 5


class Joint(NamedTuple):
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


def joints_of(merger: BatchMerger, word: bytes) -> list[Joint]:
    """What the first round knows of each two neighbours of a word."""
    symbols = merger._build_symbols(
        np.frombuffer(word, np.uint8), np.array([len(word)])
    )
    joints = unpacked(symbols.joints)
    left, right = _propagate_bounds(joints, _REACH)
    sure = merger._find_safe_pairs(symbols.ids, joints.rank, left, right, _REACH)
    pairs = [
        _shown(word[i : i + 1]) + "·" + _shown(word[i + 1 : i + 2])
        for i in range(len(word) - 1)
    ]
    columns = (joints.rank[1:-1], left[:-2], right[2:])
    ranks = [[_rank(value) for value in column.tolist()] for column in columns]
    return [
        Joint(*row)
        for row in zip(pairs, *ranks, sure[: len(pairs)].tolist(), strict=False)
    ]


def merging_rounds(merger: BatchMerger, words: Words) -> Iterator[list[str]]:
    """The symbols of each word: first its bytes, and then what they are after each round.

    Rounds go on until no pair is sure; what then is left, the engine merges one pair at a time.
    """
    texts = list(words.iter_bytes())
    stops = np.cumsum([0, *map(len, texts)])
    done = np.full(stops[-1], -1, np.int32)
    symbols: _Symbols | None = merger._build_symbols(
        np.frombuffer(b"".join(texts), np.uint8), stops[1:]
    )
    while symbols is not None:
        starts = np.union1d(np.flatnonzero(done >= 0), symbols.places[1:-1])
        yield [
            _cut(word, starts[(starts > first) & (starts < first + len(word))] - first)
            for word, first in zip(texts, stops[:-1], strict=True)
        ]
        symbols = merger._merged(symbols, done, 0)


def seconds_by_stage(
    texts: Sequence[str], cutter: Cutter, known: KnownWords
) -> dict[str, float]:
    """How long each stage of the engine takes when all words are known: the least of some rounds."""
    chunks = list(gather(as_segments(texts), CHUNK_CHARACTERS, cutter.cut))
    known.learn([known.find(split_pieces(pieces, cutter).words) for pieces in chunks])
    rounds = [
        [_clocked(pieces, cutter, known) for pieces in chunks] for _ in range(_ROUNDS)
    ]
    least = np.array(rounds).sum(axis=1).min(axis=0)
    return dict(zip(("boundaries", "words", "ids"), least.tolist(), strict=True))


def _clocked(pieces: Pieces, cutter: Cutter, known: KnownWords) -> list[float]:
    times = [time.perf_counter()]
    words = split_pieces(pieces, cutter).words
    times.append(time.perf_counter())
    found = known.find(words)
    times.append(time.perf_counter())
    known.ids_of(found)
    times.append(time.perf_counter())
    return [end - begin for begin, end in pairwise(times)]


def _cut(word: bytes, cuts: Sequence[int]) -> str:
    return "·".join(
        _shown(word[i:j]) for i, j in zip([0, *cuts], [*cuts, len(word)], strict=True)
    )


def _shown(part: bytes) -> str:
    return part.decode("utf-8", "backslashreplace").replace(" ", "␣")


def _rank(value: int) -> int | str:
    return value if value < NEVER else "never"
