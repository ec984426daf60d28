"""Parity-aware BPE training: languages get tokens in turn, so that equal content takes equally many tokens.

Plain training merges the most frequent pair of all languages together, so languages with little text are
split into many tokens. Here each merge is for the language that needs it most: the one whose translation of a
common text has the most tokens at this step. The pair is the most frequent one of that language, and it is
merged in all languages. An example, with the number of tokens of the parallel texts::

    English   German   merge
         50       71   e·n    the most frequent pair of the German source
         48       66   c·h    again
         48       47   t·h    the most frequent pair of the English source

The method is that of Foroutan, Meister, Paul, Niklaus, Ahmadi, Bosselut and Sennrich, "Parity-aware Byte-Pair
Encoding: Improving Cross-lingual Fairness in Tokenization", 2025.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.progress import show_progress_bar
from tokjax.core.vocabulary import ID_BITS
from tokjax.errors import InvalidArgumentError
from tokjax.models.byte_bpe import byte_level_bpe
from tokjax.trainer.bpe.batched_training import BYTE_ALPHABET, TIE_KEYS, MergeResult
from tokjax.trainer.bpe.linked_symbols import RIGHT
from tokjax.trainer.bpe.source_pair_counts import SourcePairCounts
from tokjax.trainer.bpe.train_bpe import (
    END_OF_TEXT,
    TrainedBPE,
    build_stats,
    compute_num_merges,
    describe_pairs,
    make_rules,
)
from tokjax.trainer.mixing import check_counts_by_source
from tokjax.trainer.results import warn_if_exhausted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tokjax.trainer.bpe.batched_training import TrainingRules
    from tokjax.trainer.pretoken_counts import PretokenCounts


def train_parity_bpe(
    sources: Mapping[str, PretokenCounts],
    parallel: Mapping[str, PretokenCounts],
    *,
    vocab_size: int,
    num_global: int = 0,
    min_frequency: int = 1,
    max_token_length: int | None = None,
    progress: bool = True,
) -> TrainedBPE:
    """Trains a byte-level BPE tokenizer with similar numbers of tokens for the same content in all languages.

    Each merge is the most frequent pair of one language: that whose parallel text has the most tokens (the
    first of several). Pairs are merged one at a time, which takes some milliseconds for each merge. To weight
    languages by size instead, use `train_bpe` with `mix_counts`.

    Args:
        sources: name of each language to the pre-token counts of its training text. All were counted with the
            same pattern and the same special tokens, which become those of the tokenizer.
        parallel: name of each language to the pre-token counts of its translation of one text, such as a few
            thousand sentences. They decide which language is next, and do not count as training text.
        vocab_size: as in `train_bpe`.
        num_global: number of new tokens, the first ones, that are chosen as in `train_bpe`, from the sum of
            the sources.
        min_frequency: minimum count of a pair that is merged, in its language. A language without such a pair
            is passed over.
        max_token_length: as in `train_bpe`.
        progress: whether to show a progress bar on standard error.

    Returns:
        The trained tokenizer, its merges, and statistics of the training on the sum of the sources. The
        special token `"<|endoftext|>"`, if any, is its EOS token; `with_roles` sets other roles.

    Raises:
        InvalidArgumentError: an option is invalid; a source has no text; or sources and parallel texts have
            different names, patterns or special tokens.

    >>> from tokjax.trainer import count_pretokens
    >>> def count(texts):
    ...     return {name: count_pretokens([text], progress=False) for name, text in texts.items()}
    >>> sources = count({"en": "the then they " * 9, "sw": "kisha kishindo"})
    >>> parallel = count({"en": "then", "sw": "kisha"})
    >>> trained = train_parity_bpe(sources, parallel, vocab_size=260, progress=False)
    >>> trained.merges
    ((b's', b'h'), (b't', b'h'), (b'k', b'i'), (b'th', b'e'))
    """
    total = _check_sources(sources, parallel)
    rules = make_rules(256 + len(total.special_tokens), min_frequency, max_token_length, "lexicographic")
    num_tokens = compute_num_merges(
        vocab_size, rules.first_id, f"256 bytes and {len(total.special_tokens)} special tokens"
    )
    num_global = check_int("num_global", num_global, minimum=0)
    begin = time.perf_counter()
    trainer = _ParityTrainer(list(sources.values()), [parallel[name] for name in sources], rules, num_tokens)
    with show_progress_bar("merging", num_tokens, unit="merges", enabled=progress) as advance:
        while trainer.num_new < num_tokens:
            pair = trainer.find_pair(is_global=trainer.num_new < num_global)
            if pair is None:
                break
            advance(trainer.merge(pair))
    merged = trainer.finish()
    special_ids = {name: 256 + i for i, name in enumerate(total.special_tokens)}
    tokenizer = byte_level_bpe(
        {token: id_ for id_, token in merged.token.items()},
        pattern=total.pattern,
        special_tokens=special_ids,
        eos_token=END_OF_TEXT if END_OF_TEXT in special_ids else None,
    )
    size = rules.first_id + num_tokens
    exhausted = warn_if_exhausted(tokenizer.vocabulary, size, describe_pairs(rules))
    return TrainedBPE(
        tokenizer,
        build_stats(total, merged, {"merging": time.perf_counter() - begin}, exhausted=exhausted),
        {
            "trainer": "bpe",
            "vocab_size": size,
            "special_tokens": list(total.special_tokens),
            "pattern": total.pattern,
            "min_frequency": rules.min_frequency,
            "max_token_length": rules.max_token_length,
            "parity": {name: parallel[name].fingerprint for name in sources},
            "num_global": num_global,
        },
        merged.merges,
    )


def _check_sources(
    sources: Mapping[str, PretokenCounts], parallel: Mapping[str, PretokenCounts]
) -> PretokenCounts:
    """Checks that all counts fit together. Returns the sum of the sources."""
    check_counts_by_source(sources)
    check_counts_by_source(parallel)
    if set(sources) != set(parallel):
        raise InvalidArgumentError(
            f"sources has the languages {list(sources)}, and parallel has {list(parallel)}; pass both texts "
            "for each language"
        )
    first, *others = sources.values()
    total = sum(others, start=first)
    for name, counts in parallel.items():
        if (counts.pattern, counts.special_tokens) != (total.pattern, total.special_tokens):
            raise InvalidArgumentError(
                f"the parallel text of {name!r} was counted with pattern={counts.pattern!r} and "
                f"special_tokens={counts.special_tokens!r}, and the sources with {total.pattern!r} and "
                f"{total.special_tokens!r}; count both alike"
            )
    return total


class _ParityTrainer:
    """The state of training.

    Args:
        sources: training text of each language.
        parallel: parallel text of each language, in the same order.
        rules: options that decide which pairs may be merged.
        num_tokens: maximum number of new tokens.
    """

    def __init__(
        self,
        sources: list[PretokenCounts],
        parallel: list[PretokenCounts],
        rules: TrainingRules,
        num_tokens: int,
    ) -> None:
        self._pairs = SourcePairCounts([*sources, *parallel])
        self._num_languages = len(sources)
        self._num_tokens = np.array([counts.nbytes for counts in (*sources, *parallel)])
        self._rules = rules
        self._result = MergeResult(dict(BYTE_ALPHABET.tokens))
        self._ids = {token: id_ for id_, token in self._result.token.items()}
        self._tie_keys = TIE_KEYS[rules.tie_break](self._result.token)
        self._lengths = np.ones(rules.first_id + num_tokens, np.int64)

    @property
    def num_new(self) -> int:
        """Number of new tokens so far."""
        return len(self._ids) - len(BYTE_ALPHABET.tokens)

    def find_pair(self, *, is_global: bool) -> int | None:
        """Returns the key of the pair to merge next, or `None` if no pair is frequent enough.

        Args:
            is_global: whether the counts of all languages are added, instead of choosing one language.
        """
        counts = self._pairs.get_counts()[:, : self._num_languages]
        if is_global:
            return self._find_best(counts.sum(axis=1))
        parallel_tokens = self._num_tokens[self._num_languages :]
        languages = np.argsort(-parallel_tokens, kind="stable").tolist()
        found = (self._find_best(counts[:, language]) for language in languages)
        return next((pair for pair in found if pair is not None), None)

    def merge(self, pair: int) -> int:
        """Merges a pair in all texts.

        Returns:
            The number of new tokens: 0 if the bytes of the pair are a token already.
        """
        left, right = pair >> ID_BITS, pair & RIGHT
        token = self._result.token[left] + self._result.token[right]
        next_id = self._rules.first_id + self.num_new
        id_ = self._ids.setdefault(token, next_id)
        self._result.token[id_] = token
        self._lengths[id_] = len(token)
        self._result.id_merges.append((left, right, id_))
        self._num_tokens -= self._pairs.merge(pair, id_)
        return int(id_ == next_id)

    def finish(self) -> MergeResult:
        """Returns the result, with the number of tokens of the training texts."""
        self._result.num_tokens = int(self._num_tokens[: self._num_languages].sum())
        return self._result

    def _find_best(self, counts: NDArray[np.float64]) -> int | None:
        """Returns the most frequent pair, of equally frequent ones the greatest pair of byte strings."""
        keys, maximum_length = self._pairs.get_keys(), self._rules.max_token_length
        if maximum_length is not None:
            lengths = self._lengths.take(keys >> ID_BITS) + self._lengths.take(keys & RIGHT)
            counts = np.where(lengths <= maximum_length, counts, 0)
        maximum = counts.max(initial=0)
        if maximum < self._rules.min_frequency:
            return None
        pairs: list[int] = keys[counts == maximum].tolist()
        return min(pairs, key=self._get_tie_key)

    def _get_tie_key(self, pair: int) -> tuple[object, ...]:
        return self._tie_keys[pair >> ID_BITS], self._tie_keys[pair & RIGHT]
