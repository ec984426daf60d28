"""Training a byte-level BPE vocabulary."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from tokjax._checks import checked_int
from tokjax._progress import progress_bar
from tokjax.errors import InvalidArgumentError
from tokjax.models.byte_bpe import ByteLevelBPE, byte_level_bpe
from tokjax.trainer._checkpoints import CheckpointFile
from tokjax.trainer.counting import counts_of, special_of
from tokjax.trainer.merging import Rules, TieBreak, train_merges
from tokjax.trainer.records import Trained, TrainingStats
from tokjax.vocabulary import MAX_ID

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from tokjax.text.sources import Source
    from tokjax.trainer.pretokens import PretokenCounts

END_OF_TEXT = "<|endoftext|>"
"""The special token that is the EOS of a trained tokenizer, unless another is named."""

_log = logging.getLogger("tokjax")


@dataclass(frozen=True)
class TrainedBPE(Trained):
    """What `train_bpe` made. Its ids are the 256 bytes, then the special tokens, then the merges.

    Attributes:
        tokenizer: ready to use.
        merges: the pairs of byte strings, in the order in which they were merged.
    """

    tokenizer: ByteLevelBPE
    merges: tuple[tuple[bytes, bytes], ...] = field(repr=False)


def train_bpe(
    source: Source | PretokenCounts,
    *,
    vocab_size: int,
    special_tokens: Sequence[str] | None = None,
    pattern: str | None = None,
    min_frequency: int = 1,
    max_token_length: int | None = None,
    tie_break: TieBreak = "lexicographic",
    checkpoint: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
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
        source: a path, a list of paths (`os.PathLike`) or an iterable of texts, read as `count_pretokens`
            does; or what that function gave, for several vocabularies from one reading.
        vocab_size: how many ids to give out, the 256 bytes and the special tokens among them. Where the
            text has too few pairs, training stops early, logs that, and sets `stats.exhausted`.
        special_tokens: they split the text, are never merged, and get the ids from 256 on. `None` for
            those of the counts, or none.
        pattern: a name (`"gpt2"`, `"cl100k"`, `"o200k"`, `"llama3"`, `"qwen2"`, `"whitespace"`) or a regular
            expression: the words inside which pairs are merged. `None` for that of the counts, or `"gpt2"`.
        min_frequency: pairs that are rarer are not merged.
        max_token_length: pairs that would have more bytes are not merged; `None` for no such limit.
        tie_break: of equally frequent pairs, `"lexicographic"` takes the greatest pair of byte strings, and
            `"huggingface"` the one that the trainer of Hugging Face's tokenizers takes.
        checkpoint: a file that is written every half minute while pairs are merged, and at the end. Where
            it exists, training goes on from it, and the result is the same; also for a larger `vocab_size`.
        workers: as in `count_pretokens`.
        executor: as in `count_pretokens`.
        progress: show a bar for each phase, on standard error.
        bos_token: which special token begins a text, if any.
        eos_token: which special token ends a text; `"<|endoftext|>"` if that is among them.
        pad_token: which special token pads a batch, if any.
        unk_token: which special token stands for the unknown, if any.

    Raises:
        InvalidArgumentError: an option, or the source, makes no sense; or the checkpoint is of another
            training, damaged, or has more merges than asked for.
        TrainingError: a worker of the executor died.

    >>> trained = train_bpe(["low low low lower"], vocab_size=259, progress=False)
    >>> trained.merges
    ((b'o', b'w'), (b'l', b'ow'), (b' ', b'low'))
    """
    num_special = len(special_of(source, special_tokens))
    rules = _checked_rules(256 + num_special, min_frequency, max_token_length, tie_break)
    num_merges = _checked_num_merges(vocab_size, num_special)
    begin = time.perf_counter()
    counts = counts_of(
        source,
        special_tokens=special_tokens,
        pattern=pattern,
        default_pattern="gpt2",
        workers=workers,
        executor=executor,
        progress=progress,
    )
    special = counts.special_tokens
    counted = time.perf_counter()
    with progress_bar("merging", num_merges, unit="merges", enabled=progress) as advance:
        merged = train_merges(
            counts,
            num_tokens=num_merges,
            rules=rules,
            checkpoint=None if checkpoint is None else _checkpoint_file(checkpoint, counts, rules),
            advance=advance,
        )
    seconds = {"counting": counted - begin, "merging": time.perf_counter() - counted}
    if eos_token is None and END_OF_TEXT in special:
        eos_token = END_OF_TEXT
    tokenizer = byte_level_bpe(
        {token: id_ for id_, token in merged.token.items()},
        pattern=counts.pattern,
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
    options = {
        "trainer": "bpe",
        "vocab_size": vocab_size,
        "special_tokens": list(special),
        "pattern": counts.pattern,
        "min_frequency": min_frequency,
        "max_token_length": max_token_length,
        "tie_break": tie_break,
    }
    stats = TrainingStats(
        documents=counts.documents,
        bytes=counts.nbytes,
        unique_words=len(counts),
        seconds=seconds,
        bytes_per_token=counts.nbytes / merged.num_tokens if merged.num_tokens else 0.0,
        exhausted=exhausted,
        fingerprint=counts.fingerprint,
        files=counts.files,
    )
    return TrainedBPE(tokenizer, stats, options, merged.merges)


def _checkpoint_file(path: str | os.PathLike[str], counts: PretokenCounts, rules: Rules) -> CheckpointFile:
    return CheckpointFile(Path(path), {"counts": counts.fingerprint, **rules._asdict()})


def _checked_num_merges(vocab_size: int, num_special: int) -> int:
    least = 256 + num_special
    vocab_size = checked_int("vocab_size", vocab_size)
    if vocab_size < least:
        raise InvalidArgumentError(
            f"vocab_size is {vocab_size}; 256 bytes and {num_special} special tokens need at least {least}"
        )
    if vocab_size > MAX_ID + 1:
        raise InvalidArgumentError(f"vocab_size is {vocab_size}; there are at most {MAX_ID + 1} ids")
    return vocab_size - least


def _checked_rules(
    first_id: int, min_frequency: int, max_token_length: int | None, tie_break: TieBreak
) -> Rules:
    checked_int("min_frequency", min_frequency, least=1)
    if max_token_length is not None:
        checked_int("max_token_length", max_token_length, least=1)
    if tie_break not in get_args(TieBreak):
        raise InvalidArgumentError(f"tie_break must be 'lexicographic' or 'huggingface', not {tie_break!r}")
    return Rules(first_id, min_frequency, tie_break, max_token_length)
