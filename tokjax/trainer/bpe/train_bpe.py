"""Training of byte-level BPE tokenizers."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from tokjax._util.checks import check_choice, check_int
from tokjax._util.progress import show_progress_bar
from tokjax.core.vocabulary import MAX_ID, make_vocabulary
from tokjax.errors import InvalidArgumentError
from tokjax.models.byte_bpe import ByteLevelBPE, byte_level_bpe
from tokjax.trainer.bpe.batched_training import (
    BYTE_ALPHABET,
    Alphabet,
    MergeResult,
    TieBreak,
    TrainingRules,
    train_merges,
)
from tokjax.trainer.bpe.linked_symbols import make_symbols
from tokjax.trainer.counting import resolve_counts, resolve_special_tokens
from tokjax.trainer.results import Trained, TrainingStats, format_missing_pairs, warn_if_exhausted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor

    from tokjax.core.vocabulary import Role
    from tokjax.corpus.sources import Source
    from tokjax.pretokenize.patterns import Pattern
    from tokjax.trainer.bpe.linked_symbols import Symbols
    from tokjax.trainer.pretoken_counts import PretokenCounts

END_OF_TEXT = "<|endoftext|>"
"""The default EOS token of a trained tokenizer, if it is among the special tokens."""


@dataclass(frozen=True)
class TrainedBPE(Trained):
    """Result of `train_bpe` or `continue_bpe`.

    Ids are the 256 bytes, then the special tokens, then the merges. After `continue_bpe`, they are those of
    the initial tokenizer, then the new merges.

    Attributes:
        tokenizer: the trained tokenizer.
        merges: the merged pairs of byte strings, in order; after `continue_bpe`, the new ones only.
    """

    tokenizer: ByteLevelBPE
    merges: tuple[tuple[bytes, bytes], ...] = field(repr=False)


def train_bpe(
    source: Source | PretokenCounts,
    *,
    vocab_size: int,
    special_tokens: Sequence[str] | None = None,
    pattern: Pattern | None = None,
    min_frequency: int = 1,
    max_token_length: int | None = None,
    tie_break: TieBreak = "lexicographic",
    workers: int | None = None,
    executor: Executor | None = None,
    progress: bool = True,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = None,
    unk_token: str | None = None,
) -> TrainedBPE:
    """Trains a byte-level BPE tokenizer.

    Pre-tokens are counted in parallel over chunks of the corpus. Then the most frequent pair of adjacent
    tokens is merged, again and again. The result depends only on the text and the options, not on `workers`.

    Args:
        source: a path, a list of paths (`os.PathLike`) or an iterable of texts, read as in `count_pretokens`;
            or the result of that function, to train several vocabularies after reading the text once.
        vocab_size: number of ids, which include the 256 bytes and the special tokens. If the text has too few
            pairs, training stops early, logs a warning, and sets `stats.exhausted`.
        special_tokens: special tokens of the vocabulary, with ids from 256 on. They split the text and are
            never merged. `None` for those of the counts, or none.
        pattern: the split pattern, as in `byte_level_bpe`. Pairs are merged only inside of pre-tokens. `None`
            for the pattern of the counts, or `"gpt2"`.
        min_frequency: minimum count of a pair that is merged.
        max_token_length: maximum length of a merged token in bytes; `None` for no limit. (Without a limit,
            tokens can grow up to the longest pre-token, and memory with them. In Hugging Face's trainer,
            tokens are shorter than the limit, but pairs of bytes are always allowed.)
        tie_break: which of several equally frequent pairs is merged first: `"lexicographic"` for the greatest
            pair of byte strings, `"huggingface"` for the choice of Hugging Face's trainer.
        workers: number of workers, as in `count_pretokens`.
        executor: executor of the workers, as in `count_pretokens`.
        progress: whether to show a progress bar for each phase, on standard error.
        bos_token: the special token that begins a text, if any.
        eos_token: the special token that ends a text; by default `"<|endoftext|>"` if it is a special token.
        pad_token: the special token that pads a batch, if any.
        unk_token: the special token for unknown input, if any.

    Returns:
        The trained tokenizer, its merges, and statistics of the training.

    Raises:
        InvalidArgumentError: an option or the source is invalid.
        TrainingError: a worker of the executor died.

    >>> trained = train_bpe(["low low low lower"], vocab_size=259, progress=False)
    >>> trained.merges
    ((b'o', b'w'), (b'l', b'ow'), (b' ', b'low'))
    """
    special = resolve_special_tokens(source, special_tokens)
    rules = make_rules(256 + len(special), min_frequency, max_token_length, tie_break)
    num_merges = compute_num_merges(
        vocab_size, rules.first_id, f"256 bytes and {len(special)} special tokens"
    )
    special_ids = {name: 256 + i for i, name in enumerate(special)}
    if eos_token is None and END_OF_TEXT in special:
        eos_token = END_OF_TEXT
    roles: Mapping[Role, str | None] = {
        "bos": bos_token,
        "eos": eos_token,
        "pad": pad_token,
        "unk": unk_token,
    }
    make_vocabulary({}, special_ids, roles)  # raises for invalid roles before the training, not after it
    begin = time.perf_counter()
    counts = resolve_counts(
        source,
        special_tokens=special_tokens,
        pattern=pattern,
        default_pattern="gpt2",
        workers=workers,
        executor=executor,
        progress=progress,
    )
    end_of_counting = time.perf_counter()
    merged = merge_pairs(make_symbols(counts), num_tokens=num_merges, rules=rules, progress=progress)
    seconds = {"counting": end_of_counting - begin, "merging": time.perf_counter() - end_of_counting}
    tokenizer = byte_level_bpe(
        {token: id_ for id_, token in merged.token.items()},
        pattern=counts.pattern,
        special_tokens=special_ids,
        bos_token=bos_token,
        eos_token=eos_token,
        pad_token=pad_token,
        unk_token=unk_token,
    )
    requested_size = rules.first_id + num_merges
    exhausted = warn_if_exhausted(tokenizer.vocabulary, requested_size, describe_pairs(rules))
    return TrainedBPE(
        tokenizer,
        build_stats(counts, merged, seconds, exhausted=exhausted),
        {
            "trainer": "bpe",
            "vocab_size": requested_size,
            "special_tokens": list(special),
            "pattern": counts.pattern,
            "min_frequency": rules.min_frequency,
            "max_token_length": rules.max_token_length,
            "tie_break": rules.tie_break,
        },
        merged.merges,
    )


def merge_pairs(
    symbols: Symbols,
    *,
    num_tokens: int,
    rules: TrainingRules,
    progress: bool,
    alphabet: Alphabet = BYTE_ALPHABET,
) -> MergeResult:
    """Merges pairs of counted pre-tokens as `train_merges` does, with a progress bar."""
    with show_progress_bar("merging", num_tokens, unit="merges", enabled=progress) as advance:
        return train_merges(symbols, num_tokens=num_tokens, rules=rules, advance=advance, alphabet=alphabet)


def build_stats(
    counts: PretokenCounts, merged: MergeResult, seconds: Mapping[str, float], *, exhausted: bool
) -> TrainingStats:
    """Builds the statistics of a finished training."""
    return TrainingStats(
        documents=counts.documents,
        bytes=counts.nbytes,
        num_unique_pretokens=len(counts),
        seconds=seconds,
        bytes_per_token=counts.nbytes / merged.num_tokens if merged.num_tokens else 0.0,
        exhausted=exhausted,
        fingerprint=counts.fingerprint,
        files=counts.files,
    )


def describe_pairs(rules: TrainingRules) -> str:
    """Returns a description of the pairs that can be merged, for the warning that there are too few."""
    limit = "" if rules.max_token_length is None else f" and has at most {rules.max_token_length} bytes"
    return format_missing_pairs(rules.min_frequency) + limit


def compute_num_merges(vocab_size: int, minimum: int, needed_for: str) -> int:
    """Returns the number of new tokens of a vocabulary.

    Args:
        vocab_size: number of ids.
        minimum: number of ids before training.
        needed_for: noun phrase for these ids, for the error.

    Raises:
        InvalidArgumentError: the vocabulary is too small, or larger than any vocabulary can be.
    """
    vocab_size = check_int("vocab_size", vocab_size)
    if vocab_size < minimum:
        raise InvalidArgumentError(f"vocab_size is {vocab_size}; {needed_for} need at least {minimum}")
    if vocab_size > MAX_ID + 1:
        raise InvalidArgumentError(f"vocab_size is {vocab_size}; there are at most {MAX_ID + 1} ids")
    return vocab_size - minimum


def make_rules(
    first_id: int, min_frequency: int, max_token_length: int | None, tie_break: TieBreak
) -> TrainingRules:
    """Returns the rules of training after a check of the options."""
    minimum = check_int("min_frequency", min_frequency, minimum=1)
    if max_token_length is not None:
        max_token_length = check_int("max_token_length", max_token_length, minimum=1)
    check_choice("tie_break", tie_break, get_args(TieBreak))
    return TrainingRules(first_id, minimum, tie_break, max_token_length)
