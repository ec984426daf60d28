"""Merging by likelihood: always the two symbols that stand together more often than chance would have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokjax.core.ragged import make_row_splits
from tokjax.trainer.likely_pairs import LikelyPairs, key_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax._util.progress import AdvanceProgress

    Places = NDArray[np.int32]

_BETWEEN_PRETOKENS, _SWALLOWED = -1, -2


def merge_likely(
    words: Mapping[str, int],
    alphabet: Sequence[str],
    *,
    num_tokens: int,
    prefix: str,
    min_frequency: int,
    advance: AdvanceProgress,
    format_dropped_note: Collection[str] = (),
) -> list[str]:
    """The tokens that merging makes, in order.

    Args:
        words: how often each word stands.
        alphabet: the first character of each word, and each of its others behind the prefix.
        num_tokens: how many to make; fewer if no pair is left that is frequent enough.
        prefix: what tokens begin with that go on in a word.
        min_frequency: rarer pairs are not merged.
        advance: is told of each token.
        format_dropped_note: forms that are no tokens, though others may be made of them: names of special tokens.
    """
    merging = _Merging(words, alphabet, num_tokens + len(format_dropped_note), prefix, min_frequency)
    made: list[str] = []
    try:
        while len(made) < num_tokens:
            token = merging.step()
            if token is None:
                break
            if token and token not in format_dropped_note:
                made.append(token)
                advance(1)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"training was interrupted after {len(made):,} of {num_tokens:,} tokens; nothing was saved"
        ) from None
    return made


class _Merging:
    """All different words, laid end to end as symbols that are linked to their neighbours."""

    def __init__(
        self,
        words: Mapping[str, int],
        alphabet: Sequence[str],
        num_tokens: int,
        prefix: str,
        min_frequency: int,
    ) -> None:
        self._prefix = prefix
        self._forms = list(alphabet)
        self._id_of = {form: i for i, form in enumerate(alphabet)}
        self._symbol = self._symbols_of(words)
        size = len(self._symbol)
        self._after = np.arange(1, size + 1, dtype=np.int32)
        self._before = np.arange(-1, size - 1, dtype=np.int32)
        self._after[-1] = self._before[0] = size - 1  # a place between words
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        of_words = np.fromiter(words.values(), np.int64, len(words))
        self._weight = np.append(np.repeat(of_words, lengths + 1), 0)
        self._is_swallowed = np.zeros(size, bool)
        held = self._symbol >= 0
        room = len(alphabet) + min(num_tokens, size)  # each merge leaves one symbol less
        self._counts = np.bincount(self._symbol[held], self._weight[held], room).astype(np.int64)
        self._pairs = LikelyPairs(self._forms, self._counts, min_frequency)
        self._add(np.flatnonzero(held[:-1] & held[1:]).astype(np.int32))
        self._pairs.rescore_all()

    def _symbols_of(self, words: Mapping[str, int]) -> NDArray[np.int32]:
        """Of all words end to end, a gap behind each and one more at the end."""
        splits = make_row_splits(len(word) + 1 for word in words)
        codes = np.frombuffer("\n".join([*words, "\n"]).encode("utf-32-le"), "<u4")
        first = np.zeros(len(codes), bool)
        first[splits[:-1]] = True
        different, which = np.unique(codes, return_inverse=True)
        characters = list(map(chr, different.tolist()))
        begins = np.array([self._id_of.get(c, -1) for c in characters], np.int32)
        goes_on = np.array([self._id_of.get(self._prefix + c, -1) for c in characters], np.int32)
        symbols = np.where(first, begins[which], goes_on[which]).astype(np.int32)
        symbols[splits[1:] - 1] = symbols[-1] = _BETWEEN_PRETOKENS
        return symbols

    def step(self) -> str | None:
        """Merge one pair: the token that it makes, empty if it was there; `None` if no pair is left."""
        row = self._pairs.best()
        if row is None:
            return None
        left, right = self._pairs.pair(row)
        form = self._forms[left] + self._forms[right].removeprefix(self._prefix)
        new = self._id_of.setdefault(form, len(self._forms))
        is_new = new == len(self._forms)
        if is_new:
            self._forms.append(form)
        self._merge(self._taken_places(row, left, right), new)
        self._pairs.rescore(left, right, new)
        return form if is_new else ""

    def _taken_places(self, row: int, left: int, right: int) -> Places:
        """Where a pair stands that can be merged: of those that overlap, every other one."""
        at: Places = self._pairs.take_places(row)
        at = at[(self._symbol[at] == left) & (self._symbol[self._after[at]] == right)]
        if left != right or len(at) < 2:
            return at
        at = np.sort(at)
        goes_on = np.append(False, self._after[at[:-1]] == at[1:])
        start_of_run = np.maximum.accumulate(np.where(goes_on, 0, np.arange(len(at))))
        every_other: Places = at[(np.arange(len(at)) - start_of_run) % 2 == 0]
        return every_other

    def _merge(self, at: Places, new: int) -> None:
        """Merge the symbols at some places, no two of which overlap, with those behind them."""
        second = self._after[at]
        left, right = self._symbol[at], self._symbol[second]
        self._is_swallowed[second] = True
        follows_another = self._is_swallowed[self._before[at]]
        self._is_swallowed[second] = False
        has_before = (self._symbol[self._before[at]] >= 0) & ~follows_another
        has_after = self._symbol[self._after[second]] >= 0
        gone = np.concatenate([self._before[at][has_before], at, second[has_after]])
        self._pairs.remove(self._keys(gone), self._weight[gone])
        weight = int(self._weight[at].sum())
        for symbol, change in ((left[0], -weight), (right[0], -weight), (new, weight)):
            self._counts[symbol] += change
        self._symbol[at], self._symbol[second] = new, _SWALLOWED
        following = self._after[second]
        self._after[at], self._before[following] = following, at
        self._add(np.concatenate([self._before[at][has_before], at[has_after]]))

    def _add(self, at: Places) -> None:
        self._pairs.add(self._keys(at), self._weight[at], at)

    def _keys(self, at: Places) -> NDArray[np.int64]:
        return key_of(self._symbol[at], self._symbol[self._after[at]])
