"""What trainers of words have in common: the words of counts, normalised, and what came of them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from tokjax.bpe.chunks import Segments
from tokjax.core.utf8 import is_encodable, to_characters
from tokjax.errors import InvalidArgumentError
from tokjax.pretokenize.special_tokens import check_special_names
from tokjax.pretokenize.word_boundaries import compile_word_expression
from tokjax.trainer.counting import resolve_counts
from tokjax.trainer.pretoken_counts import PretokenCounts
from tokjax.trainer.records import TrainingStats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor

    from tokjax.core.vocabulary import Role
    from tokjax.corpus.sources import Source
    from tokjax.models.word_base import WordModel
    from tokjax.pretokenize.bert_normalizer import BertNormalizer
    from tokjax.pretokenize.word_boundaries import Splitter


def count_whitespace_words(
    source: Source | PretokenCounts,
    special_tokens: Sequence[str],
    *,
    workers: int | None,
    executor: Executor | None,
    progress: bool,
) -> PretokenCounts:
    """The words between white space, or what was counted already, with any pattern and special tokens."""
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
    """How often each word stands, when what was counted is normalised and split; characters as in `utf8`."""
    find_words = compile_word_expression(splitter).findall
    totals: defaultdict[str, int] = defaultdict(int)
    for text, count in zip(counts.counted().words.iter_bytes(), counts.counts.tolist(), strict=True):
        for word in find_words(to_characters(normalizer.normalize(text))):
            totals[word] += count
    return dict(totals)


def drop_invalid_utf8(words: Mapping[str, int]) -> dict[str, int]:
    """The words without bytes that are no UTF-8: no token can have them."""
    return {word: count for word, count in words.items() if is_encodable(word)}


def format_dropped_note(before: Mapping[str, int], after: Mapping[str, int], why: str) -> tuple[str, ...]:
    """A note on the words that are no longer there, if any."""
    different = len(before) - len(after)
    if not different:
        return ()
    frequencies = sum(before.values()) - sum(after.values())
    return (f"left out {different:,} different words, {frequencies:,} in all: {why}",)


def check_roles(
    special_tokens: Sequence[str], roles: Mapping[Role, str | None], optional_tokens: Mapping[Role, str]
) -> tuple[list[str], Mapping[Role, str | None]]:
    """The special tokens as a list, and the roles that they have.

    Args:
        special_tokens: their names.
        roles: role to name.
        optional_tokens: role to the name that it may have without there being such a token.

    Raises:
        InvalidArgumentError: a role names a token that is not special, or nothing stands for the unknown.
    """
    special = check_special_names(special_tokens)
    declared = {
        role: name
        for role, name in roles.items()
        if name in special or name not in (None, optional_tokens.get(role))
    }
    if roles["unk"] is None:
        raise InvalidArgumentError(
            "unk_token is None, and some words are unknown to any vocabulary; name one"
        )
    for role, name in declared.items():
        if name not in special:
            raise InvalidArgumentError(
                f"{role}_token is {name!r}, which is not among special_tokens={special!r}; add it to them"
            )
    return special, declared


def compute_stats(
    counts: PretokenCounts,
    words: Mapping[str, int],
    tokenizer: WordModel,
    seconds: Mapping[str, float],
    *,
    exhausted: bool,
    notes: tuple[str, ...],
) -> TrainingStats:
    """What training saw, and how many tokens the text has.

    Args:
        counts: what was counted.
        words: of it, normalised, none left out.
        tokenizer: what was trained.
        seconds: by phase.
        exhausted: whether the text ran out before the vocabulary was full.
        notes: what was left out.
    """
    encoded = tokenizer.encode_segments(Segments(list(words), hold_bytes=True), sources=False)
    frequencies = np.fromiter(words.values(), np.int64, len(words))
    num_tokens = int(np.diff(encoded.splits) @ frequencies)
    return TrainingStats(
        documents=counts.documents,
        bytes=counts.nbytes,
        unique_words=len(words),
        seconds=seconds,
        bytes_per_token=counts.nbytes / num_tokens if num_tokens else 0.0,
        exhausted=exhausted,
        fingerprint=counts.fingerprint,
        files=counts.files,
        notes=notes,
    )
