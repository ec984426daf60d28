"""Special tokens in text, found under `jax.jit`.

All positions whose first two bytes begin a special token walk through a trie of the tokens in parallel, one
byte per step. Of the matches, the leftmost is taken, and at one position the longest, as on the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tokjax.device.scans import Neighbors, cumulative_sum, find_true, pack, running_maximum

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jax import Array

_ROOT = 1
_NO_NODE = 0


class SpecialTables(NamedTuple):
    """Special tokens to recognize, a pytree of arrays.

    Attributes:
        begins: whether a token can begin with two bytes, `bool`, shape `(256, 256)`.
        next_node: node of the trie after each byte, 0 for none; `int32`, shape `(nodes, 256)`.
        ids: id of the token that ends at each node, -1 for none; `int32`, shape `(nodes,)`.
    """

    begins: Any
    next_node: Any
    ids: Any


class SpecialMatches(NamedTuple):
    """Special tokens of all texts, by byte. Arrays of shape `(n,)`.

    Attributes:
        ids: id of the token that starts at each byte, -1 elsewhere; `int32`.
        is_cut: whether a token starts at each byte, or ends before it; `bool`.
        is_inside: whether a byte is in a token, and not its first one; `bool`.
        needed: number of candidates, `int32`, shape `()`.
    """

    ids: Array
    is_cut: Array
    is_inside: Array
    needed: Array


def build_special_tables(ids: Mapping[bytes, int]) -> SpecialTables:
    """Builds the trie of special tokens, which must not be empty."""
    nodes: list[dict[int, int]] = [{}, {}]
    node_ids = [-1, -1]
    begins = np.zeros((256, 256), bool)
    for token, id_ in ids.items():
        begins[token[0], token[1] if len(token) > 1 else slice(None)] = True
        node = _ROOT
        for byte in token:
            if byte not in nodes[node]:
                nodes[node][byte] = len(nodes)
                nodes.append({})
                node_ids.append(-1)
            node = nodes[node][byte]
        node_ids[node] = id_
    next_node = np.zeros((len(nodes), 256), np.int32)
    for node, children in enumerate(nodes):
        for byte, child in children.items():
            next_node[node, byte] = child
    return SpecialTables(begins, next_node, np.array(node_ids, np.int32))


def find_special(tables: SpecialTables, data: Array, is_cut: Array, capacity: int) -> SpecialMatches:
    """Finds special tokens.

    Args:
        tables: the tokens.
        data: bytes, `uint8`, shape `(n,)`.
        is_cut: whether a text starts at each byte, or ends before it; `bool`, shape `(n,)`.
        capacity: number of positions at which tokens can be looked for.
    """
    length = data.shape[0]
    following = Neighbors(data, 0, 1).at(1)
    begins = tables.begins[data.astype(jnp.int32), following.astype(jnp.int32)]
    packed = pack(begins)
    first, needed = find_true(packed, capacity, length), packed.num_true
    ids, stops = _walk(tables, data, is_cut, first)
    # Matches rarely overlap. If some do, a match that starts before the previous one ends is dropped.
    earlier = running_maximum(jnp.pad(jnp.where(ids >= 0, stops, 0)[:-1], (1, 0)))
    overlaps = ((ids >= 0) & (first < earlier)).any()
    ids = jax.lax.cond(overlaps, lambda: _drop_overlapping(first, stops, ids), lambda: ids)
    is_match = ids >= 0
    at, after = jnp.where(is_match, first, length), jnp.where(is_match, stops, length)
    marks = jnp.zeros(length, jnp.int32)
    depth = marks.at[at + 1].add(1, mode="drop").at[after].add(-1, mode="drop")
    return SpecialMatches(
        jnp.full(length, -1, jnp.int32).at[at].set(ids, mode="drop"),
        jnp.zeros(length, bool).at[at].set(True, mode="drop").at[after].set(True, mode="drop"),
        cumulative_sum(depth) > 0,
        needed,
    )


def _walk(tables: SpecialTables, data: Array, is_cut: Array, first: Array) -> tuple[Array, Array]:
    """Returns the id of the longest token that starts at each position, -1 for none, and its end."""
    length = data.shape[0]

    def step(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        node, at, ids, stops = carry
        inside = jnp.minimum(at, length - 1)
        ended = (at >= length) | (is_cut[inside] & (at > first))
        node = jnp.where(ended, _NO_NODE, tables.next_node[node, data[inside].astype(jnp.int32)])
        found = tables.ids[node]
        return node, at + 1, jnp.where(found >= 0, found, ids), jnp.where(found >= 0, at + 1, stops)

    start = (
        jnp.where(first < length, _ROOT, _NO_NODE).astype(jnp.int32),
        first,
        0 * first - 1,
        first,
    )
    _, _, ids, stops = jax.lax.while_loop(lambda carry: (carry[0] != _NO_NODE).any(), step, start)
    return ids, stops


def _drop_overlapping(first: Array, stops: Array, ids: Array) -> Array:
    """Returns the ids, -1 for matches that start before the previous one that is kept ends."""

    def step(end: Array, match: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        start, stop, id_ = match
        kept = (id_ >= 0) & (start >= end)
        return jnp.where(kept, stop, end), jnp.where(kept, id_, -1)

    return jax.lax.scan(step, 0 * first[0], (first, stops, ids))[1]
