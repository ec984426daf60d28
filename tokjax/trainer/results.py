"""Results of training: tokenizer, statistics and options."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from tokjax._util.display import short_repr
from tokjax.models.base import SegmentModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokjax.core.vocabulary import Vocabulary
    from tokjax.corpus.files import SourceFile
    from tokjax.trainer.pretoken_counts import PretokenCounts

_log = logging.getLogger("tokjax")
_NOT_RECORDED = ("source", "tokenizer", "workers", "executor", "progress")
"""Arguments of trainers that are not options of the result."""

Model = TypeVar("Model", bound=SegmentModel)


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
    files: tuple[SourceFile, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trained(Generic[Model]):
    """Result of a trainer.

    Attributes:
        tokenizer: the trained tokenizer.
        stats: statistics of the training text.
        options: name of the trainer, as `"trainer"`, and the options that it was called with, as JSON values.
        merges: the merged pairs of byte strings, in order; of `continue_bpe`, the new ones only. Empty unless
            the tokenizer is a byte-level BPE.
    """

    tokenizer: Model
    stats: TrainingStats
    options: Mapping[str, Any] = field(repr=False, hash=False)
    merges: tuple[tuple[bytes, bytes], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        """Converts the options to JSON values."""
        object.__setattr__(self, "options", {name: _to_json(value) for name, value in self.options.items()})

    @property
    def vocab(self) -> Mapping[int, bytes]:
        """Mapping from each id to the bytes of its token, in the order of ids."""
        return self.tokenizer.vocabulary.bytes_by_id


def record_options(trainer: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the name of a trainer and its options.

    Args:
        trainer: name of the trainer.
        arguments: its arguments by name, from `locals()`.
    """
    options = {name: value for name, value in arguments.items() if name not in _NOT_RECORDED}
    return {"trainer": trainer} | options


def _to_json(value: Any) -> Any:
    if isinstance(value, (Sequence, Mapping)) and not isinstance(value, str):
        return list(value)
    return value.item() if isinstance(value, np.generic) else value


@contextmanager
def measure_time(seconds: dict[str, float], phase: str) -> Iterator[None]:
    """Records the duration of a phase in seconds."""
    begin = time.perf_counter()
    yield
    seconds[phase] = time.perf_counter() - begin


def make_result(
    tokenizer: Model,
    counts: PretokenCounts,
    options: Mapping[str, Any],
    seconds: Mapping[str, float],
    *,
    num_unique: int,
    num_tokens: int,
    missing: str,
    notes: tuple[str, ...] = (),
    merges: tuple[tuple[bytes, bytes], ...] = (),
) -> Trained[Model]:
    """Makes the result of a training on counted pre-tokens.

    Args:
        tokenizer: the trained tokenizer.
        counts: pre-token counts of the corpus.
        options: name of the trainer and its options.
        seconds: phase to its duration in seconds.
        num_unique: number of distinct pre-tokens or words.
        num_tokens: number of tokens of the corpus.
        missing: noun phrase that completes "the text has no ...", for a warning.
        notes: notes on words that were left out.
        merges: the merges of a byte-level BPE.
    """
    stats = TrainingStats(
        documents=counts.documents,
        bytes=counts.nbytes,
        num_unique_pretokens=num_unique,
        seconds=seconds,
        bytes_per_token=counts.nbytes / num_tokens if num_tokens else 0.0,
        exhausted=warn_if_exhausted(tokenizer.vocabulary, options["vocab_size"], missing),
        files=counts.files,
        notes=notes,
    )
    return Trained(tokenizer, stats, {**options, "special_tokens": tokenizer.vocabulary.special}, merges)


def warn_if_exhausted(vocabulary: Vocabulary, vocab_size: int, missing: str) -> bool:
    """Returns whether a vocabulary has fewer ids than requested, and logs a warning if so.

    Args:
        vocabulary: the trained vocabulary.
        vocab_size: requested number of ids.
        missing: noun phrase that completes "the text has no ...", for the warning.
    """
    if vocabulary.size < vocab_size:
        _log.warning(
            "the text has no %s: the vocabulary has %d ids, not %d", missing, vocabulary.size, vocab_size
        )
    return bool(vocabulary.size < vocab_size)  # (of an integer of NumPy, too)


def describe_missing_pair(min_frequency: int) -> str:
    """Returns the noun phrase that `warn_if_exhausted` takes, for a trainer that merges pairs."""
    times = "once" if min_frequency == 1 else f"{min_frequency} times"
    return f"pair left that occurs at least {times}"
