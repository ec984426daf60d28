"""Training a byte-level BPE vocabulary."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tokjax._checks import checked_int
from tokjax._progress import progress_bar
from tokjax.errors import InvalidArgumentError
from tokjax.models.byte_bpe import ByteLevelBPE, byte_level_bpe
from tokjax.text.patterns import word_splitter
from tokjax.trainer.counting import WordCounts, count_words
from tokjax.trainer.merging import Merger, TieBreak, train_merges
from tokjax.utf8 import from_characters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.text.sources import Source

END_OF_TEXT = "<|endoftext|>"
"""The special token that is the EOS of a trained tokenizer, unless another is named."""

_log = logging.getLogger("tokjax")


@dataclass(frozen=True)
class TrainingStats:
    """What training saw and how long it took.

    Attributes:
        documents: stretches of text between special tokens and ends of texts.
        bytes: bytes of text, special tokens not counted.
        unique_words: different words of the split pattern.
        seconds: by phase, `"counting"` and `"merging"`.
        bytes_per_token: on the training text.
        exhausted: whether the text ran out of pairs before the vocabulary was full.
    """

    documents: int
    bytes: int
    unique_words: int
    seconds: dict[str, float] = field(hash=False)
    bytes_per_token: float
    exhausted: bool


@dataclass(frozen=True)
class TrainedBPE:
    """What `train_bpe` made.

    Attributes:
        tokenizer: ready to use.
        merges: the pairs of byte strings, in the order in which they were merged.
        stats: what training saw.
    """

    tokenizer: ByteLevelBPE
    merges: tuple[tuple[bytes, bytes], ...] = field(repr=False)
    stats: TrainingStats

    @property
    def vocab(self) -> Mapping[int, bytes]:
        """Id to bytes: the 256 bytes, then the special tokens, then the merges."""
        return self.tokenizer.vocabulary.bytes_by_id


def train_bpe(
    source: Source,
    *,
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    pattern: str = "gpt2",
    min_frequency: int = 1,
    tie_break: TieBreak = "lexicographic",
    workers: int | None = None,
    progress: bool = True,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = None,
    unk_token: str | None = None,
) -> TrainedBPE:
    """Train a byte-level BPE tokenizer.

    Words are counted in parallel over chunks of the corpus; then the most frequent pair of neighbouring
    tokens is merged, again and again. The result depends on the text alone, not on `workers`.

    Args:
        source: a path, a list of paths (`os.PathLike`), or an iterable of texts. Files are read in chunks,
            cut at special tokens and (for the published patterns) between words; with a pattern of your own,
            what stands between two special tokens is read as a whole.
        vocab_size: how many ids to give out, the 256 bytes and the special tokens among them. Where the
            text has too few pairs, training stops early, logs that, and sets `stats.exhausted`.
        special_tokens: they split the text, are never merged, and get the ids from 256 on.
        pattern: a name (`"gpt2"`, `"cl100k"`, `"o200k"`, `"llama3"`, `"qwen2"`) or a regular expression:
            the words inside which pairs are merged.
        min_frequency: pairs that are rarer are not merged.
        tie_break: of equally frequent pairs, `"lexicographic"` takes the greatest pair of byte strings, and
            `"huggingface"` the one that the trainer of Hugging Face's tokenizers takes.
        workers: processes that count; `None` for as many as there are processors.
        progress: show a bar for each phase, on standard error.
        bos_token: which special token begins a text, if any.
        eos_token: which special token ends a text; `"<|endoftext|>"` if that is among them.
        pad_token: which special token pads a batch, if any.
        unk_token: which special token stands for the unknown, if any.

    Raises:
        InvalidArgumentError: an option, or the source, makes no sense.
        TrainingError: a counting process died.

    >>> trained = train_bpe(["low low low lower"], vocab_size=259, progress=False)
    >>> trained.merges
    ((b'o', b'w'), (b'l', b'ow'), (b' ', b'low'))
    """
    special = checked_special(special_tokens)
    num_merges = _checked_options(vocab_size, len(special), min_frequency, tie_break, pattern)
    begin = time.perf_counter()
    counts = count_words(source, special_tokens=special, pattern=pattern, workers=workers, progress=progress)
    counted = time.perf_counter()
    first_id = 256 + len(special)
    with progress_bar("merging", num_merges, unit="merges", enabled=progress) as advance:
        merger = train_merges(
            {from_characters(word): count for word, count in sorted(counts.words.items())},
            num_tokens=num_merges,
            first_id=first_id,
            min_frequency=min_frequency,
            tie_break=tie_break,
            advance=advance,
        )
    seconds = {"counting": counted - begin, "merging": time.perf_counter() - counted}
    if eos_token is None and END_OF_TEXT in special:
        eos_token = END_OF_TEXT
    tokenizer = byte_level_bpe(
        {token: id_ for id_, token in merger.token.items()},
        pattern=pattern,
        special_tokens={name: 256 + i for i, name in enumerate(special)},
        bos_token=bos_token,
        eos_token=eos_token,
        pad_token=pad_token,
        unk_token=unk_token,
    )
    exhausted = tokenizer.vocabulary.size < vocab_size
    if exhausted:
        _log.warning(
            "the text has no pair left that stands %d times: the vocabulary has %d ids, not %d",
            min_frequency,
            tokenizer.vocabulary.size,
            vocab_size,
        )
    return TrainedBPE(
        tokenizer,
        tuple(merger.merges),
        _stats(counts, merger, seconds, exhausted),
    )


def _stats(
    counts: WordCounts, merger: Merger, seconds: Mapping[str, float], exhausted: bool
) -> TrainingStats:
    tokens = sum(len(word) * n for word, n in zip(merger.words, merger.counts, strict=True))
    return TrainingStats(
        documents=counts.documents,
        bytes=counts.nbytes,
        unique_words=len(counts.words),
        seconds=dict(seconds),
        bytes_per_token=counts.nbytes / tokens if tokens else 0.0,
        exhausted=exhausted,
    )


def checked_special(special_tokens: Sequence[str]) -> list[str]:
    """The names of special tokens as a list; an error for a single string, for doubles and for no names."""
    if isinstance(special_tokens, (str, bytes)):
        raise InvalidArgumentError(
            f"special_tokens is a list of names, not {special_tokens!r}; pass [{special_tokens!r}]"
        )
    special = list(special_tokens)
    for i, name in enumerate(special):
        if not isinstance(name, str) or not name:
            raise InvalidArgumentError(f"special token {i} must be a name, not {name!r}")
        if name in special[:i]:
            raise InvalidArgumentError(f"special token {name!r} stands twice")
    return special


def _checked_options(
    vocab_size: int, num_special: int, min_frequency: int, tie_break: str, pattern: str
) -> int:
    least = 256 + num_special
    vocab_size = checked_int("vocab_size", vocab_size)
    checked_int("min_frequency", min_frequency, least=1)
    if vocab_size < least:
        raise InvalidArgumentError(
            f"vocab_size is {vocab_size}; 256 bytes and {num_special} special tokens need at least {least}"
        )
    if tie_break not in ("lexicographic", "huggingface"):
        raise InvalidArgumentError(f"tie_break must be 'lexicographic' or 'huggingface', not {tie_break!r}")
    word_splitter(pattern)
    return vocab_size - least
