"""Estimates the mixture of the corpora that a byte-level BPE tokenizer was trained on, from its merges.

Training merges the most frequent pair of the whole corpus. So each merge is evidence: at its step, its pair
was at least as frequent as every other pair, in the mixture. An example with two sources, and the counts of
pairs for each 1,000 bytes::

    pair      in English   in German     in a mixture with the share g of German
    t·h            25           3        25 - 22 g
    e·n            11          31        11 + 20 g
    if the first merge is e·n:           11 + 20 g >= 25 - 22 g, so g >= 1/3

Each merge adds such inequalities, which are linear in the shares. A linear program finds the shares that
violate them least. Each merge has an allowance, which is added to its inequalities, and so has each pair that
was not merged: a pair that the samples have too often, such as two spaces, violates the inequalities of all
merges, and has to be paid for only once. The sum of all allowances is minimized.

Samples that are not the training texts have other frequencies, and so have sources that resemble each other
nearly the same ones. So the range of each share is also computed: all its values with which the sum of the
allowances is at most a tenth larger than the smallest one.

Of the millions of inequalities, few matter. So they are added in rounds: those that the shares of the
previous round violate most.

`SourcePairCounts` has the counts of pairs in each source, before and after each merge, such as that of l·o::

    pair      English  German      after the merge
    l·o          7        3        0     0
    o·w          5        0        0     0
    lo·w                           5     0

The method is that of Hayase, Liu, Choi, Oh and Smith, "Data Mixture Inference: What do BPE Tokenizers Reveal
about their Training Data?", 2024.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.display import short_repr, show_progress_bar
from tokjax.bpe.sequential_merging import merge_by_scanning
from tokjax.core import protocol
from tokjax.core.vocabulary import ID_BITS
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError
from tokjax.formats.huggingface.library import HuggingFaceTokenizer
from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.pretokenize.patterns import split_alike
from tokjax.trainer.bpe.frequent_segments import find_merges_of_pair
from tokjax.trainer.bpe.linked_symbols import (
    REMOVED,
    RIGHT,
    LinkedPretokens,
    Symbols,
    make_pair_key,
    make_symbols,
)
from tokjax.trainer.pretoken_counts import check_counts_by_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax._util.display import AdvanceProgress
    from tokjax.trainer.bpe.linked_symbols import Positions
    from tokjax.trainer.pretoken_counts import PretokenCounts


_MAX_ROUNDS = 20
_MAX_PAIRS = 8
"""Number of pairs that are compared with each merge in a round. More pairs need fewer rounds."""
_BYTES = 1e6
"""Counts of pairs are per million bytes of text: numbers of about 1 to 20,000, which suit the solver."""
_TOLERANCE = 1e-6
"""Relative excess over the merged pair that is a rounding error."""
_RANGE_SLACK = 0.1
"""Relative increase of the sum of allowances in the range of a share. In experiments with other texts of the
same kinds, this range contained the true share."""

Merge: TypeAlias = tuple[bytes, bytes]


@short_repr
class MixtureEstimate(NamedTuple):
    """Estimated mixture of the training data of a tokenizer.

    Attributes:
        shares: name of each source to its estimated share of the bytes of the training data, 0 to 1. The sum
            is 1.
        num_merges: number of merges that were used: those whose pair occurs in a source.
        shortfall: sum of the allowances of the linear program for each of these merges: numbers of
            occurrences of pairs, per million bytes of the estimated mixture, that the merges do not explain.
            It is 0 if the shares explain all merges, and high if the sources differ from the training data.
        ranges: name of each source to the smallest and the largest share that explains the merges nearly as
            well: with a shortfall that is at most a tenth higher. Trust an estimate no further. The range
            is narrow if the sources are the training texts, and wide if they are small, differ from these,
            or resemble each other.
    """

    shares: Mapping[str, float]
    num_merges: int
    shortfall: float
    ranges: Mapping[str, tuple[float, float]]


def estimate_mixture(
    tokenizer: ByteLevelBPE,
    sources: Mapping[str, PretokenCounts],
    *,
    max_merges: int = 1000,
    progress: bool = True,
) -> MixtureEstimate:
    """Estimates the shares of sources in the data that a byte-level BPE tokenizer was trained on.

    The sources are samples of the candidates, such as languages or kinds of text. The estimate is exact if
    they are the training texts, and typically off by 1 to 7 percentage points if they are other texts of the
    same kinds; `ranges` shows how far to trust it.

    Args:
        tokenizer: byte-level BPE tokenizer, trained or loaded.
        sources: name to the pre-token counts of a source, counted with the pattern of the tokenizer:
            `count_pretokens(..., pattern=tokenizer.pattern)`. Texts must be normalized as the tokenizer does,
            which `count_pretokens` does for the patterns of published tokenizers.
        max_merges: number of merges to use, from the first one on. More merges give better estimates, and
            take more time: one or two minutes for 1,000 merges and 10 MB of text.
        progress: whether to show progress bars on standard error.

    Returns:
        The estimated shares, and how well they explain the merges.

    Raises:
        UnsupportedTokenizerError: the tokenizer is not a byte-level BPE.
        InvalidArgumentError: there are no sources, a source has no text, was counted with another pattern or
            has pre-tokens that the normalizer changes, or the tokenizer has no merges, or none whose pair
            occurs in a source.

    >>> from tokjax.trainer import count_pretokens, mix_counts, train_bpe
    >>> sources = {
    ...     "en": count_pretokens(["the then there other than that with"], progress=False),
    ...     "de": count_pretokens(["eine einen meinen deinen seinen reimen"], progress=False),
    ... }
    >>> mixed = mix_counts(sources, {"en": 1, "de": 3})
    >>> trained = train_bpe(mixed, vocab_size=290, progress=False)
    >>> estimate = estimate_mixture(trained.tokenizer, sources, progress=False)
    >>> estimate.shares["de"] > 0.6, estimate.shortfall
    (True, 0.0)
    """
    maximum = check_int("max_merges", max_merges, minimum=1)
    if not isinstance(tokenizer, ByteLevelBPE):
        raise UnsupportedTokenizerError(
            f"estimate_mixture needs a byte-level BPE tokenizer, not a {type(tokenizer).__name__}"
            f"{_explain_normalizer(tokenizer)}{protocol.suggest_tokenizer(tokenizer)}"
        )
    _check_sources(tokenizer, sources)
    merges = list(islice(iter_first_merges(tokenizer), maximum))
    if not merges:
        raise InvalidArgumentError(
            "the tokenizer has no merges, which are the evidence for its training data"
        )
    program = _Program(len(sources), len(merges))
    for i in range(_MAX_ROUNDS):
        # The first round also adds the most frequent pairs of each source.
        mixtures = np.vstack([program.shares, *([np.eye(len(sources))] if i == 0 else [])])
        with show_progress_bar(f"round {i + 1}", len(merges), unit="merges", enabled=progress) as advance:
            if not _add_inequalities(program, list(sources.values()), merges, mixtures, advance):
                break
        program.solve()
    shares = dict(zip(sources, program.shares.tolist(), strict=True))
    num_merges = len(program.used_steps)
    if not num_merges:
        raise InvalidArgumentError(
            f"the first {len(merges)} merges are no evidence for the shares, since the pair of none of them "
            "occurs in a source; pass larger samples, other sources, or texts that are normalized as the "
            "tokenizer normalizes them"
        )
    ranges = dict(zip(sources, program.find_ranges(), strict=True))
    return MixtureEstimate(shares, num_merges, float(program.allowances.sum()) / num_merges, ranges)


def iter_first_merges(tokenizer: ByteLevelBPE) -> Iterator[Merge]:
    """Returns an iterator over the merges of a tokenizer, in the order of training.

    A tokenizer with ranks has no list of merges. There, the merge of a token is the pair of tokens that its
    bytes become with all tokens of lower rank. Tokens that do not become a pair are left out.
    """
    return iter(tokenizer.merges) if tokenizer.merges is not None else _iter_merges_of_ranks(tokenizer)


def _iter_merges_of_ranks(tokenizer: ByteLevelBPE) -> Iterator[Merge]:
    ranks = tokenizer.vocabulary.mergeable
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):

        def get_lower_rank(left: bytes, right: bytes, limit: int = rank) -> int | None:
            found = ranks.get(left + right)
            return found if found is not None and found < limit else None

        if len(token) > 1:
            parts = merge_by_scanning(token, get_lower_rank)
            if len(parts) == 2:
                yield parts[0], parts[1]


def _explain_normalizer(tokenizer: Any) -> str:
    """Returns advice for a tokenizer that is not a `ByteLevelBPE` because of its normalizer, else `""`."""
    if not isinstance(tokenizer, HuggingFaceTokenizer) or tokenizer.normalization is None:
        return ""
    return (
        f". It has the normalizer {tokenizer.normalization}: if it is a byte-level BPE otherwise, load a "
        "copy of its tokenizer.json without the normalizer, and pass counts of texts that a function "
        "normalizes, count_pretokens(..., normalize=FUNCTION)"
    )


def _check_sources(tokenizer: ByteLevelBPE, sources: Mapping[str, PretokenCounts]) -> None:
    check_counts_by_source(sources)
    for name, counts in sources.items():
        if not split_alike(counts.pattern, tokenizer.pattern):
            raise InvalidArgumentError(
                f"source {name!r} was counted with pattern={counts.pattern!r}, and the tokenizer has "
                f"{tokenizer.pattern!r}; count with pattern={tokenizer.pattern!r}"
            )
        changed = _find_changed_pretoken(tokenizer, counts)
        if changed is not None:
            raise InvalidArgumentError(
                f"source {name!r} has the pre-token {changed!r}, which the tokenizer normalizes "
                f"({tokenizer.normalizer}); count with normalize=partial(tokjax.normalize, tokenizer)"
            )


def _find_changed_pretoken(tokenizer: ByteLevelBPE, counts: PretokenCounts) -> bytes | None:
    """Returns a pre-token that the normalizer changes: a sign that the texts were not normalized."""
    if tokenizer.normalizer is None:
        return None
    pretokens = (pretoken for pretoken, _ in counts.items() if not pretoken.isascii())
    return next((each for each in pretokens if protocol.normalize(tokenizer, each) != each), None)


class _Program:
    """The linear program: the shares, the allowances, and the inequalities so far.

    Args:
        num_sources: number of sources.
        num_merges: number of merges.

    Attributes:
        shares: the shares of the sources, equal at first, `float64`, shape `(num_sources,)`.
        allowances: the allowances of the merges and then of other pairs, 0 at first, `float64`, shape
            `(num_merges + num_pairs,)`.
        used_steps: the indices of the merges whose pair occurs in a source.
    """

    def __init__(self, num_sources: int, num_merges: int) -> None:
        self.shares = np.full(num_sources, 1 / num_sources)
        self.allowances = np.zeros(num_merges)
        self.used_steps: set[int] = set()
        self._steps: list[int] = []
        self._num_merges = num_merges
        self._pairs: dict[int, int] = {}
        self._pair_indices: list[int] = []
        self._differences: list[NDArray[np.float64]] = []

    @property
    def pair_allowances(self) -> dict[int, float]:
        """Positive allowances of pairs, by key."""
        values = self.allowances[self._num_merges :].tolist()
        # Pairs that were added after the last solution have no allowance yet.
        return {pair: value for pair, value in zip(self._pairs, values, strict=False) if value > 0}

    def add(self, step: int, pair: int, difference: NDArray[np.float64]) -> None:
        """Adds the inequality `difference @ shares + (allowance of step) + (allowance of pair) >= 0`.

        Args:
            step: index of the merge.
            pair: key of another pair.
            difference: count of the merged pair minus that of the other pair, for each source, shape
                `(num_sources,)`.
        """
        self._steps.append(step)
        self._pair_indices.append(self._pairs.setdefault(pair, len(self._pairs)))
        self._differences.append(difference)

    def solve(self) -> None:
        """Finds the shares with the smallest sum of allowances."""
        costs = np.ones(len(self.shares) + self._num_merges + len(self._pairs))
        costs[: len(self.shares)] = 0
        # Allowances can take any value, so the program always has a solution.
        self.shares, self.allowances = np.split(self._minimize(costs), [len(self.shares)])

    def find_ranges(self) -> list[tuple[float, float]]:
        """Returns the smallest and the largest value of each share with nearly the same sum of allowances."""
        if not self._steps:
            return [(1.0 if len(self.shares) == 1 else 0.0, 1.0)] * len(self.shares)
        limit = float(self.allowances.sum()) * (1 + _RANGE_SLACK) + _TOLERANCE * _BYTES
        ranges = []
        for source in range(len(self.shares)):
            costs = np.zeros(len(self.shares) + self._num_merges + len(self._pairs))
            costs[source] = 1
            first, last = (self._minimize(sign * costs, limit)[source] for sign in (1, -1))
            ranges.append((float(first), float(last)))
        return ranges

    def _minimize(self, costs: NDArray[np.float64], limit: float | None = None) -> NDArray[np.float64]:
        """Returns the shares and allowances, concatenated, with the smallest costs.

        Args:
            costs: cost of each share and allowance, shape `(num_sources + num_merges + num_pairs,)`.
            limit: maximum of the sum of all allowances; `None` for none.
        """
        from scipy import optimize, sparse  # noqa: PLC0415 (slow to import)

        num_sources, num_rows = len(self.shares), len(self._steps)
        num_allowances = self._num_merges + len(self._pairs)
        columns = np.concatenate([self._steps, self._num_merges + np.array(self._pair_indices)])
        entries = (np.ones(2 * num_rows), (np.tile(np.arange(num_rows), 2), columns))
        of_allowances = sparse.csr_matrix(entries, (num_rows, num_allowances))
        of_shares = sparse.csr_matrix(np.array(self._differences))
        is_share = np.arange(num_sources + num_allowances) < num_sources
        inequalities, bounds = -sparse.hstack([of_shares, of_allowances]), np.zeros(num_rows)
        if limit is not None:
            sum_of_allowances = sparse.csr_matrix((~is_share).astype(np.float64)[np.newaxis])
            inequalities = sparse.vstack([inequalities, sum_of_allowances])
            bounds = np.append(bounds, limit)
        result = optimize.linprog(
            costs,
            A_ub=inequalities.tocsc(),
            b_ub=bounds,
            A_eq=sparse.csr_matrix(is_share.astype(np.float64)[np.newaxis]),
            b_eq=[1.0],
            method="highs",
        )
        minimum: NDArray[np.float64] = result.x
        return minimum


def _add_inequalities(
    program: _Program,
    sources: Sequence[PretokenCounts],
    merges: Sequence[Merge],
    mixtures: NDArray[np.float64],
    advance: AdvanceProgress,
) -> int:
    """Repeats the merges, and adds an inequality wherever the current solution violates one.

    Args:
        program: the program. Its solution is compared with the counts at each step.
        sources: pre-tokens of the sources.
        merges: the merges.
        mixtures: shares of several mixtures, those of the current solution first. At each step, some of the
            most frequent pairs of that one, and the most frequent pair of each of the others, are compared
            with the merged pair. Shape `(num_mixtures, num_sources)`.
        advance: function that is called with 1 after each merge.

    Returns:
        The number of new inequalities.
    """
    table = SourcePairCounts(sources)
    scale = _BYTES / np.array([counts.nbytes for counts in sources])
    num_added = 0
    allowances = program.pair_allowances
    symbols = {bytes([i]): i for i in range(256)}
    for step, (left, right) in enumerate(merges):
        advance(1)
        if left not in symbols or right not in symbols:
            continue  # the token was made by a merge that is not in the list
        pair = symbols[left] << ID_BITS | symbols[right]
        counts = table.get_counts()
        row = table.rows.get(pair)
        if row is not None and counts[row].any():
            program.used_steps.add(step)
            keys = table.get_keys()
            excess = (counts - counts[row]) @ (mixtures * scale).T
            for other, allowance in allowances.items():
                if other in table.rows:
                    excess[table.rows[other], 0] -= allowance
            tolerance = _TOLERANCE * counts[row] @ (program.shares * scale)
            minimum = program.allowances[step] + tolerance
            candidates = np.argpartition(excess[:, 0], -min(_MAX_PAIRS, len(keys)))[-_MAX_PAIRS:]
            added = set(candidates[excess[candidates, 0] > minimum].tolist())
            of_others = np.argmax(excess[:, 1:], axis=0)
            added.update(of_others[excess[of_others, np.arange(1, len(mixtures))] > 0].tolist())
            for other in sorted(added):
                program.add(step, int(keys[other]), (counts[row] - counts[other]) * scale)
            num_added += len(added)
        table.merge(pair, symbols.setdefault(left + right, 256 + step))
    return num_added


class SourcePairCounts:
    """The count of each pair of adjacent symbols in each of several sources, kept up to date by merges.

    The pre-tokens of all sources are linked in one array, as in `linked_symbols`. A merge changes only the
    counts of the pairs at and beside its positions.

    Args:
        sources: pre-tokens of the sources.

    Attributes:
        rows: the row of each pair in the counts, by its key (`left << ID_BITS | right`).
    """

    def __init__(self, sources: Sequence[PretokenCounts]) -> None:
        parts = list(map(make_symbols, sources))
        columns = zip(*(part[:3] for part in parts), strict=True)
        ids, lengths, counts = map(np.concatenate, columns)
        self._pretokens = LinkedPretokens(Symbols(ids, lengths, counts, 0))
        self._symbols = self._pretokens.symbol.copy()  # contiguous, since each merge searches all of them
        indices = np.repeat(np.arange(len(parts)), [len(part.lengths) for part in parts])
        self._source = np.repeat(indices, lengths + 1)
        self._counts = np.zeros((1024, len(parts)))
        self._keys = np.zeros(1024, np.int64)
        self.rows: dict[int, int] = {}
        self._add(self._pretokens.find_pair_positions(), 1)

    def get_keys(self) -> NDArray[np.int64]:
        """Returns the keys of all pairs, in the order of their rows, `int64`, shape `(num_pairs,)`."""
        return self._keys[: len(self.rows)]

    def get_counts(self) -> NDArray[np.float64]:
        """Returns the count of each pair in each source, `float64`, shape `(num_pairs, num_sources)`."""
        return self._counts[: len(self.rows)]

    def merge(self, pair: int, new: int) -> None:
        """Merges a pair in all sources.

        Args:
            pair: key of the pair.
            new: the symbol that it becomes.
        """
        pretokens = self._pretokens
        at = np.flatnonzero(self._symbols == pair >> ID_BITS).astype(np.int32)
        after = pretokens.after[at]
        matches = np.flatnonzero(self._symbols.take(after) == pair & RIGHT)
        merges = find_merges_of_pair(at.take(matches), after.take(matches), new)
        # Every pair that has one of the merged symbols disappears. `unique`, since merges can be adjacent.
        touched = np.unique(np.concatenate([pretokens.before[merges.at], merges.at, merges.removed]))
        is_pair = (self._symbols.take(touched) >= 0) & (self._symbols.take(pretokens.after[touched]) >= 0)
        self._add(touched[is_pair], -1)
        formed = pretokens.merge(merges)
        self._symbols[merges.at], self._symbols[merges.removed] = new, REMOVED
        self._add(formed.at, 1)

    def _add(self, at: Positions, sign: int) -> None:
        """Adds the pairs at positions to the counts, or subtracts them."""
        pretokens = self._pretokens
        keys = make_pair_key(self._symbols.take(at), self._symbols.take(pretokens.after[at]))
        pairs, which = np.unique(keys, return_inverse=True)
        found = (self.rows.setdefault(pair, len(self.rows)) for pair in pairs.tolist())
        rows = np.fromiter(found, np.int64, len(pairs))
        missing = len(self.rows) - len(self._keys)
        num_sources = self._counts.shape[1]
        if missing > 0:
            num_more = max(missing, len(self._keys))
            self._keys = np.concatenate([self._keys, np.zeros(num_more, np.int64)])
            self._counts = np.concatenate([self._counts, np.zeros((num_more, num_sources))])
        self._keys[rows] = pairs
        # Sums of whole numbers below 2**53 are exact.
        cells = which * num_sources + self._source.take(at)
        sums = np.bincount(cells, pretokens.get_weights(at), len(pairs) * num_sources)
        self._counts[rows] += sign * sums.reshape(len(pairs), num_sources)
