"""Results of training: tokenizer, statistics and options."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokjax._util.display import short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokjax.core.vocabulary import Vocabulary
    from tokjax.corpus.files import SourceFile
    from tokjax.models.base import SegmentModel

_log = logging.getLogger("tokjax")


@short_repr
@dataclass(frozen=True)
class TrainingStats:
    """Statistics of the training text, and the time that each phase took.

    Attributes:
        documents: number of non-empty segments of text between special tokens and ends of texts.
        bytes: number of bytes of text, without special tokens.
        num_unique_pretokens: number of distinct pre-tokens (BPE), normalized words (WordPiece, word-level),
            or strings between whitespace (SentencePiece).
        seconds: phase, for instance `"counting"` or `"merging"`, to its duration in seconds.
        bytes_per_token: mean number of bytes per token of the training text.
        exhausted: whether the vocabulary has fewer ids than requested because the text had no more
            candidates.
        fingerprint: checksum of the pre-tokens of the corpus and their counts, as in
            `PretokenCounts.fingerprint`; `None` if pre-tokens were not counted.
        files: path, size and modification time of each source file when it was read; empty if the texts came
            from an iterable.
        notes: sentences that report which text was split, replaced or left out.
    """

    documents: int
    bytes: int
    num_unique_pretokens: int
    seconds: Mapping[str, float] = field(hash=False)
    bytes_per_token: float
    exhausted: bool
    fingerprint: str | None = None
    files: tuple[SourceFile, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trained:
    """Result of a trainer.

    Attributes:
        tokenizer: the trained tokenizer.
        stats: statistics of the training text.
        options: name of the trainer, as `"trainer"`, and the options that it was called with, as JSON values.
    """

    tokenizer: SegmentModel
    stats: TrainingStats
    options: Mapping[str, Any] = field(repr=False, hash=False)

    @property
    def vocab(self) -> Mapping[int, bytes]:
        """Mapping from each id to the bytes of its token, in the order of ids."""
        return self.tokenizer.vocabulary.bytes_by_id


def format_missing_pairs(min_frequency: int) -> str:
    """Returns the noun phrase that `warn_if_exhausted` takes, for a trainer that merges pairs."""
    times = "once" if min_frequency == 1 else f"{min_frequency} times"
    return f"pair left that occurs at least {times}"


def warn_if_exhausted(vocabulary: Vocabulary, vocab_size: int, missing: str) -> bool:
    """Returns whether a vocabulary has fewer ids than requested, and logs a warning if so.

    Args:
        vocabulary: the trained vocabulary.
        vocab_size: requested number of ids.
        missing: noun phrase that completes "the text has no ...", for the warning.
    """
    exhausted = vocabulary.size < vocab_size
    if exhausted:
        _log.warning(
            "the text has no %s: the vocabulary has %d ids, not %d", missing, vocabulary.size, vocab_size
        )
    return exhausted
