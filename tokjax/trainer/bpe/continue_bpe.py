"""Continued training: new merges for an existing byte-level BPE tokenizer.

The pre-tokens of the new corpus are encoded with the existing tokenizer. Training starts from these tokens,
not from bytes. An example, with the tokenizer of the tokens `lo` and `low`, and the pre-token `slower`::

    bytes               s l o w e r
    encoded             s low e r           with the existing merges
    new merges          s low er, s lower   as in any BPE training

With another split pattern than that of the tokenizer, this is the second stage of SuperBPE.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

import numpy as np

from tokjax.bpe.batched_merging import BatchMerger
from tokjax.bpe.hash_tables import concatenate_pretokens
from tokjax.bpe.pretoken_cache import PretokenCache
from tokjax.core import protocol
from tokjax.core.vocabulary import make_vocabulary
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError
from tokjax.models.byte_bpe import ByteLevelBPE, get_normalize
from tokjax.models.vocabulary_changes import map_old_ids
from tokjax.pretokenize.patterns import make_pattern_splitter, split_alike
from tokjax.trainer.bpe.batched_training import Alphabet
from tokjax.trainer.bpe.linked_symbols import Symbols
from tokjax.trainer.bpe.train_bpe import (
    TrainedBPE,
    build_stats,
    compute_num_merges,
    describe_pairs,
    make_rules,
    merge_pairs,
)
from tokjax.trainer.counting import count_pretokens
from tokjax.trainer.pretoken_counts import PretokenCounts
from tokjax.trainer.results import warn_if_exhausted

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from tokjax.bpe.batched_merging import PretokenIds
    from tokjax.corpus.sources import Source
    from tokjax.pretokenize.patterns import Pattern
    from tokjax.trainer.bpe.batched_training import MergeResult, TieBreak

_PRETOKENS_PER_BATCH = 1 << 16
_MAX_SHOWN_TOKENS = 5


def continue_bpe(
    tokenizer: ByteLevelBPE,
    source: Source | PretokenCounts,
    *,
    vocab_size: int,
    pattern: Pattern | None = None,
    min_frequency: int = 1,
    max_token_length: int | None = None,
    tie_break: TieBreak = "lexicographic",
    workers: int | None = None,
    executor: Executor | None = None,
    progress: bool = True,
) -> tuple[TrainedBPE, NDArray[np.int32]]:
    """Adds merges that are learned from a corpus to a byte-level BPE tokenizer.

    All tokens keep their ids, and special tokens, roles and template stay. The pre-tokens of the corpus are
    encoded with the tokenizer, and from these tokens on, the most frequent pair is merged, again and again,
    as in `train_bpe`. To add tokens that are known by name, use `extend_vocabulary`.

    Args:
        tokenizer: byte-level BPE tokenizer, trained or loaded, with ranks or with a list of merges.
        source: a corpus, read as in `count_pretokens`; or the result of that function, counted with
            `pattern`, and split at all special and added tokens of the tokenizer.
        vocab_size: number of ids of the new vocabulary. New ids start at the old vocabulary size.
        pattern: the split pattern of the new tokenizer; `None` for that of `tokenizer`. A pattern that does
            not split at spaces makes tokens of several words, as the second stage of SuperBPE does.
        min_frequency: as in `train_bpe`.
        max_token_length: as in `train_bpe`, for new tokens.
        tie_break: as in `train_bpe`. With `"huggingface"`, of equally frequent pairs the one with the lower
            ids is merged first.
        workers: as in `train_bpe`.
        executor: as in `train_bpe`.
        progress: as in `train_bpe`.

    Returns:
        The new tokenizer with its new merges and the statistics of the training; and the old id of each new
        id, or -1 for new tokens, `int32`, shape `(new_vocab_size,)`, to copy the rows of an embedding table.

    Raises:
        UnsupportedTokenizerError: the tokenizer is not a byte-level BPE.
        InvalidArgumentError: an option or the source is invalid; `vocab_size` is smaller than the vocabulary;
            the counts were made with another pattern or without a special token; or the tokenizer changes
            texts before they are split, and `source` is a corpus.
        TrainingError: a worker of the executor died.

    >>> from tokjax.trainer import train_bpe
    >>> base = train_bpe(["low low low"], vocab_size=259, progress=False).tokenizer
    >>> continued, old_ids = continue_bpe(base, ["slow slower"], vocab_size=261, progress=False)
    >>> continued.merges
    ((b's', b'low'), (b'slow', b'e'))
    >>> old_ids[-3:].tolist()
    [258, -1, -1]
    """
    if not isinstance(tokenizer, ByteLevelBPE):
        raise UnsupportedTokenizerError(
            f"continue_bpe needs a byte-level BPE tokenizer, not a {type(tokenizer).__name__}"
            + (
                protocol.suggest_tokenizer(tokenizer)
                or "; train a new vocabulary with one of the train_ functions, or add tokens by name with "
                "extend_vocabulary"
            )
        )
    old_size = tokenizer.vocabulary.size
    rules = make_rules(old_size, min_frequency, max_token_length, tie_break)
    num_merges = compute_num_merges(vocab_size, old_size, f"the {old_size} ids of the tokenizer")
    pattern = make_pattern_splitter(tokenizer.pattern if pattern is None else pattern).pattern
    begin = time.perf_counter()
    if isinstance(source, PretokenCounts):
        counts = source
        _check_counts(tokenizer, counts, pattern)
    else:
        _check_no_prefix_space(tokenizer)
        counts = count_pretokens(
            source,
            special_tokens=_list_split_tokens(tokenizer),
            pattern=pattern,
            normalize=get_normalize(tokenizer),
            workers=workers,
            executor=executor,
            progress=progress,
        )
    end_of_counting = time.perf_counter()
    symbols = encode_counts(tokenizer, counts)
    end_of_encoding = time.perf_counter()
    merged = merge_pairs(
        symbols,
        num_tokens=num_merges,
        rules=rules,
        progress=progress,
        alphabet=Alphabet({id_: token for token, id_ in tokenizer.vocabulary.ordinary.items()}),
    )
    seconds = {
        "counting": end_of_counting - begin,
        "encoding": end_of_encoding - end_of_counting,
        "merging": time.perf_counter() - end_of_encoding,
    }
    continued = _append_merges(tokenizer, merged, pattern)
    exhausted = warn_if_exhausted(continued.vocabulary, old_size + num_merges, describe_pairs(rules))
    trained = TrainedBPE(
        continued,
        build_stats(counts, merged, seconds, exhausted=exhausted),
        {
            "trainer": "bpe",
            "initial": protocol.fingerprint(tokenizer),
            "vocab_size": old_size + num_merges,
            "special_tokens": list(tokenizer.vocabulary.special),
            "pattern": pattern,
            "min_frequency": rules.min_frequency,
            "max_token_length": rules.max_token_length,
            "tie_break": rules.tie_break,
        },
        merged.merges,
    )
    return trained, map_old_ids(old_size, continued.vocabulary.size)


def encode_counts(tokenizer: ByteLevelBPE, counts: PretokenCounts) -> Symbols:
    """Encodes counted pre-tokens with a tokenizer, in batches that bound the memory."""
    pretokens, times = counts.to_counted_pretokens()
    cache = PretokenCache(tokenizer.rules.atomic_ids, BatchMerger(tokenizer.rules))
    ids, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for start in range(0, len(times), _PRETOKENS_PER_BATCH):
        indices = np.arange(start, min(start + _PRETOKENS_PER_BATCH, len(times)))
        [encoded] = cache.encode([concatenate_pretokens([pretokens.take(indices)])])
        lengths.append(encoded.counts.astype(np.int64))
        ids.append(_select_long(encoded))
    all_lengths = np.concatenate(lengths)
    is_long = all_lengths > 1
    return Symbols(np.concatenate(ids), all_lengths[is_long], times[is_long], int(times[~is_long].sum()))


def _select_long(encoded: PretokenIds) -> NDArray[np.int32]:
    """Returns the ids of the pre-tokens that are more than one token."""
    return encoded.ids.take(np.flatnonzero(np.repeat(encoded.counts > 1, encoded.counts)))


def _append_merges(tokenizer: ByteLevelBPE, merged: MergeResult, pattern: Pattern) -> ByteLevelBPE:
    """Returns the tokenizer with new tokens and merges, and another pattern."""
    old = tokenizer.vocabulary
    vocabulary = make_vocabulary(
        {token: id_ for id_, token in merged.token.items()},
        old.special,
        old.roles,
        old.explicit_template,
        old.added_tokens,
        old.duplicate_token_ids,
        old.unreachable_ids,
    )
    # A pair merges again if a new merge makes one of its tokens. The list has each pair once.
    merges = None if tokenizer.merges is None else tuple(dict.fromkeys([*tokenizer.merges, *merged.merges]))
    return dataclasses.replace(tokenizer, vocabulary=vocabulary, pattern=pattern, merges=merges)


def _list_split_tokens(tokenizer: ByteLevelBPE) -> list[str]:
    """Returns the names of all tokens at which texts are split, in the order of their ids."""
    vocabulary = tokenizer.vocabulary
    return sorted(vocabulary.split_token_names, key=vocabulary.get_id)


def _check_no_prefix_space(tokenizer: ByteLevelBPE) -> None:
    """Raises `InvalidArgumentError` if a space has to be added before each text."""
    if tokenizer.add_prefix_space:
        raise InvalidArgumentError(
            "the tokenizer has add_prefix_space=True, which changes texts before they are split; count the "
            "changed texts, with count_pretokens((text if text[:1] == ' ' else ' ' + text for text in "
            f"texts), pattern={tokenizer.pattern!r}, special_tokens={_format_split_tokens(tokenizer)}), and "
            "pass the counts"
        )


def _format_split_tokens(tokenizer: ByteLevelBPE) -> str:
    """Returns the list of the special and added tokens of a tokenizer, or how to get a long list."""
    names = _list_split_tokens(tokenizer)
    is_long = len(names) > _MAX_SHOWN_TOKENS
    return "list(tokenizer.vocabulary.split_token_names)" if is_long else repr(names)


def _check_counts(tokenizer: ByteLevelBPE, counts: PretokenCounts, pattern: Pattern) -> None:
    """Raises `InvalidArgumentError` for counts with another pattern, or without a special token."""
    if not split_alike(counts.pattern, pattern):
        raise InvalidArgumentError(
            f"the pre-tokens were counted with pattern={counts.pattern!r}, and the new tokenizer has "
            f"{pattern!r}; count with pattern={pattern!r}, or pass pattern={counts.pattern!r}"
        )
    missing = [name for name in _list_split_tokens(tokenizer) if name not in counts.special_tokens]
    if missing:
        raise InvalidArgumentError(
            f"the texts were not split at {missing[0]!r}, a special or added token of the tokenizer; count "
            f"with special_tokens={_format_split_tokens(tokenizer)}"
        )
