"""Training of word-level vocabularies, and the word counts that WordPiece training shares."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tokjax._util.checks import check_int
from tokjax.bpe.chunks import Segments
from tokjax.core.utf8 import is_encodable, to_characters
from tokjax.core.vocabulary import check_role_names, make_vocabulary
from tokjax.errors import InvalidArgumentError
from tokjax.models.word_level import WordLevelTokenizer, make_word_level
from tokjax.pretokenize.special_tokens import check_special_names
from tokjax.pretokenize.word_boundaries import compile_word_expression
from tokjax.trainer.counting import resolve_counts
from tokjax.trainer.pretoken_counts import PretokenCounts
from tokjax.trainer.results import Trained, TrainingStats, warn_if_exhausted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from concurrent.futures import Executor

    from tokjax.core.vocabulary import Role
    from tokjax.corpus.sources import Source
    from tokjax.models.word_base import WordModel
    from tokjax.pretokenize.normalization import BertNormalizer
    from tokjax.pretokenize.word_boundaries import Splitter


SPECIAL_TOKENS = ("[PAD]", "[UNK]")
"""Default special tokens."""
"""Default names of roles that are dropped if no special token has the name; see `check_roles`."""


@dataclass(frozen=True)
class TrainedWordLevel(Trained):
    """Result of `train_word_level`.

    The ids are those of the special tokens, then of the words, the most frequent first.

    Attributes:
        tokenizer: the trained tokenizer.
    """

    tokenizer: WordLevelTokenizer


def train_word_level(
    source: Source | PretokenCounts,
    *,
    vocab_size: int,
    special_tokens: Sequence[str] = SPECIAL_TOKENS,
    min_frequency: int = 1,
    splitter: Splitter = "whitespace",
    lowercase: bool = False,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: bool = True,
    unk_token: str = "[UNK]",
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = "[PAD]",
) -> TrainedWordLevel:
    """Trains a word-level tokenizer of the most frequent words.

    Equally frequent words are sorted by code points.

    Args:
        source: a path, a list of paths (`os.PathLike`) or an iterable of texts, counted as by
            `count_pretokens` with the pattern `"whitespace"`; or counts from that function, with any pattern
            and special tokens.
        vocab_size: number of ids, including special tokens. If the text has too few words, the vocabulary is
            smaller, a warning is logged, and `stats.exhausted` is set.
        special_tokens: names of special tokens. The text is split at them, they do not become words, and they
            get the first ids.
        min_frequency: minimum number of occurrences of a word in the vocabulary.
        splitter: `"whitespace"` splits words at whitespace; `"bert"` also makes each punctuation mark a word.
        lowercase: whether to convert each character to lower case.
        workers: as in `count_pretokens`.
        executor: as in `count_pretokens`.
        progress: whether to show a progress bar on standard error.
        unk_token: name of the special token that encodes unknown words.
        bos_token: name of the special token that begins a text; `None` for no such token.
        eos_token: name of the special token that ends a text; `None` for no such token.
        pad_token: name of the special token that pads a batch; `None` for no such token. The default is
            ignored if it is not among `special_tokens`.

    Raises:
        InvalidArgumentError: an option or the source is invalid.
        TrainingError: a worker of the executor died.

    >>> trained = train_word_level(["to be or not to be"], vocab_size=5, progress=False)
    >>> [token.decode() for token in trained.vocab.values()]
    ['[PAD]', '[UNK]', 'be', 'to', 'not']
    """
    roles: Mapping[Role, str | None]
    roles = {"unk": unk_token, "bos": bos_token, "eos": eos_token, "pad": pad_token}
    special, declared = check_roles(special_tokens, roles)
    check_int("min_frequency", min_frequency, minimum=1)
    vocab_size = check_int("vocab_size", vocab_size)
    if vocab_size < len(special):
        raise InvalidArgumentError(
            f"vocab_size is {vocab_size}; {len(special)} special tokens need at least {len(special)}"
        )
    special_ids = {name: i for i, name in enumerate(special)}
    untrained = make_word_level(make_vocabulary({}, special_ids, declared), splitter, lowercase)
    start = time.perf_counter()
    counts = count_whitespace_words(source, special, workers=workers, executor=executor, progress=progress)
    words = count_normalized_words(counts, untrained.normalizer, splitter)
    encodable = drop_invalid_utf8(words)
    candidates = {word: count for word, count in encodable.items() if word not in special_ids}
    ranked = sorted(candidates, key=lambda word: (-candidates[word], word))
    selected = [word for word in ranked[: vocab_size - len(special)] if candidates[word] >= min_frequency]
    ordinary = {word.encode("utf-8"): len(special) + i for i, word in enumerate(selected)}
    tokenizer = replace(untrained, vocabulary=make_vocabulary(ordinary, special_ids, declared))
    seconds = {"counting": time.perf_counter() - start}
    missing = f"word left that occurs {min_frequency} or more times"
    exhausted = warn_if_exhausted(tokenizer.vocabulary, vocab_size, missing)
    notes = (
        *format_dropped_note(words, encodable, "they are not valid UTF-8"),
        *format_dropped_note(encodable, candidates, "they have the name of a special token"),
    )
    stats = compute_stats(counts, words, tokenizer, seconds, exhausted=exhausted, notes=notes)
    options = {
        "trainer": "word_level",
        "vocab_size": vocab_size,
        "special_tokens": special,
        "min_frequency": min_frequency,
        "splitter": splitter,
        "lowercase": lowercase,
        "pattern": counts.pattern,
    }
    return TrainedWordLevel(tokenizer, stats, options)


def check_roles(
    special_tokens: Sequence[str],
    roles: Mapping[Role, str | None],
    optional_tokens: Collection[str] = ("[PAD]",),
) -> tuple[list[str], Mapping[Role, str | None]]:
    """Returns the special tokens as a list, and the roles that they have.

    Args:
        special_tokens: names of special tokens.
        roles: role to name of its special token, or to `None`.
        optional_tokens: names of roles that are dropped, without an error, if no special token has the name.

    Raises:
        InvalidArgumentError: a role names a token that is not special, or the UNK token is `None`.
    """
    special = check_special_names(special_tokens)
    check_role_names(roles)
    absent = {None, *optional_tokens}.difference(special)
    declared = {role: name for role, name in roles.items() if name not in absent}
    if roles["unk"] is None:
        raise InvalidArgumentError(
            "unk_token is None, but every vocabulary has unknown words; pass the name of a special token"
        )
    for role, name in declared.items():
        if name not in special:
            raise InvalidArgumentError(
                f"{role}_token is {name!r}, which is not among special_tokens={special!r}; add it to them"
            )
    return special, declared


def count_whitespace_words(
    source: Source | PretokenCounts,
    special_tokens: Sequence[str],
    *,
    workers: int | None,
    executor: Executor | None,
    progress: bool,
) -> PretokenCounts:
    """Counts the strings between whitespace, or returns existing counts, whatever their pattern is."""
    return resolve_counts(
        source,
        special_tokens=None if isinstance(source, PretokenCounts) else special_tokens,
        pattern=None,
        default_pattern="whitespace",
        workers=workers,
        executor=executor,
        progress=progress,
    )


def count_normalized_words(
    counts: PretokenCounts, normalizer: BertNormalizer, splitter: Splitter
) -> dict[str, int]:
    """Normalizes counted pre-tokens, splits them into words, and counts these.

    Bytes that are not UTF-8 become surrogates, as in `core.utf8.to_characters`.
    """
    find_words = compile_word_expression(splitter).findall
    totals: defaultdict[str, int] = defaultdict(int)
    for text, count in zip(
        counts.to_counted_pretokens().pretokens.iter_bytes(), counts.counts.tolist(), strict=True
    ):
        for word in find_words(to_characters(normalizer.normalize(text))):
            totals[word] += count
    return dict(totals)


def drop_invalid_utf8(words: Mapping[str, int]) -> dict[str, int]:
    """Returns the words that are valid UTF-8. No token can have other bytes."""
    return {word: count for word, count in words.items() if is_encodable(word)}


def format_dropped_note(before: Mapping[str, int], after: Mapping[str, int], reason: str) -> tuple[str, ...]:
    """Returns a note on the words that a filter removed, or no note if it removed none.

    Args:
        before: word to count, before the filter.
        after: word to count, after the filter.
        reason: clause that says why the words were removed.
    """
    num_distinct = len(before) - len(after)
    if not num_distinct:
        return ()
    num_occurrences = sum(before.values()) - sum(after.values())
    return (f"left out {num_distinct:,} distinct words ({num_occurrences:,} occurrences): {reason}",)


def compute_stats(
    counts: PretokenCounts,
    words: Mapping[str, int],
    tokenizer: WordModel,
    seconds: Mapping[str, float],
    *,
    exhausted: bool,
    notes: tuple[str, ...],
) -> TrainingStats:
    """Computes the statistics of training. Encodes each distinct word once to count the tokens of the text.

    Args:
        counts: pre-token counts of the corpus.
        words: word to count, after normalization and before filters.
        tokenizer: trained tokenizer.
        seconds: phase to its duration in seconds.
        exhausted: whether the vocabulary has fewer ids than requested.
        notes: notes on words that were left out.
    """
    encoded = tokenizer.encode_segments(Segments(list(words), hold_bytes=True), sources=False)
    frequencies = np.fromiter(words.values(), np.int64, len(words))
    num_tokens = int(np.diff(encoded.splits) @ frequencies)
    return TrainingStats(
        documents=counts.documents,
        bytes=counts.nbytes,
        num_unique_pretokens=len(words),
        seconds=seconds,
        bytes_per_token=counts.nbytes / num_tokens if num_tokens else 0.0,
        exhausted=exhausted,
        fingerprint=counts.fingerprint,
        files=counts.files,
        notes=notes,
    )
