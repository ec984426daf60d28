"""Training of byte-level BPE tokenizers: from bytes, or from an existing tokenizer.

The pre-tokens of the corpus are encoded with the initial tokenizer, and training starts from these tokens. An
example, with the tokenizer of the tokens `lo` and `low`, and the pre-token `slower`::

    bytes               s l o w e r
    encoded             s low e r           with the existing merges
    new merges          s low er, s lower   as in any BPE training

`train_bpe` starts from a tokenizer of bytes and special tokens. `continue_bpe` starts from any. With another
split pattern than that of the tokenizer, it is the second stage of SuperBPE.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from tokjax._util.checks import check_choice, check_int
from tokjax._util.display import show_progress_bar
from tokjax.bpe.batched_merging import BatchMerger
from tokjax.bpe.hash_tables import concatenate_pretokens
from tokjax.bpe.pretoken_cache import PretokenCache
from tokjax.core import protocol
from tokjax.core.vocabulary import MAX_ID, make_vocabulary
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError
from tokjax.models.byte_bpe import ByteLevelBPE, byte_level_bpe, get_normalize
from tokjax.models.vocabulary_changes import map_old_ids
from tokjax.pretokenize.patterns import make_pattern_splitter, split_alike
from tokjax.pretokenize.special_tokens import check_special_names
from tokjax.trainer.bpe.batched_training import Alphabet, TieBreak, TrainingRules, train_merges
from tokjax.trainer.bpe.linked_symbols import Symbols, drop_single, make_symbols
from tokjax.trainer.counting import count_pretokens
from tokjax.trainer.pretoken_counts import PretokenCounts
from tokjax.trainer.results import (
    Trained,
    describe_missing_pair,
    make_result,
    measure_time,
    record_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from tokjax.corpus.sources import Source
    from tokjax.pretokenize.patterns import Pattern
    from tokjax.trainer.bpe.batched_training import MergeResult

END_OF_TEXT = "<|endoftext|>"
"""The default EOS token of a trained tokenizer, if it is among the special tokens."""
_PRETOKENS_PER_BATCH = 1 << 16


def train_bpe(
    source: Source | PretokenCounts,
    *,
    vocab_size: int,
    special_tokens: Sequence[str] | None = None,
    pattern: Pattern | None = None,
    min_frequency: int = 1,
    tie_break: TieBreak = "lexicographic",
    workers: int | None = None,
    executor: Executor | None = None,
    progress: bool = True,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = None,
    unk_token: str | None = None,
) -> Trained[ByteLevelBPE]:
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
        The trained tokenizer, its merges, and statistics of the training. Ids are the 256 bytes, then the
        special tokens, then the merges.

    Raises:
        InvalidArgumentError: an option or the source is invalid.
        TrainingError: a worker of the executor died.

    >>> trained = train_bpe(["low low low lower"], vocab_size=259, progress=False)
    >>> trained.merges
    ((b'o', b'w'), (b'l', b'ow'), (b' ', b'low'))
    """
    options = record_options("bpe", locals())
    if isinstance(source, PretokenCounts):
        special_tokens = source.special_tokens if special_tokens is None else special_tokens
        pattern = source.pattern if pattern is None else pattern
    special = check_special_names(special_tokens or ())
    if eos_token is None and END_OF_TEXT in special:
        eos_token = END_OF_TEXT
    initial = byte_level_bpe(
        {bytes([i]): i for i in range(256)},
        pattern="gpt2" if pattern is None else pattern,
        special_tokens={name: 256 + i for i, name in enumerate(special)},
        bos_token=bos_token,
        eos_token=eos_token,
        pad_token=pad_token,
        unk_token=unk_token,
    )
    return _train(
        initial,
        source,
        options,
        f"256 bytes and {len(special)} special tokens",
        make_symbols,
        workers=workers,
        executor=executor,
        progress=progress,
    )


def continue_bpe(
    tokenizer: ByteLevelBPE,
    source: Source | PretokenCounts,
    *,
    vocab_size: int,
    pattern: Pattern | None = None,
    min_frequency: int = 1,
    tie_break: TieBreak = "lexicographic",
    workers: int | None = None,
    executor: Executor | None = None,
    progress: bool = True,
) -> tuple[Trained[ByteLevelBPE], NDArray[np.int32]]:
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
    options = record_options("bpe", locals()) | {"initial": protocol.fingerprint(tokenizer)}
    old_size = tokenizer.vocabulary.size
    pattern = make_pattern_splitter(tokenizer.pattern if pattern is None else pattern).pattern
    if tokenizer.add_prefix_space and not isinstance(source, PretokenCounts):
        raise InvalidArgumentError(
            "the tokenizer has add_prefix_space=True, which changes texts before they are split; count the "
            "changed texts, with count_pretokens((text if text[:1] == ' ' else ' ' + text for text in "
            f"texts), pattern={pattern!r}, special_tokens={_list_split_tokens(tokenizer)}), and pass the "
            "counts"
        )
    trained = _train(
        dataclasses.replace(tokenizer, pattern=pattern),
        source,
        options,
        f"the {old_size} ids of the tokenizer",
        lambda counts: _encode_counts(tokenizer, counts),
        workers=workers,
        executor=executor,
        progress=progress,
    )
    trained.tokenizer.rules  # noqa: B018 (raises if there are too many merges)
    return trained, map_old_ids(old_size, trained.tokenizer.vocabulary.size)


