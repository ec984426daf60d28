"""Append-only growable array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)
_MARGIN = 1.1


class GrowableArray(Generic[Scalar]):
    """One-dimensional array that grows by appended parts.

    Concatenating a list of parts needs memory for the parts and for the result. This needs about half of
    that, which saves time as well, since memory is slow when it is used for the first time.

    Args:
        dtype: the scalar type of the array.
    """

    def __init__(self, dtype: type[Scalar]) -> None:
        self._array: NDArray[Any] = np.empty(0, dtype)
        self._size = 0

    def __len__(self) -> int:
        """Returns the number of elements."""
        return self._size

    def append(self, part: NDArray[Scalar], done: float) -> None:
        """Appends a part.

        Args:
            part: the elements to append, shape `(n,)`.
            done: approximate share of all elements that the array then holds, above 0 and at most 1. The
                capacity of the array is chosen by it.
        """
        size = self._size + len(part)
        if size > len(self._array):
            capacity = size if done >= 1 else int(_MARGIN * size / done)
            grown = np.empty(capacity, self._array.dtype)
            grown[: self._size] = self._array[: self._size]
            self._array = grown
        self._array[self._size : size] = part
        self._size = size

    def finish(self) -> NDArray[Scalar]:
        """Returns the array. Nothing can be appended afterwards."""
        self._array.resize(self._size, refcheck=False)  # frees the unused capacity without a copy
        return self._array
