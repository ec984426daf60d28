"""Batched BPE training. Produces the same merges, in the same order, as merging one pair at a time.

The rule is: merge the most frequent pair, count again, repeat. A step does this down to a minimum count, and
reads and writes the corpus only once:

1. `pair_table` counts the pairs with the highest bounds, and returns all that have at least a minimum count.
2. `frequent_segments` finds the parts of pre-tokens that consist of these pairs, each different one once.
3. `segment_merging` merges these few segments, one pair at a time, until no pair has the minimum count.
4. `linked_symbols` merges the same pairs in the corpus, at all positions at once.
5. The pairs that these merges form are added to the table.

An example with low (5 times), lower (2), newest (6) and widest (3), and about three pairs per step. Equal
counts are decided by the bytes, the greatest pair first::

    step  minimum  distinct segments           merges (count)
    1     8        w e s t (6), e s t (3)      s·t (9), e·st (9)
    2     6        l o w (7), n e w est (6)    o·w (7), l·ow (7), w·est (6), n·e (6), ne·west (6)
    3     3        w i d est (3)               w·i (3), wi·d (3), wid·est (3)
    4     2        low e r (2)                 low·e (2), lowe·r (2)

On a corpus of megabytes, a step merges hundreds of pairs.

The symbols are bytes for byte-level BPE. WordPiece is trained by the same code, with characters as symbols:
see `Alphabet`.

See docs/performance.md, section "Batched BPE training".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tokjax.core.vocabulary import ID_BITS
from tokjax.pretokenize.bytes_to_unicode import BYTES
from tokjax.trainer.bpe.frequent_segments import (
    FrequentSegments,
    find_frequent_segments,
    find_merges_of_pair,
)
from tokjax.trainer.bpe.linked_symbols import RIGHT, FormedPairs, LinkedPretokens, make_pair_key
from tokjax.trainer.bpe.pair_table import GroupedPairs, PairTable, group_pairs
from tokjax.trainer.bpe.segment_merging import SegmentMerger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokjax._util.display import AdvanceProgress
    from tokjax.trainer.bpe.linked_symbols import Merges, Symbols
    from tokjax.trainer.bpe.pair_table import FrequentPairs

TieBreak: TypeAlias = Literal["lexicographic", "huggingface"]
_MIRROR = bytes(255 - i for i in range(256))
_MIN_WIDTH = 16
"""Number of frequent pairs of the first step."""
_WIDTH_FACTOR = 3
"""A step starts with at most a third as many frequent pairs as there are merges so far."""
_MAX_SYMBOLS_PER_PAIR = 64
"""Maximum number of symbols of the distinct segments, for each frequent pair. It bounds the time spent
in Python: fewer pairs have shorter segments."""
_MIN_MAX_SYMBOLS = 1 << 14
"""The maximum number of symbols, if there are few pairs."""


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
    """

    first_id: int
    min_frequency: int
    tie_break: TieBreak


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
    alphabet: Alphabet = BYTE_ALPHABET,
) -> MergeResult:
    """Merges pairs until there are `num_tokens` new tokens, or no pair is frequent enough.

    Args:
        symbols: the pre-tokens as ids of the alphabet, and their counts in the corpus.
        num_tokens: number of new tokens.
        rules: options that decide which pair is merged next.
        advance: function that is called with the number of new tokens after each step.
        alphabet: the tokens that the ids of `symbols` refer to.

    Raises:
        KeyboardInterrupt: training was interrupted. The message reports the number of merges.
    """
    merger = _Merger(symbols, rules, alphabet)
    try:
        while merger.num_new < num_tokens:
            new = merger.advance(num_tokens - merger.num_new)
            if new is None:
                break
            advance(new)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"training was interrupted after {merger.num_new:,} of {num_tokens:,} merges; nothing was saved; "
            "with counts that save_pretoken_counts saved, the corpus is not read again"
        ) from None
    merger.result.num_tokens = merger.pretokens.count_tokens()
    return merger.result


