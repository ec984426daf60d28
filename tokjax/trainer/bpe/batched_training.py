"""Batched BPE training. Produces the same merges, in the same order, as merging one pair at a time.

The rule is: merge the most frequent pair, count again, repeat. A step merges as many pairs as are certain to
be the next ones in this order:

1. `pair_table` counts the pairs with the highest bounds and returns the most frequent ones.
2. They are ranked by count and tie-break.
3. `safe_batch` accepts pairs from the top of the ranking, as long as the order is certain.
4. `linked_symbols` merges all accepted pairs, at all their positions at once.
5. The pairs that these merges form are added to the table.

An example with low (5 times), lower (2), newest (6) and widest (3). Equal counts are decided by the bytes,
the greatest pair first::

    step   merges (count)             waits, for instance
    1      s·t (9)                    e·s: loses all occurrences to s·t
    2      e·st (9), o·w (7)          l·o: loses all occurrences to o·w
    3      l·ow (7), w·est (6)        n·e (6): not above the bound of pairs that w·est may form
    4      n·e (6)                    e·west
    5      ne·west (6), w·i (3)       i·d
    6      wi·d (3)                   d·est
    7      wid·est (3), low·e (2)     e·r
    8      lowe·r (2)

On a corpus of megabytes a step merges dozens of pairs. Once pairs are so rare that steps merge few of them,
`heap_merging` continues with one pair at a time.

The symbols are bytes for byte-level BPE. WordPiece is trained by the same code, with characters as symbols:
see `Alphabet`.

See docs/performance.md, section "Batched BPE training".
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
"""Limits of the number of pairs that a step counts."""
_MAX_BATCH = 512
"""Maximum number of pairs that a step merges."""
_MERGE_COST, _POSITION_COST = 100.0, 8.0
"""Estimated cost of sequential merging in microseconds: for each merge, and for each position of the pair."""
_STEP_COST, _PAIR_COST, _READ_COST = 1000.0, 4.0, 0.03
"""Estimated cost of a step in microseconds: fixed, for each counted pair, and for each position read."""
_SLOW_STEPS = 16
"""After this many steps in a row that cost more than sequential merging, training continues sequentially."""


class Alphabet(NamedTuple):
    """The tokens that training starts from.

    `BYTE_ALPHABET` is that of byte-level BPE. For WordPiece, the tokens are characters: `l` at the start of a
    word and `##o`, `##w` inside of it. With the prefix `##`, the pair of `l` and `##o` becomes `lo`, and the
    pair of `##o` and `##w` becomes `##ow`.

    Attributes:
        tokens: id to bytes. It may have tokens that do not occur as symbols. A merge that makes the bytes of
            any of these tokens makes no new token.
        prefix: bytes at the start of tokens inside of a word, dropped from the right token of a pair.
    """

    tokens: Mapping[int, bytes]
    prefix: bytes = b""


BYTE_ALPHABET = Alphabet({i: bytes([i]) for i in range(256)})
"""The alphabet of byte-level BPE: the ids from 0 to 255 are the bytes."""


class TrainingRules(NamedTuple):
    """Options that decide which pair is merged next.

    Attributes:
        first_id: id of the first new token. The ids of the alphabet are lower.
        min_frequency: minimum count of a pair that is merged.
        tie_break: which of several equally frequent pairs is merged first.
        max_token_length: maximum length of a merged token in bytes; `None` for no limit.
    """

    first_id: int
    min_frequency: int
    tie_break: TieBreak
    max_token_length: int | None


@dataclass
class MergeResult:
    """Result of training.

    Attributes:
        token: the bytes of each id.
        id_merges: the merges, in order: left id, right id, and the id that the pair became.
        num_tokens: number of tokens of the corpus after all merges.
    """

    token: dict[int, bytes]
    id_merges: list[tuple[int, int, int]] = field(default_factory=list)
    num_tokens: int = 0

    @property
    def merges(self) -> tuple[tuple[bytes, bytes], ...]:
        """The bytes of the merged pairs, in order."""
        return tuple((self.token[left], self.token[right]) for left, right, _ in self.id_merges)


def train_merges(
    symbols: Symbols,
    *,
    num_tokens: int,
    rules: TrainingRules,
    advance: AdvanceProgress,
    checkpoint: CheckpointFile | None = None,
    alphabet: Alphabet = BYTE_ALPHABET,
) -> MergeResult:
    """Merges pairs until there are `num_tokens` new tokens, or no pair is frequent enough.

    Args:
        symbols: the pre-tokens as ids of the alphabet, and their counts in the corpus.
        num_tokens: number of new tokens.
        rules: options that decide which pair is merged next.
        advance: function that is called with the number of new tokens after each step.
        checkpoint: file to resume from, if it exists, and to write to at intervals; `None` for no
            checkpoints.
        alphabet: the tokens that the ids of `symbols` refer to.

    Raises:
        InvalidArgumentError: the checkpoint is damaged, belongs to another training run, or has more tokens
            than requested.
        KeyboardInterrupt: training was interrupted. The message reports how many merges were saved.
    """
    previous = checkpoint.load() if checkpoint else None
    merger = _Merger(previous or Checkpoint((), symbols), rules, alphabet)
    done = merger.num_new
    if checkpoint and done > num_tokens:
        raise InvalidArgumentError(
            f"{checkpoint.path} has {done} new tokens, more than the {num_tokens} requested; pass another "
            "checkpoint, or a larger vocab_size"
        )
    if checkpoint and not previous:
        checkpoint.save(
            merger.make_checkpoint()
        )  # an unwritable path raises now, not after hours of training
    advance(done)
    try:
        while merger.num_new < num_tokens:
            new = merger.advance(num_tokens - merger.num_new)
            if new is None:
                break
            advance(new)
            if checkpoint and checkpoint.is_due():
                checkpoint.try_to_save(merger.make_checkpoint())
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_format_interruption(merger.num_new, num_tokens, checkpoint)) from None
    if checkpoint and merger.num_new > done:
        checkpoint.try_to_save(merger.make_checkpoint())
    merger.result.num_tokens = merger.pretokens.count_tokens()
    return merger.result


def _format_interruption(done: int, requested: int, checkpoint: CheckpointFile | None) -> str:
    message = f"training was interrupted after {done:,} of {requested:,} merges; "
    if checkpoint is None:
        return message + "nothing was saved"
    saved = f"{checkpoint.path} has {checkpoint.num_saved:,} of them"
    return f"{message}{saved}; to resume, train again with the same checkpoint"


class _Merger:
    """The state of training.

    Args:
        start: the merges to resume from, and the pre-tokens after them.
        rules: options that decide which pair is merged next.
        alphabet: the tokens that training starts from.

    Attributes:
        pretokens: the symbols of the corpus.
        result: the tokens and merges so far.
    """

    def __init__(self, start: Checkpoint, rules: TrainingRules, alphabet: Alphabet = BYTE_ALPHABET) -> None:
        self.pretokens = LinkedPretokens(start.symbols)
        self.result = MergeResult(dict(alphabet.tokens))
        self._rules = rules
        self._prefix = alphabet.prefix
        self._next_id = rules.first_id
        self._ids_by_token = {token: id_ for id_, token in self.result.token.items()}
        for merge in start.id_merges:
            self._record(*merge)
        self._tie_key = TIE_KEYS[rules.tie_break](self.result.token)
        self._width = _MIN_WIDTH
        self._slow_steps = 0
        self._pairs = PairTable(self.pretokens, self._group_all_pairs())
        self._batches = SafeBatches(self.pretokens)

    @property
    def num_new(self) -> int:
        """Number of new tokens so far."""
        return self._next_id - self._rules.first_id

    def make_checkpoint(self) -> Checkpoint:
        """Returns the state that training can resume from."""
        return Checkpoint(self.result.id_merges, self.pretokens.as_symbols())

    def advance(self, limit: int) -> int | None:
        """Merges one or more pairs.

        Args:
            limit: maximum number of new tokens.

        Returns:
            The number of new tokens, or `None` if no pair is frequent enough.
        """
        return self._step(limit) if self._slow_steps < _SLOW_STEPS else self._merge_one()

    def _step(self, limit: int) -> int | None:
        """Merges as many pairs as are certain to be next."""
        best = self._pairs.find_best(self._width)
        if best is None:
            return None
        ranked, rows = self._rank_pairs(best, min(limit, _MAX_BATCH))
        if not len(rows):
            return None
        context = self._batches.find_context(best.get_positions(rows))
        batch = self._batches.find(ranked, context)
        ids, num_new = self._assign_ids([ranked.keys[rank] for rank in batch])
        del batch[len(ids) :]  # a merge that makes an existing token ends the step
        # Pairs of the batch can share a symbol. It belongs to the pair that is merged first.
        positions = context.select_undisputed(len(rows), batch)
        positions = drop_overlaps(positions, np.array(ranked.is_double)[batch])
        self._pairs.drop(best.rows[rows[batch]])
        keys, new_positions = self.pretokens.merge(positions, np.array(ids, np.int32))
        has_existing = num_new < len(ids)
        self._pairs.add(*self._select_short_pairs(keys, new_positions), may_exist=has_existing)
        if has_existing:
            self._batches.reset_new_pair_bounds()
        self._adapt_width(len(ids), len(best.rows))
        # Estimated, not measured: the same corpus takes the same steps on every machine.
        sequential_cost = _MERGE_COST * len(ids) + _POSITION_COST * len(positions.at)
        step_cost = _STEP_COST + _PAIR_COST * len(best.rows) + _READ_COST * best.num_read
        self._slow_steps = 0 if sequential_cost > step_cost else self._slow_steps + 1
        return num_new

    def _merge_one(self) -> int | None:
        """Merges one pair.

        Returns:
            The number of new tokens, 0 or 1, or `None` if no pair is frequent enough.
        """
        pair = self._rare_pairs.pop_best(self._rules.min_frequency)
        if pair is None:
            return None
        ids, num_new = self._assign_ids([pair])
        self._rare_pairs.merge(pair, ids[0], may_exist=not num_new)
        return num_new

    @cached_property
    def _rare_pairs(self) -> RarePairs:
        return RarePairs(self.pretokens, self._pairs, self._tie_key, self._is_short_enough)

    def _rank_pairs(self, best: BestPairs, limit: int) -> tuple[RankedPairs, NDArray[np.int64]]:
        """Ranks the most frequent pairs by count and tie-break.

        Args:
            best: the most frequent pairs.
            limit: maximum number of pairs to rank.

        Returns:
            The ranked pairs, and the index of each in `best`.
        """
        chosen = np.flatnonzero(best.counts >= self._rules.min_frequency)
        if len(chosen) > limit:
            # Select before sorting, which is slow for many pairs in Python. Pairs as frequent as the last one
            # stay in, because the tie-break decides between them.
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
        """Assigns ids to the tokens that pairs become.

        Two merges that make the same bytes make one token. The second of these merges is the last of its
        step, because the pairs of its token exist already and become more frequent.

        Args:
            pairs: the keys of the pairs, in the order of the merges.

        Returns:
            The ids for the first pairs, up to such a merge; and how many of these ids are new.
        """
        first = self._next_id
        ids: list[int] = []
        for left, right in ((key >> ID_BITS, key & RIGHT) for key in pairs):
            id_ = self._ids_by_token.get(self._join(left, right), self._next_id)
            if first <= id_ < self._next_id:
                break  # the token was made in this step: this pair is merged in the next one
            ids.append(id_)
            is_new = id_ == self._next_id
            self._record(left, right, id_)
            if not is_new:
                break
        return ids, self._next_id - first

    def _record(self, left: int, right: int, merged: int) -> None:
        self.result.id_merges.append((left, right, merged))
        if merged == self._next_id:
            token = self._join(left, right)
            self.result.token[merged] = token
            self._ids_by_token[token] = merged
            self._next_id += 1

    def _join(self, left: int, right: int) -> bytes:
        """Returns the bytes of the token that a pair becomes."""
        token = self.result.token
        return token[left] + token[right].removeprefix(self._prefix)

    def _group_all_pairs(self) -> GroupedPairs:
        at = self.pretokens.find_pair_positions()
        # Up to 256 symbols fit in 8 bits, as the bytes at the start of training do.
        if len(self.result.token) <= 256 and self._rules.max_token_length is None:
            return group_byte_pairs(self.pretokens, at)
        keys = make_pair_key(self.pretokens.symbol[at], self.pretokens.symbol[at + 1])
        return group_positions(self.pretokens, *self._select_short_pairs(keys, at))

    def _select_short_pairs(
        self, keys: NDArray[np.int64], at: Positions
    ) -> tuple[NDArray[np.int64], Positions]:
        """Selects the pairs that `max_token_length` allows, and their positions."""
        if self._rules.max_token_length is None:
            return keys, at
        # The length is computed in Python, so once for each different pair and not for each position.
        pairs, which = np.unique(keys, return_inverse=True)
        fits = np.fromiter(map(self._is_short_enough, pairs.tolist()), bool, len(pairs))[which]
        return keys[fits], at[fits]

    def _is_short_enough(self, key: int) -> bool:
        maximum = self._rules.max_token_length
        return maximum is None or len(self._join(key >> ID_BITS, key & RIGHT)) <= maximum

    def _adapt_width(self, num_merged: int, num_counted: int) -> None:
        """Counts more pairs in the next step if most were merged, and fewer if few were."""
        if 2 * num_merged >= num_counted:
            self._width = min(2 * self._width, _MAX_WIDTH)
        elif num_merged < num_counted // 8:
            self._width = max(self._width // 2, _MIN_WIDTH)


def _make_lexicographic_key(token: dict[int, bytes]) -> Callable[[int], str]:
    """Returns a function that returns sort keys which reverse the order of byte strings.

    The bytes are complemented, and end with a character above them all, so that a prefix comes after the
    longer string.
    """
    keys: dict[int, str] = {}

    def key(id_: int) -> str:
        if id_ not in keys:
            keys[id_] = token[id_].translate(_MIRROR).decode("latin-1") + "\u0100"
        return keys[id_]

    return key


def _make_huggingface_key(token: dict[int, bytes]) -> Callable[[int], int]:
    """Returns a function that returns the ids of Hugging Face's trainer.

    There, bytes are in the order of the characters of `bytes_to_unicode`, followed by the merges. Alphabets
    other than the bytes have the same ids.
    """
    if any(token.get(id_) != byte for id_, byte in BYTE_ALPHABET.tokens.items()):
        return lambda id_: id_
    position = {byte: i for i, byte in enumerate(BYTES)}
    return lambda id_: position.get(id_, id_)


TIE_KEYS: dict[TieBreak, Callable[[dict[int, bytes]], Callable[[int], Any]]] = {
    "lexicographic": _make_lexicographic_key,
    "huggingface": _make_huggingface_key,
}
