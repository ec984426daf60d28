"""N-gram hash ids: the row of an embedding table for the last tokens up to each position.

The hash is computed in 64-bit integers, which JAX lacks by default. So each is a pair of `uint32` arrays, the
high and the low 32 bits, and products are computed from halves of 16 bits. For the tokens 7 5 3, an n-gram of
size 2 at the last position, and a table of 100 rows:

    (3 * multipliers[0]) xor (5 * multipliers[1])  mod 2**64  mod 100
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokjax._util.arrays import Array, get_namespace, jit_eager
from tokjax._util.checks import MAX_INT32, check_choice, check_id, check_int, check_iterable
from tokjax.core.array_inputs import as_aligned_integers, as_tokens
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOW_16, _LOW_32 = (1 << 16) - 1, (1 << 32) - 1


def ngram_hash_ids(
    ids: Array,
    *,
    tables: Sequence[tuple[int, int]],
    multipliers: Sequence[int],
    pad_id: int,
    segment_ids: Array | None = None,
    combine: Literal["xor", "add"] = "xor",
) -> Array:
    """Returns hashes of the n-gram that ends at each position, as row numbers of embedding tables.

    The hash of an n-gram is the combination of its products, modulo 2**64 and then modulo the size of the
    table. The product of a token is its id times `multipliers[distance]`, where the distance to the last
    token of the n-gram is 0 for this token itself.

    | model | `combine` | `multipliers` |
    |---|---|---|
    | Engram (DeepSeek) | `"xor"` | random odd numbers below 2**63 / vocabulary size, others for each layer; table sizes are distinct primes, and several tables per n are the heads |
    | over-encoding (Over-Tokenized Transformer) | `"add"` | 1, `vocab_size`, `vocab_size**2`: n-grams are numbers in base `vocab_size`, exact up to 2**64 |

    Args:
        ids: token ids, integers of at least 0, shape `(..., length)`. Engram maps ids to those of a smaller
            vocabulary first: `lookup[ids]`.
        tables: `(n, size)` of each table: the number of tokens in its n-grams, and its number of rows.
        multipliers: factor for each distance, integers from 1 to 2**64 - 1; as many as the largest n.
        pad_id: id that replaces tokens before the start of the row or of the document.
        segment_ids: index of the document of each position, integers, shape `(..., length)`; n-grams do not
            extend over two documents.
        combine: `"xor"` or `"add"`.

    Returns:
        Row numbers, `int32`, shape `(..., length, num_tables)`, each from 0 to the size of its table - 1. For
        one embedding matrix that holds all tables, add the first row of each table. A JAX array for a JAX
        input, else a NumPy array.

    Raises:
        InvalidArgumentError: there is no table, an n-gram is longer than `multipliers`, an option is out of
            bounds, shapes do not match, or an id is negative (which is not checked in JAX arrays).

    >>> ngram_hash_ids(np.array([7, 5, 3]), tables=[(1, 100), (2, 100)], multipliers=[1, 10], pad_id=0)
    array([[ 7,  7],
           [ 5, 67],
           [ 3, 49]], dtype=int32)
    """  # noqa: E501 (a row of a table is one line)
    check_choice("combine", combine, ("xor", "add"))
    check_id("pad_id", pad_id)
    factors = tuple(
        check_int("multipliers", factor, minimum=1, maximum=2**64 - 1)
        for factor in check_iterable("multipliers", multipliers)
    )
    shapes = tuple(_check_table(table, len(factors)) for table in check_iterable("tables", tables))
    if not shapes:
        raise InvalidArgumentError("tables is empty; pass (n, size) of at least one table")
    return _hash_ngrams(ids, shapes, factors, pad_id, segment_ids, combine)


def _check_table(table: Any, max_n: int) -> tuple[int, int]:
    if not isinstance(table, tuple) or len(table) != 2:
        raise InvalidArgumentError(f"tables must hold pairs (n, size), not {table!r}")
    n = check_int("n of a table", table[0], minimum=1)
    if n > max_n:
        raise InvalidArgumentError(f"a table has n-grams of {n} tokens, but there are {max_n} multipliers")
    return n, check_int("size of a table", table[1], minimum=1, maximum=MAX_INT32)


@jit_eager
def _hash_ngrams(
    ids: Array,
    tables: tuple[tuple[int, int], ...],
    multipliers: tuple[int, ...],
    pad_id: int,
    segment_ids: Array | None,
    combine: str,
) -> Array:
    xp = get_namespace(ids, segment_ids, pad_id)
    tokens = as_tokens(ids)
    if xp is np and (min(pad_id, tokens.min(initial=0)) < 0):
        raise InvalidArgumentError(
            f"ids and pad_id must be at least 0, not {min(pad_id, tokens.min(initial=0))}"
        )
    segments = None if segment_ids is None else as_aligned_integers("segment_ids", segment_ids, tokens)
    hashes: dict[int, Any] = {}
    high = low = xp.zeros_like(tokens, dtype=np.uint32)
    for distance in range(max(n for n, _ in tables)):
        earlier = _get_earlier_tokens(xp, tokens, segments, distance, pad_id)
        product = _multiply(earlier.astype(np.uint32), multipliers[distance])
        high, low = _combine(combine, (high, low), product)
        hashes[distance + 1] = high, low
    rows = [_take_modulo(hashes[n], size) for n, size in tables]
    return xp.stack(rows, axis=-1).astype(np.int32)  # type: ignore[no-any-return]


def _get_earlier_tokens(xp: Any, tokens: Any, segments: Any, distance: int, pad_id: int) -> Any:
    """Returns the token `distance` positions before each, or `pad_id` before the start of its document."""
    filler = xp.asarray(pad_id, dtype=np.int32)
    earlier = _shift_right(xp, tokens, distance, filler)
    if segments is None:
        return earlier
    is_start = segments != _shift_right(xp, segments, 1, segments[..., :1])
    for step in range(distance):  # a document that starts after the earlier token hides it
        earlier = xp.where(_shift_right(xp, is_start, step, False), filler, earlier)
    return earlier


def _shift_right(xp: Any, values: Any, distance: int, fill: Any) -> Any:
    """Returns the value that is `distance` positions earlier, or `fill` before the start; the same shape."""
    if distance == 0:
        return values
    before = xp.repeat(xp.full_like(values[..., :1], fill), distance, axis=-1)
    return xp.concatenate([before, values], axis=-1)[..., : values.shape[-1]]


def _multiply(tokens: Any, factor: int) -> tuple[Any, Any]:
    """Returns the high and the low 32 bits of `tokens * factor` modulo 2**64.

    Args:
        tokens: `uint32`, any shape.
        factor: integer below 2**64.
    """
    low_factor, high_factor = factor & _LOW_32, factor >> 32
    # Schoolbook multiplication in base 2**16: no intermediate sum exceeds 32 bits.
    upper, lower = tokens >> np.uint32(16), tokens & np.uint32(_LOW_16)
    factor_upper, factor_lower = np.uint32(low_factor >> 16), np.uint32(low_factor & _LOW_16)
    first = upper * factor_lower + ((lower * factor_lower) >> np.uint32(16))
    second = lower * factor_upper + (first & np.uint32(_LOW_16))
    carried = upper * factor_upper + (first >> np.uint32(16)) + (second >> np.uint32(16))
    return carried + tokens * np.uint32(high_factor), tokens * np.uint32(low_factor)


def _combine(combine: str, left: tuple[Any, Any], right: tuple[Any, Any]) -> tuple[Any, Any]:
    """Combines two 64-bit integers, each the high and the low 32 bits."""
    if combine == "xor":
        return left[0] ^ right[0], left[1] ^ right[1]
    low = left[1] + right[1]
    return left[0] + right[0] + (low < right[1]).astype(np.uint32), low


def _take_modulo(value: tuple[Any, Any], size: int) -> Any:
    """Returns a 64-bit integer modulo `size`, by long division: a few bits of the low half at a time."""
    high, low = value
    divisor = np.uint32(size)
    remainder = high % divisor
    step = min(16, 32 - (size - 1).bit_length())  # number of bits that fit after the remainder
    for stop in range(32, 0, -step):
        width = min(step, stop)
        bits = (low >> np.uint32(stop - width)) & np.uint32((1 << width) - 1)
        remainder = ((remainder << np.uint32(width)) | bits) % divisor
    return remainder
