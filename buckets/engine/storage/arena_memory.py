"""The memory in which an arena lies: arrays that grow, by name, of this process alone or handed in from outside."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class MemoryPart:
    """An array that grows.

    Attributes:
        name: what it is called.
        dtype: of its numbers.
        columns: how many numbers a row has; 1 for an array of one dimension.
    """

    name: str
    dtype: type[np.generic]
    columns: int = 1

    @property
    def row_bytes(self) -> int:
        """How large a row is."""
        return self.columns * np.dtype(self.dtype).itemsize

    def shaped(self, numbers: Array) -> Array:
        """Return numbers as rows."""
        return numbers if self.columns == 1 else numbers.reshape(-1, self.columns)

    def empty(self, rows: int) -> Array:
        """Return so many rows in which there is anything."""
        return self.shaped(np.empty(rows * self.columns, self.dtype))


class ArenaMemory(Protocol):
    """Arrays that grow. An array that was returned before is not used any more."""

    def grow(self, part: MemoryPart, kept: int, rows: int) -> Array:
        """Return an array with at least so many rows, of which the first `kept` are as they were."""

    def fit(self, part: MemoryPart, kept: int) -> Array:
        """Return an array whose first `kept` rows are as they were, without most of the memory behind them."""


class PrivateMemory:
    """Arrays in the memory of this process, which goes with them."""

    def __init__(self) -> None:
        """Begin with none."""
        self._arrays: dict[str, Array] = {}

    def grow(self, part: MemoryPart, kept: int, rows: int) -> Array:
        """Return an array with at least so many rows; memory that is not used is not taken either."""
        array = self._arrays.get(part.name)
        if array is None:
            return self._of_rows(part, rows)
        return array if rows <= len(array) else self._of_rows(part, max(rows, len(array) * 3 // 2), array[:kept])

    def fit(self, part: MemoryPart, kept: int) -> Array:
        """Return an array of which at least half is used."""
        array = self._arrays[part.name]
        return array if len(array) <= 2 * kept else self._of_rows(part, kept, array[:kept])

    def _of_rows(self, part: MemoryPart, rows: int, kept: Array | None = None) -> Array:
        array = self._arrays[part.name] = part.empty(rows)
        if kept is not None:
            array[: len(kept)] = kept
        return array