class _Merger:
    """The state of training.

    Args:
        symbols: the pre-tokens as ids of the alphabet.
        rules: options that decide which pair is merged next.
        alphabet: the tokens that training starts from.

    Attributes:
        pretokens: the symbols of the corpus.
        result: the tokens and merges so far.
    """

    def __init__(self, symbols: Symbols, rules: TrainingRules, alphabet: Alphabet = BYTE_ALPHABET) -> None:
        self.pretokens = LinkedPretokens(symbols)
        self.result = MergeResult(dict(alphabet.tokens))
        self._rules = rules
        self._prefix = alphabet.prefix
        self._next_id = rules.first_id
        self._ids_by_token = {token: id_ for id_, token in self.result.token.items()}
        self._tie_keys = TIE_KEYS[rules.tie_break](self.result.token)
        self._width = _MIN_WIDTH
        self._pairs = PairTable(self.pretokens, self._group_all_pairs())

    @property
    def num_new(self) -> int:
        """Number of new tokens so far."""
        return self._next_id - self._rules.first_id

    def advance(self, limit: int) -> int | None:
        """Merges one or more pairs.

        Args:
            limit: maximum number of new tokens.

        Returns:
            The number of new tokens, or `None` if no pair is frequent enough.
        """
        pairs = self._pairs.find_frequent(self._width)
        if pairs is None:
            return None
        pairs = pairs.select(max(pairs.minimum, self._rules.min_frequency))
        if not len(pairs.keys):
            return None
        segments = find_frequent_segments(self.pretokens, pairs.positions)
        while _are_too_long(segments):
            fewer = pairs.select_half()
            if fewer is None:
                return self._merge_one(pairs)
            pairs = fewer
            self._width = len(pairs.keys)
            segments = find_frequent_segments(self.pretokens, pairs.positions)
        self._width = min(2 * self._width, max(self.num_new // _WIDTH_FACTOR, _MIN_WIDTH))
        return self._merge_in_order(pairs, segments, limit)

    def _merge_in_order(self, pairs: FrequentPairs, segments: FrequentSegments, limit: int) -> int:
        """Merges pairs as long as they are frequent. Returns the number of new tokens."""
        keys, counts = pairs.keys.tolist(), pairs.counts.tolist()
        merger = SegmentMerger(segments, keys, counts, pairs.minimum, self._tie_keys)
        first_new, stop = self._next_id, self._next_id + limit
        has_existing = False

        def record(pair: int) -> tuple[int, bool]:
            nonlocal has_existing
            id_, has_existing = self._record(pair >> ID_BITS, pair & RIGHT)
            return id_, has_existing or self._next_id == stop

        merger.merge_frequent(record)
        ids = np.fromiter(map(merger.merged.get, keys, repeat(-1)), np.int32, len(keys))
        bounds = np.fromiter(map(merger.rare.get, keys, counts), np.int64, len(keys))
        bounds[ids >= 0] = 0
        self._pairs.set_bounds(pairs.rows, bounds)
        merges = segments.find_merges(ids, merger.get_ids())
        self._apply(merges, None if has_existing else first_new)
        return self._next_id - first_new

    def _merge_one(self, pairs: FrequentPairs) -> int:
        """Merges the first of several equally frequent pairs, without a loop over its positions."""
        _, _, key, index = min(
            (self._tie_keys[key >> ID_BITS], self._tie_keys[key & RIGHT], key, index)
            for index, key in enumerate(pairs.keys.tolist())
        )
        stop = int(pairs.positions.lengths[: index + 1].sum())
        occurrences = slice(stop - pairs.positions.lengths[index], stop)
        at, after = pairs.positions.at[occurrences], pairs.positions.after[occurrences]
        id_, has_existing = self._record(key >> ID_BITS, key & RIGHT)
        self._pairs.set_bounds(pairs.rows[index : index + 1], np.zeros(1, np.int64))
        merges = find_merges_of_pair(at, after, id_)
        self._apply(merges, None if has_existing else id_)
        return not has_existing

    def _apply(self, merges: Merges, first_new: int | None) -> None:
        """Replaces symbols, and adds the new pairs to the table.

        Args:
            merges: the merges.
            first_new: the lowest id of the new symbols; `None` if one of them existed already.
        """
        self._pairs.add(self.pretokens.merge(merges, first_new), may_exist=first_new is None)

    def _record(self, left: int, right: int) -> tuple[int, bool]:
        """Records a merge.

        Two merges that make the same bytes make one token. The second of these merges is the last of its
        step, because the pairs of its token exist already and become more frequent.

        Returns:
            The id that the pair becomes, and whether the token existed already.
        """
        merged = self._join(left, right)
        id_ = self._ids_by_token.setdefault(merged, self._next_id)
        self.result.id_merges.append((left, right, id_))
        if id_ != self._next_id:
            return id_, True
        self.result.token[id_] = merged
        self._next_id += 1
        return id_, False

    def _join(self, left: int, right: int) -> bytes:
        """Returns the bytes of the token that a pair becomes."""
        token = self.result.token
        return token[left] + token[right].removeprefix(self._prefix)

    def _group_all_pairs(self) -> GroupedPairs:
        at = self.pretokens.find_pair_positions()
        keys = make_pair_key(self.pretokens.symbol[at], self.pretokens.symbol[at + 1])
        return group_pairs(FormedPairs(keys, at, self.pretokens.get_weights(at)))


def _are_too_long(segments: FrequentSegments) -> bool:
    """Returns whether the distinct segments are too long to be merged by a loop over symbols."""
    num_pairs = len(segments.alone_counts)
    return len(segments.distinct.ids) > max(_MAX_SYMBOLS_PER_PAIR * num_pairs, _MIN_MAX_SYMBOLS)


class _LexicographicKeys(dict[int, str]):
    """Sort keys of ids which reverse the order of byte strings, computed when they are first used.

    The bytes are complemented, and end with a character above them all, so that a prefix comes after the
    longer string.
    """

    def __init__(self, token: Mapping[int, bytes]) -> None:
        super().__init__()
        self._token = token

    def __missing__(self, id_: int) -> str:
        key = self._token[id_].translate(_MIRROR).decode("latin-1") + "\u0100"
        self[id_] = key
        return key


class _HuggingFaceKeys(dict[int, int]):
    """The ids of Hugging Face's trainer.

    There, bytes are in the order of the characters of `bytes_to_unicode`, followed by the merges. Alphabets
    other than the bytes have the same ids.
    """

    def __init__(self, token: Mapping[int, bytes]) -> None:
        is_byte_level = all(token.get(id_) == byte for id_, byte in BYTE_ALPHABET.tokens.items())
        super().__init__({byte: i for i, byte in enumerate(BYTES)} if is_byte_level else {})

    def __missing__(self, id_: int) -> int:
        return id_


TIE_KEYS: dict[TieBreak, Callable[[Mapping[int, bytes]], Mapping[int, Any]]] = {
    "lexicographic": _LexicographicKeys,
    "huggingface": _HuggingFaceKeys,
}
"""For each tie-break, a function from the bytes of each id to the sort keys of the ids. Of equally frequent
pairs, the one with the lower keys is merged first."""
