"""A list of merges for ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def iter_merges(ranks: Mapping[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    """Every pair of tokens that makes a token, by the ranks of what they make.

    Args:
        ranks: bytes to id, the id being the rank.

    >>> list(iter_merges({b"a": 0, b"b": 1, b"aab": 4, b"ab": 2, b"aa": 3}))
    [(b'a', b'b'), (b'a', b'a'), (b'a', b'ab'), (b'aa', b'b')]
    """
    for token in sorted(ranks, key=ranks.__getitem__):
        for index in range(1, len(token)):
            if token[:index] in ranks and token[index:] in ranks:
                yield token[:index], token[index:]
