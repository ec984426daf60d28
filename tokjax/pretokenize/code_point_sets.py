r"""Sets of code points, such as `[^\r\n\p{L}]` in a split pattern.

A set is an ascending array of the code points at which membership changes. `[a-cx]` is `[97, 100, 120, 121]`:
97 to 99 are members, and 120. Union, intersection and complement only have to look at these points.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokjax.core.sorting import find_distinct
from tokjax.pretokenize.unicode_classes import (
    CODE_POINTS,
    PROPERTIES,
    load_category_runs,
    load_han_ranges,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

CodePointSet: TypeAlias = NDArray[np.int64]
"""The code points at which membership changes, ascending, `int64`. It starts without membership."""
EMPTY_SET: CodePointSet = np.zeros(0, np.int64)


def make_range(first: int, last: int) -> CodePointSet:
    """Returns the set of the code points from `first` to `last`, both included."""
    return np.array([first, last + 1])


def make_set(characters: Iterable[str]) -> CodePointSet:
    """Returns the set of some characters."""
    return unite([make_range(ord(character), ord(character)) for character in characters])


def contains(members: CodePointSet, codes: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Returns which code points are in a set, `bool`, in the shape of `codes`."""
    inside: NDArray[np.bool_] = np.searchsorted(members, codes, "right") % 2 == 1
    return inside


def unite(sets: Iterable[CodePointSet]) -> CodePointSet:
    """Returns the union of sets.

    >>> unite([make_range(97, 99), make_range(98, 100)]).tolist()
    [97, 101]
    """
    sets = list(sets)
    if not sets:
        return EMPTY_SET
    points = find_distinct(np.concatenate(sets))
    return _find_changes(points, np.any([contains(members, points) for members in sets], axis=0))


def intersect(left: CodePointSet, right: CodePointSet) -> CodePointSet:
    """Returns the intersection of two sets."""
    return complement(unite([complement(left), complement(right)]))


def complement(members: CodePointSet) -> CodePointSet:
    """Returns the set of all other code points.

    >>> complement(make_range(97, 99)).tolist()
    [0, 97, 100]
    """
    return members[1:] if len(members) and members[0] == 0 else np.append([0], members)


@lru_cache(maxsize=32)
def find_property(name: str) -> CodePointSet | None:
    r"""Returns the code points with a Unicode property, as in `\p{Lu}`; `None` for an unknown name."""
    if name == "Han":
        return unite(make_range(first, last) for first, last in load_han_ranges())
    if name not in PROPERTIES:
        return None
    starts, categories = load_category_runs()
    return _find_changes(starts, np.isin(categories, PROPERTIES[name]))


def _find_changes(points: NDArray[np.int64], inside: NDArray[np.bool_]) -> CodePointSet:
    """Returns the points at which membership changes, without those that are not code points."""
    changed = points[np.flatnonzero(np.diff(inside, prepend=False))]
    return changed[changed < CODE_POINTS]
