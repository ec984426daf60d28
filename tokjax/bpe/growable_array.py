"""An array that is made part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)
_MARGIN = 1.1


class GrowableArray(Generic[Scalar]):
    """Parts laid end to end as they come: the parts need not be kept until the last of them is there.

    Memory that was never used before is slow to get, and this asks for about half as much as a list of parts.
    """

    def __init__(self, dtype: type[Scalar]) -> None:
        self._array: NDArray[Any] = np.empty(0, dtype)
        self._size = 0

    def __len__(self) -> int:
        """How much there is so far."""
        return self._size

    def append(self, part: NDArray[Scalar], done: float) -> None:
        """Add a part.

        Args:
            part: shape `(n,)`.
            done: how much of the whole is there with it, about: above 0, up to 1.
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
        """All parts. Nothing can be added afterwards."""
        self._array.resize(self._size, refcheck=False)  # shorter: memory that was never used goes back
        return self._array
