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
from tokjax.device.merging import NO_RANK, THREE_BYTES, MergeTables
from tokjax.device.special import build_special_tables
from tokjax.errors import InvalidArgumentError
from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.pretokenize.boundary_tables import BoundaryTables
from tokjax.pretokenize.patterns import make_pattern_splitter
from tokjax.pretokenize.special_tokens import resolve_special

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tokjax.bpe.merge_bounds import MergePairs
    from tokjax.bpe.merge_rules import MergeRules
    from tokjax.core.encode_options import Special
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
        "dropout": tokenizer.dropout is not None,
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
    keys, first = np.unique(pairs.left.astype(np.int64) << 32 | pairs.right, return_index=True)
    ranks = pairs.rank[first]
    columns = np.column_stack([keys >> 32, keys & 0xFFFFFFFF]).astype(np.uint32)
    byte_symbols = np.array([rules.symbols[bytes([i])] for i in range(256)], np.int32)
    characters, character_ranks = _merge_characters(rules, keys, ranks, byte_symbols)
    return MergeTables(
        pairs=build_table(columns, ranks.astype(np.int64)),
        merged=rules.merged_symbols,
        byte_symbols=byte_symbols,
        joint_ranks=_find_joint_ranks(rules, pairs),
        characters=characters,
        character_ranks=character_ranks,
    )


def _find_joint_ranks(rules: MergeRules, pairs: MergePairs) -> NDArray[np.int32]:
    """Returns the lowest rank of the pairs that meet at two bytes, by `first << 8 | second`."""
    first_bytes, last_bytes = np.zeros((2, max(rules.symbols.values()) + 1), np.int64)
    for token, symbol in rules.symbols.items():
        first_bytes[symbol], last_bytes[symbol] = token[0], token[-1]
    ranks = np.full(1 << 16, NO_RANK, np.int32)
    np.minimum.at(ranks, last_bytes[pairs.left] << 8 | first_bytes[pairs.right], pairs.rank)
    return ranks


def _merge_characters(
    rules: MergeRules, keys: NDArray[np.int64], ranks: NDArray[np.int32], byte_symbols: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Merges the bytes of each character of two or three bytes, as if it were a word.

    Args:
        rules: the merge rules.
        keys: pairs that merge, as `left << 32 | right`, ascending.
        ranks: rank of each pair.
        byte_symbols: symbol of each byte.

    Returns:
        `characters` and `character_ranks` of `MergeTables`.
    """
    keys, ranks = np.append(keys, np.iinfo(np.int64).max), np.append(ranks, NO_RANK)

    def merge(left: NDArray[np.int32], right: NDArray[np.int32]) -> tuple[Any, Any]:
        """Returns the ranks of pairs, and the symbols that they become."""
        pair = left.astype(np.int64) << 32 | right
        at = np.searchsorted(keys, pair)
        rank = np.where(keys[at] == pair, ranks[at], NO_RANK)
        merged = np.full(len(rank), -1, np.int32)
        merged[rank != NO_RANK] = rules.get_merged_symbols(rank[rank != NO_RANK])
        return rank, merged

    codes = np.arange(0x80, 1 << 16)
    is_long = codes >= THREE_BYTES
    lead = np.where(is_long, 0xE0 | codes >> 12, 0xC0 | codes >> 6)
    middle = 0x80 | np.where(is_long, codes >> 6, codes) & 0x3F
    first, second = byte_symbols[lead], byte_symbols[middle]
    third = np.where(is_long, byte_symbols[0x80 | codes & 0x3F], -1)
    left_rank, left = merge(first, second)
    right_rank, right = merge(second, third)
    is_left, is_right = (left_rank != NO_RANK) & (left_rank <= right_rank), right_rank < left_rank
    # Of two bytes that merge, the second one has no symbol any more.
    first, second = np.where(is_left, left, first), np.where(is_left, -1, np.where(is_right, right, second))
    third = np.where(is_right, -1, third)
    last_rank, both = merge(first, np.where(is_left, third, second))
    is_one = (is_left | is_right) & (last_rank != NO_RANK)
    highest = np.minimum(left_rank, right_rank)
    characters, character_ranks = np.full((1 << 16, 3), -1, np.int32), np.full(1 << 16, NO_RANK, np.int32)
    characters[codes, 0] = np.where(is_one, both, first)
    characters[codes, 1:] = np.where(is_one, -1, [second, third]).T
    character_ranks[codes] = np.where(is_one, np.maximum(highest, last_rank), highest)
    return characters.reshape(-1), character_ranks
