"""A block of a vector table, with a mask of its current rows."""

from collections.abc import Collection, Iterable, Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from copilot_runtime.extensions.knowledge.access import FULL_ACCESS
from copilot_runtime.extensions.knowledge.filter import Filter
from copilot_runtime.extensions.knowledge.identifiers import contains
from copilot_runtime.extensions.knowledge.vectors.segment import Segment

_MOST_MASKS = 32


class Block:
    """Rows of a table. A block never changes: `without` returns another one of the same rows."""

    def __init__(self, segment: Segment, name: str = "") -> None:
        self.segment = segment
        self.name = name
        self.positions = np.array(segment.columns.positions, np.int64)
        self.row_numbers = {uri: row for row, uri in enumerate(segment.columns.uris)}
        self.current = np.ones(len(segment), np.bool_)
        """Mask of the rows that no later change replaces or removes."""
        self.count = len(segment)
        """Number of current rows."""
        self._masks: dict[object, NDArray[np.bool_]] = {}

    def __len__(self) -> int:
        return len(self.segment)

    @property
    def is_half_dead(self) -> bool:
        return self.count * 2 < len(self)

    def find(self, uri: str) -> int | None:
        """Return the current row of a URI, or `None`."""
        row = self.row_numbers.get(uri)
        return row if row is not None and self.current[row] else None

    def find_many(self, uris: Collection[str]) -> Iterable[tuple[str, int]]:
        """Return the current rows of some URIs, a set or the keys of a dictionary."""
        common = self.row_numbers.keys() & uris
        return ((uri, row) for uri in common if (row := self.find(uri)) is not None)

    def without(self, uris: Collection[str]) -> "Block":
        """Return the block without the rows of some URIs."""
        rows = [row for _, row in self.find_many(uris)]
        if not rows:
            return self
        other = copy(self)
        other.current = self.current.copy()
        other.current[rows] = False
        other.count = self.count - len(rows)
        return other

    def restore(self) -> "Block":
        """Return the block with all rows current."""
        other = copy(self)
        other.current = np.ones(len(self), np.bool_)
        other.count = len(self)
        return other

    def select(self, filter: Filter) -> NDArray[np.bool_]:
        """Return a mask of the rows that match a filter; masks are cached."""
        key = (filter.access.key, filter.type, filter.prefix)
        mask = self._masks.get(key)
        if mask is None:
            mask = _judge_all(self.segment.columns.uris, filter)
            self._masks[key] = mask
            for old in [*self._masks][:-_MOST_MASKS]:  # other searches may do the same now
                self._masks.pop(old, None)
        return mask & self.current & self.segment.codes.have_direction


def _judge_all(uris: Sequence[str], filter: Filter) -> NDArray[np.bool_]:
    """Return whether each URI matches a filter. Access is checked last."""
    mask = np.ones(len(uris), np.bool_)
    if filter.type:
        start = f"{filter.type}."
        starts = (uri.rpartition("/")[2].startswith(start) for uri in uris)
        mask &= np.fromiter(starts, np.bool_, len(uris))
    if filter.prefix:
        below = (contains(filter.prefix, uri) for uri in uris)
        mask &= np.fromiter(below, np.bool_, len(uris))
    if filter.access is not FULL_ACCESS:
        rows = np.flatnonzero(mask)
        mask[rows] = filter.access.judge([uris[row] for row in rows.tolist()])
    return mask
