"""What every trainer gives back."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokjax.core.vocabulary import Vocabulary
    from tokjax.corpus.files import SourceFile
    from tokjax.models.base import SegmentModel

_log = logging.getLogger("tokjax")


@dataclass(frozen=True)
class TrainingStats:
    """What training saw and how long it took.

    Attributes:
        documents: stretches of text between special tokens and ends of texts.
        bytes: bytes of text, special tokens not counted.
        unique_words: different words of the split pattern.
        seconds: by phase, for instance `"counting"` and `"merging"`.
        bytes_per_token: on the training text.
        exhausted: whether the text ran out before the vocabulary was full.
        fingerprint: a short name for the words of the corpus and their counts, `PretokenCounts.fingerprint`;
            `None` where words were not counted.
        files: the files that were read, as they were then; empty where texts came from an iterable.
        notes: what else there is to know, in words: what was split, replaced or left out.
    """

    documents: int
    bytes: int
    unique_words: int
    seconds: Mapping[str, float] = field(hash=False)
    bytes_per_token: float
    exhausted: bool
    fingerprint: str | None = None
    files: tuple[SourceFile, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trained:
    """What a trainer made.

    Attributes:
        tokenizer: ready to use.
        stats: what training saw.
        options: what was asked for: the trainer's name as `"trainer"`, and its options, as plain JSON values.
    """

    tokenizer: SegmentModel
    stats: TrainingStats
    options: Mapping[str, Any] = field(repr=False, hash=False)

    @property
    def vocab(self) -> Mapping[int, bytes]:
        """Id to bytes, in the order of ids."""
        return self.tokenizer.vocabulary.bytes_by_id


def warn_if_exhausted(vocabulary: Vocabulary, vocab_size: int, what: str) -> bool:
    """Whether the text had too little for the vocabulary that was asked for; if so, the log says it.

    Args:
        vocabulary: what was made.
        vocab_size: how many ids were asked for.
        what: what the text has no more of.
    """
    exhausted = vocabulary.size < vocab_size
    if exhausted:
        _log.warning(
            "the text has no %s: the vocabulary has %d ids, not %d", what, vocabulary.size, vocab_size
        )
    return exhausted
