"""Byte-pair merging of counted words: as if one pair at a time, always the most frequent, but many a step.

A step counts the most frequent pairs, follows the order in which one at a time would merge them for as long
as that is certain, and merges them all together. So the merges, and their order, are those of the slow way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tokjax.core.vocabulary import ID_BITS
from tokjax.errors import InvalidArgumentError
from tokjax.pretokenize.bytes_to_unicode import BYTES
from tokjax.trainer.bpe.checkpoints import Checkpoint, CheckpointFile
from tokjax.trainer.bpe.heap_merging import RarePairs
from tokjax.trainer.bpe.linked_symbols import RIGHT, LinkedPretokens, make_pair_key, split_pair_key
from tokjax.trainer.bpe.pair_table import (
    BestPairs,
    GroupedPairs,
    PairTable,
    group_byte_pairs,
    group_positions,
)
from tokjax.trainer.bpe.safe_batch import RankedPairs, SafeBatches, drop_overlaps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from tokjax._util.progress import AdvanceProgress
    from tokjax.trainer.bpe.linked_symbols import Positions, Symbols

TieBreak: TypeAlias = Literal["lexicographic", "huggingface"]
_MIRROR = bytes(255 - i for i in range(256))
_MIN_WIDTH, _MAX_WIDTH = 16, 512
_MAX_BATCH = 512
_MERGE_COST, _POSITION_COST = 100.0, 8.0
"""Microseconds that one at a time takes for a merge, and for each of its places."""
_STEP_COST, _PAIR_COST, _LOOK_COST = 1000.0, 4.0, 0.03
"""Microseconds that a step of many takes, and more for each pair and each place that it looks at."""
_SLOW_STEPS = 16
"""After so many steps in a row that were slower than one at a time, it is one at a time."""


class Alphabet(NamedTuple):
    """Tokens that training starts from.

    Attributes:
        tokens: id to bytes. Tokens that are no symbol of a word keep their ids: a merge that makes their
            bytes makes no new token.
        prefix: bytes that tokens inside a word begin with, which are dropped from the second token of a pair.
    """

    tokens: Mapping[int, bytes]
    prefix: bytes = b""


BYTE_ALPHABET = Alphabet({i: bytes([i]) for i in range(256)})


class TrainingRules(NamedTuple):
    """Which pair is merged next: of those that are frequent and short enough, the most frequent.

    Attributes:
        first_id: the id of the first new token; those of the alphabet are lower.
        min_frequency: pairs that are rarer are not merged.
        tie_break: which of equally frequent pairs is merged first.
        max_token_length: pairs that would have more bytes are not merged; `None` for no such limit.
    """

    first_id: int
    min_frequency: int
    tie_break: TieBreak
    max_token_length: int | None


@dataclass
class MergeResult:
    """What merging made.

    Attributes:
        token: the bytes of each id.
        made: each merge, in order: the ids of the pair, and the id that it became.
        num_tokens: how many tokens the corpus has.
    """

    token: dict[int, bytes]
    made: list[tuple[int, int, int]] = field(default_factory=list)
    num_tokens: int = 0

    @property
    def merges(self) -> tuple[tuple[bytes, bytes], ...]:
        """The bytes of the pairs, in the order in which they were merged."""
        return tuple((self.token[left], self.token[right]) for left, right, _ in self.made)


def train_merges(
    symbols: Symbols,
    *,
    num_tokens: int,
    rules: TrainingRules,
    advance: AdvanceProgress,
    checkpoint: CheckpointFile | None = None,
    alphabet: Alphabet = BYTE_ALPHABET,
) -> MergeResult:
    """Merge until there are `num_tokens` new tokens, or no pair is frequent enough.

    Args:
        symbols: the words in ids of the alphabet, and how often each stands in the corpus.
        num_tokens: how many tokens to make.
        rules: which pair comes next.
        advance: reports new tokens.
        checkpoint: where to go on from, and to write to now and then; `None` for nowhere.
        alphabet: tokens of the symbols.
    """
    previous = checkpoint.load() if checkpoint else None
    merger = _Merger(previous or Checkpoint((), symbols), rules, alphabet)
    done = merger.num_new
    if checkpoint and done > num_tokens:
        raise InvalidArgumentError(
            f"{checkpoint.path} holds {done} new tokens, more than the {num_tokens} asked for; pass another "
            "checkpoint, or a larger vocab_size"
        )
    if checkpoint and not previous:
        checkpoint.save(merger.checkpoint())  # where that is not possible, it is said now
    advance(done)
    try:
        while merger.num_new < num_tokens:
            new = merger.advance(num_tokens - merger.num_new)
            if new is None:
                break
            advance(new)
            if checkpoint and checkpoint.is_due():
                checkpoint.try_to_save(merger.checkpoint())
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_format_interruption(merger.num_new, num_tokens, checkpoint)) from None
    if checkpoint and merger.num_new > done:
        checkpoint.try_to_save(merger.checkpoint())
    merger.merged.num_tokens = merger.pretokens.num_tokens()
    return merger.merged


def _format_interruption(done: int, asked: int, checkpoint: CheckpointFile | None) -> str:
    message = f"training was interrupted after {done:,} of {asked:,} merges; "
    if checkpoint is None:
        return message + "nothing was saved"
    kept = f"{checkpoint.path} has {checkpoint.num_saved:,} of them"
    return f"{message}{kept}; to resume, train again with the same checkpoint"


class _Merger:
    """The state of training."""

    def __init__(self, start: Checkpoint, rules: TrainingRules, alphabet: Alphabet = BYTE_ALPHABET) -> None:
        self.pretokens = LinkedPretokens(start.symbols)
        self.merged = MergeResult(dict(alphabet.tokens))
        self._rules = rules
        self._prefix = alphabet.prefix
        self._next_id = rules.first_id
        self._id_of = {token: id_ for id_, token in self.merged.token.items()}
        for merge in start.made:
            self._record(*merge)
        self._tie_key = TIE_KEYS[rules.tie_break](self.merged.token)
        self._width = _MIN_WIDTH
        self._slow_steps = 0
        self._pairs = PairTable(self.pretokens, self._group_all_pairs())
        self._batches = SafeBatches(self.pretokens)

    @property
    def num_new(self) -> int:
        """How many tokens were made."""
        return self._next_id - self._rules.first_id

    def checkpoint(self) -> Checkpoint:
        """All that is needed to go on from here."""
        return Checkpoint(self.merged.made, self.pretokens.as_symbols())

    def advance(self, limit: int) -> int | None:
        """Merge some pairs: how many tokens they make; `None` if no pair is frequent enough.

        Args:
            limit: how many tokens to make at most.
        """
        return self._step(limit) if self._slow_steps < _SLOW_STEPS else self._merge_one()

    def _step(self, limit: int) -> int | None:
        """Merge as many as is safe."""
        best = self._pairs.best(self._width)
        if best is None:
            return None
        ranked, rows = self._rank_pairs(best, min(limit, _MAX_BATCH))
        if not len(rows):
            return None
        context = self._batches.find_context(best.get_positions(rows))
        batch = self._batches.find(ranked, context)
        made, new = self._assign_ids([ranked.keys[rank] for rank in batch])
        del batch[len(made) :]
        positions = context.select_undisputed(len(rows), batch)
        positions = drop_overlaps(positions, np.array(ranked.is_double)[batch])
        self._pairs.drop(best.rows[rows[batch]])
        keys, new_positions = self.pretokens.merge(positions, np.array(made, np.int32))
        has_existing = new < len(made)
        self._pairs.add(*self._select_short_pairs(keys, new_positions), may_exist=has_existing)
        if has_existing:
            self._batches.reset_newcomers()
        self._adapt_width(len(made), len(best.rows))
        one_by_one = _MERGE_COST * len(made) + _POSITION_COST * len(positions.at)
        is_worth_it = one_by_one > _STEP_COST + _PAIR_COST * len(best.rows) + _LOOK_COST * best.looked_at
        self._slow_steps = 0 if is_worth_it else self._slow_steps + 1
        return new

    def _merge_one(self) -> int | None:
        """Merge one pair."""
        pair = self._rare_pairs.best(self._rules.min_frequency)
        if pair is None:
            return None
        ids, new = self._assign_ids([pair])
        self._rare_pairs.merge(pair, ids[0], may_exist=not new)
        return new

    @cached_property
    def _rare_pairs(self) -> RarePairs:
        return RarePairs(self.pretokens, self._pairs, self._tie_key, self._is_short_enough)

    def _rank_pairs(self, best: BestPairs, limit: int) -> tuple[RankedPairs, NDArray[np.int64]]:
        """The pairs that may be merged next; and which of the best each is."""
        chosen = np.flatnonzero(best.counts >= self._rules.min_frequency)
        if len(chosen) > limit:
            minimum = np.partition(best.counts[chosen], -limit)[-limit]
            chosen = chosen[best.counts[chosen] >= minimum]
        counts, (left, right) = best.counts[chosen].tolist(), split_pair_key(best.keys[chosen])
        ranking = sorted(
            (-count, self._tie_key(left_id), self._tie_key(right_id), i)
            for i, (count, left_id, right_id) in enumerate(
                zip(counts, left.tolist(), right.tolist(), strict=True)
            )
        )[:limit]
        order = np.fromiter((entry[-1] for entry in ranking), np.int64, len(ranking))
        rows = chosen[order]
        is_double = (left == right)[order].tolist()
        return RankedPairs([entry[:-1] for entry in ranking], best.keys[rows].tolist(), is_double), rows

    def _assign_ids(self, pairs: list[int]) -> tuple[list[int], int]:
        """Ids for what pairs become, and how many of them are new.

        Two merges that make the same bytes make one token. The second of them is the last of its step: pairs
        of its token are known already, and get more frequent.
        """
        first = self._next_id
        ids: list[int] = []
        for left, right in ((key >> ID_BITS, key & RIGHT) for key in pairs):
            id_ = self._id_of.get(self._joined(left, right), self._next_id)
            if first <= id_ < self._next_id:
                break  # made in this very step
            ids.append(id_)
            is_new = id_ == self._next_id
            self._record(left, right, id_)
            if not is_new:
                break
        return ids, self._next_id - first

    def _record(self, left: int, right: int, made: int) -> None:
        self.merged.made.append((left, right, made))
        if made == self._next_id:
            token = self._joined(left, right)
            self.merged.token[made] = token
            self._id_of[token] = made
            self._next_id += 1

    def _joined(self, left: int, right: int) -> bytes:
        token = self.merged.token
        return token[left] + token[right].removeprefix(self._prefix)

    def _group_all_pairs(self) -> GroupedPairs:
        at = self.pretokens.find_pair_positions()
        if len(self.merged.token) <= 256 and self._rules.max_token_length is None:
            return group_byte_pairs(self.pretokens, at)
        keys = make_pair_key(self.pretokens.symbol[at], self.pretokens.symbol[at + 1])
        return group_positions(self.pretokens, *self._select_short_pairs(keys, at))

    def _select_short_pairs(
        self, keys: NDArray[np.int64], at: Positions
    ) -> tuple[NDArray[np.int64], Positions]:
        """Pairs that may become tokens, and their places."""
        if self._rules.max_token_length is None:
            return keys, at
        pairs, which = np.unique(keys, return_inverse=True)
        fits = np.fromiter(map(self._is_short_enough, pairs.tolist()), bool, len(pairs))[which]
        return keys[fits], at[fits]

    def _is_short_enough(self, key: int) -> bool:
        longest = self._rules.max_token_length
        return longest is None or len(self._joined(key >> ID_BITS, key & RIGHT)) <= longest

    def _adapt_width(self, merged: int, looked_at: int) -> None:
        """Look at more pairs next time if most could be merged, and at fewer if few could."""
        if 2 * merged >= looked_at:
            self._width = min(2 * self._width, _MAX_WIDTH)
        elif merged < looked_at // 8:
            self._width = max(self._width // 2, _MIN_WIDTH)


def _make_lexicographic_key(token: dict[int, bytes]) -> Callable[[int], str]:
    """Keys that rise as byte strings fall: mirrored bytes, and an end that is above them all."""
    keys: dict[int, str] = {}

    def key(id_: int) -> str:
        if id_ not in keys:
            keys[id_] = token[id_].translate(_MIRROR).decode("latin-1") + "\u0100"
        return keys[id_]

    return key


def _make_huggingface_key(token: dict[int, bytes]) -> Callable[[int], int]:
    """Ids as that library gives them: bytes in the order of their printable stand-ins, then merges."""
    if any(token.get(id_) != byte for id_, byte in BYTE_ALPHABET.tokens.items()):
        return lambda id_: id_
    position = {byte: i for i, byte in enumerate(BYTES)}
    return lambda id_: position.get(id_, id_)


TIE_KEYS: dict[TieBreak, Callable[[dict[int, bytes]], Callable[[int], Any]]] = {
    "lexicographic": _make_lexicographic_key,
    "huggingface": _make_huggingface_key,
}
