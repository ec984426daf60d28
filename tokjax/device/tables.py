"""Tables of a tokenizer for encoding and decoding under `jax.jit`, built on the host."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from tokjax.bpe.batched_merging import BatchMerger
from tokjax.bpe.hash_tables import make_pretokens
from tokjax.bpe.merge_bounds import find_pairs
from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import from_characters, to_characters
from tokjax.device.boundaries import make_split_tables
from tokjax.device.encode import COUNT_BITS, KEY_BYTES, TokenizerTables
from tokjax.device.hash_table import build_table
from tokjax.device.merging import NO_RANK, MergeTables
from tokjax.device.special import build_special_tables
from tokjax.errors import InvalidArgumentError
from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.pretokenize.boundary_tables import BoundaryTables
from tokjax.pretokenize.patterns import make_pattern_splitter
from tokjax.pretokenize.special_tokens import resolve_special

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tokjax.bpe.merge_rules import MergeRules
    from tokjax.core.protocol import Special
    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Vocabulary
    from tokjax.device.hash_table import HashTable
    from tokjax.pretokenize.patterns import PatternSplitter


def tokenizer_tables(
    tokenizer: Any, *, allowed_special: Special = (), texts: Iterable[Text] = ()
) -> TokenizerTables:
    """Builds the tables of a tokenizer for `encode_jit` and `decode_jit`, as arrays on the default device.

    Args:
        tokenizer: a byte-level BPE tokenizer with a split pattern that has boundary tables, as all named
            patterns do.
        allowed_special: special tokens that are recognized in texts, by name, or `"all"`. Others are encoded
            as ordinary text.
        texts: sample of the texts to encode. Their pre-tokens are merged on the host and put into the table,
            so that they are looked up on the device.

    Raises:
        InvalidArgumentError: the tokenizer is of another type, or has options that are not supported.
    """
    splitter, steps = _check_tokenizer(tokenizer)
    rules: MergeRules = tokenizer.rules
    words = set(filter(_fits, rules.atomic_ids)) | set(filter(_fits, rules.symbols))
    for text in texts:
        words.update(filter(_fits, map(from_characters, splitter.split(to_characters(text)))))
    vocabulary: Vocabulary = tokenizer.vocabulary
    names = resolve_special(vocabulary.special, allowed_special)[0] | vocabulary.added_names
    special = {name.encode("utf-8"): vocabulary.get_id(name) for name in sorted(names)}
    table, word_ids = _build_words(rules, sorted(words))
    tables: Any = TokenizerTables(
        split=tuple(map(make_split_tables, steps)),
        words=table,
        word_ids=word_ids,
        merges=_build_merges(rules),
        symbol_ids=rules.ids,
        token_bytes=vocabulary.all_bytes,
        token_splits=make_row_splits(np.maximum(vocabulary.byte_lengths, 0)).astype(np.int32),
        special=build_special_tables(special) if special else None,
    )
    on_device: TokenizerTables = jax.tree.map(jnp.asarray, tables)
    return on_device


def _check_tokenizer(tokenizer: Any) -> tuple[PatternSplitter, list[BoundaryTables]]:
    """Returns the splitter of a tokenizer and its tables, after a check that all options are supported."""
    if not isinstance(tokenizer, ByteLevelBPE):
        raise InvalidArgumentError(
            f"tokenizer_tables takes a byte-level BPE tokenizer, not a {type(tokenizer).__name__}; encode on "
            "the host, with encode_to_arrays"
        )
    unsupported = {
        "normalizer": tokenizer.normalizer is not None,
        "add_prefix_space": tokenizer.add_prefix_space,
        "trim_offsets": tokenizer.trim_offsets is not None,
    }
    for name, is_set in unsupported.items():
        if is_set:
            raise InvalidArgumentError(
                f"tokenizer_tables does not support {name}={getattr(tokenizer, name)!r}; encode on the host"
            )
    if any(any(token) for token in tokenizer.vocabulary.added_tokens.values()):
        raise InvalidArgumentError(
            "tokenizer_tables does not support added tokens with lstrip or rstrip; encode on the host"
        )
    splitter = make_pattern_splitter(tokenizer.pattern)
    steps = [tables for tables in splitter.tables if isinstance(tables, BoundaryTables)]
    if len(steps) < len(splitter.steps):
        raise InvalidArgumentError(
            f"the pattern {tokenizer.pattern!r:.80} has no boundary tables, which tokenizer_tables needs; "
            "encode on the host"
        )
    return splitter, steps


def _fits(word: bytes) -> bool:
    return 0 < len(word) <= KEY_BYTES


def _build_words(rules: MergeRules, words: list[bytes]) -> tuple[HashTable, NDArray[np.int32]]:
    """Returns the table of words, and the ids of all words, merged on the host."""
    merger = BatchMerger(rules)
    long = [token for token in rules.atomic_ids if len(token) > KEY_BYTES]
    merged = merger.merge(make_pretokens(long))
    ids = np.fromiter((rules.atomic_ids[token] for token in long), np.int64, len(long))
    if len(merged.ids) != len(long) or (merged.ids != ids).any():
        raise InvalidArgumentError(
            f"a token of more than {KEY_BYTES} bytes is not what its own bytes merge to, which "
            "tokenizer_tables does not support; encode on the host"
        )
    merged = merger.merge(make_pretokens(words))
    rows = np.split(merged.ids, np.cumsum(merged.counts)[:-1])
    atomic = rules.atomic_ids
    all_ids = [
        [atomic[word]] if word in atomic else row.tolist() for word, row in zip(words, rows, strict=True)
    ]
    counts = np.fromiter(map(len, all_ids), np.int64, len(all_ids))
    firsts = np.cumsum(counts) - counts
    padded = np.frombuffer(b"".join(word.ljust(KEY_BYTES, b"\0") for word in words), "<u4")
    lengths = np.fromiter(map(len, words), np.uint32, len(words))
    keys = np.column_stack([padded.reshape(-1, KEY_BYTES // 4), lengths]).astype(np.uint32)
    word_ids = np.fromiter(chain.from_iterable(all_ids), np.int32, int(counts.sum()))
    return build_table(keys, firsts << COUNT_BITS | counts), word_ids


def _build_merges(rules: MergeRules) -> MergeTables:
    """Returns the tables of the merge rules."""
    pairs = find_pairs(rules)
    # A token that can be split in several ways has the same pair several times only if the pairs are equal.
    keys, first = np.unique(
        np.column_stack([pairs.left, pairs.right]).astype(np.uint32), axis=0, return_index=True
    )
    byte_symbols = np.array([rules.symbols[bytes([i])] for i in range(256)], np.int32)
    symbol_bytes = np.full(int(max(byte_symbols.max(), keys.max(initial=0))) + 1, -1)
    symbol_bytes[byte_symbols] = np.arange(256)
    left, right = symbol_bytes[keys].T
    of_bytes = (left >= 0) & (right >= 0)
    byte_ranks = np.full(1 << 16, NO_RANK, np.int32)
    byte_ranks[left[of_bytes] << 8 | right[of_bytes]] = pairs.rank[first][of_bytes]
    table = build_table(keys, pairs.rank[first].astype(np.int64))
    return MergeTables(table, rules.merged_symbols, byte_symbols, byte_ranks)
