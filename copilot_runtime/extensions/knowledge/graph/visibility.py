"""The visible resources of a snapshot for an access, with a cache."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock

import numpy as np

from copilot_runtime.extensions.knowledge.access import FULL_ACCESS, Access
from copilot_runtime.extensions.knowledge.graph.table import Mask, Numbers, Snapshot

_MOST_MASKS = 256


class Visibility:
    """The holders of a snapshot that an access allows, each judged once on first use."""

    def __init__(self, snapshot: Snapshot, access: Access) -> None:
        self.is_full = access is FULL_ACCESS
        self._snapshot = snapshot
        self._access = access
        size = 0 if self.is_full else len(snapshot.uris)
        self._judged: Mask = np.zeros(size, np.bool_)
        self._allowed: Mask = np.zeros(size, np.bool_)

    def rows(self, rows: Numbers) -> Numbers:
        """Return the rows whose holders are allowed."""
        if self.is_full:
            return rows
        return rows[self.holders(self._snapshot.holders[rows])]

    def holders(self, numbers: Numbers) -> Mask:
        """Return a mask of the allowed holders."""
        if self.is_full:
            return np.ones(len(numbers), np.bool_)
        unknown = np.unique(numbers[~self._judged[numbers]])
        if len(unknown):
            uris = self._snapshot.uris
            self._allowed[unknown] = self._access.judge([uris[number] for number in unknown])
            self._judged[unknown] = True
        return self._allowed[numbers]

    def all_rows(self) -> Numbers:
        """Return the numbers of all rows whose holders are allowed."""
        return self.rows(np.arange(len(self._snapshot), dtype=np.int32))

    @property
    def key(self) -> tuple[int, Hashable]:
        """The generation, and a key shared by all accesses with the same visible part."""
        if self.is_full:
            return self._snapshot.generation, True
        mask = self.holders(self._snapshot.holders_with_rows)
        if mask.all():
            return self._snapshot.generation, True
        return self._snapshot.generation, mask.tobytes()


class VisibilityCache:
    """A cache of the visibilities of the most recent accesses, for the newest snapshot."""

    def __init__(self) -> None:
        self._generation = 0
        self._entries: OrderedDict[Hashable, Visibility] = OrderedDict()
        self._lock = Lock()

    def get(self, snapshot: Snapshot, access: Access) -> Visibility:
        """Return the visibility of an access."""
        key = access.key  # an engine that fails at this moment has another one right after it
        with self._lock:
            if snapshot.generation < self._generation:
                return Visibility(snapshot, access)
            if snapshot.generation != self._generation:
                self._entries.clear()
                self._generation = snapshot.generation
            visibility = self._entries.setdefault(key, Visibility(snapshot, access))
            self._entries.move_to_end(key)
            if len(self._entries) > _MOST_MASKS:
                self._entries.popitem(last=False)
            return visibility