def _train(
    initial: ByteLevelBPE,
    source: Source | PretokenCounts,
    options: dict[str, Any],
    initial_tokens: str,
    make_initial_symbols: Callable[[PretokenCounts], Symbols],
    **counting: Any,
) -> Trained[ByteLevelBPE]:
    """Trains new merges of a tokenizer.

    Args:
        initial: the tokenizer, with the split pattern of the result.
        source: a corpus, or its pre-token counts.
        options: options of the trainer, as `record_options` returns them.
        initial_tokens: noun phrase for the ids of the tokenizer, for an error.
        make_initial_symbols: function that encodes counted pre-tokens with the tokenizer.
        **counting: `workers`, `executor` and `progress`, as in `count_pretokens`.
    """
    rules = _make_rules(initial.vocabulary.size, options)
    num_merges = _compute_num_merges(options["vocab_size"], rules.first_id, initial_tokens)
    seconds: dict[str, float] = {}
    with measure_time(seconds, "counting"):
        counts = _resolve_counts(initial, source, **counting)
    with (
        measure_time(seconds, "merging"),
        show_progress_bar("merging", num_merges, unit="merges", enabled=counting["progress"]) as advance,
    ):
        merged = train_merges(
            make_initial_symbols(counts),
            num_tokens=num_merges,
            rules=rules,
            advance=advance,
            alphabet=Alphabet({id_: token for token, id_ in initial.vocabulary.ordinary.items()}),
        )
    tokenizer = _append_merges(initial, merged)
    missing = describe_missing_pair(rules.min_frequency)
    return make_result(
        tokenizer,
        counts,
        options | {"pattern": initial.pattern},
        seconds,
        num_unique=len(counts),
        num_tokens=merged.num_tokens,
        missing=missing,
        merges=merged.merges,
    )


def _resolve_counts(
    initial: ByteLevelBPE, source: Source | PretokenCounts, **counting: Any
) -> PretokenCounts:
    """Counts the pre-tokens of a corpus, or checks existing counts.

    Raises:
        InvalidArgumentError: the counts were made with another pattern, or without a special token.
    """
    special_tokens = _list_split_tokens(initial)
    if not isinstance(source, PretokenCounts):
        return count_pretokens(
            source,
            special_tokens=special_tokens,
            pattern=initial.pattern,
            normalize=get_normalize(initial),
            **counting,
        )
    if not split_alike(source.pattern, initial.pattern):
        raise InvalidArgumentError(
            f"the pre-tokens were counted with pattern={source.pattern!r}, and the new tokenizer has "
            f"{initial.pattern!r}; count with pattern={initial.pattern!r}, or pass pattern={source.pattern!r}"
        )
    missing = [name for name in special_tokens if name not in source.special_tokens]
    if missing:
        raise InvalidArgumentError(
            f"the texts were not split at {missing[0]!r}, a special or added token of the tokenizer; count "
            f"with special_tokens={special_tokens}"
        )
    return source


def _encode_counts(tokenizer: ByteLevelBPE, counts: PretokenCounts) -> Symbols:
    """Encodes counted pre-tokens with a tokenizer, in batches that bound the memory."""
    pretokens, times = counts.to_counted_pretokens()
    cache = PretokenCache(tokenizer.rules.atomic_ids, BatchMerger(tokenizer.rules))
    ids, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for start in range(0, len(times), _PRETOKENS_PER_BATCH):
        indices = np.arange(start, min(start + _PRETOKENS_PER_BATCH, len(times)))
        [encoded] = cache.encode([concatenate_pretokens([pretokens.take(indices)])])
        ids.append(encoded.ids)
        lengths.append(encoded.counts.astype(np.int64))
    return drop_single(np.concatenate(ids), np.concatenate(lengths), times)


def _append_merges(tokenizer: ByteLevelBPE, merged: MergeResult) -> ByteLevelBPE:
    """Returns the tokenizer with new tokens and merges."""
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
    return dataclasses.replace(tokenizer, vocabulary=vocabulary, merges=merges)


def _list_split_tokens(tokenizer: ByteLevelBPE) -> list[str]:
    """Returns the names of all tokens at which texts are split, in the order of their ids."""
    vocabulary = tokenizer.vocabulary
    return sorted(vocabulary.split_token_names, key=vocabulary.get_id)


def _compute_num_merges(vocab_size: int, minimum: int, needed_for: str) -> int:
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


def _make_rules(first_id: int, options: Mapping[str, Any]) -> TrainingRules:
    """Returns the rules of training after a check of the options."""
    minimum = check_int("min_frequency", options["min_frequency"], minimum=1)
    check_choice("tie_break", options["tie_break"], get_args(TieBreak))
    return TrainingRules(first_id, minimum, options["tie_break"])
