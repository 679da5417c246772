"""The open items of a run: texts, calls, steps, reasoning and subagents that have not ended."""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

Kind = TypeVar("Kind")
Value = TypeVar("Value")


class OpenItems(Generic[Kind, Value]):
    """The open items of a run, each with a kind, an id and a value.

    `by_kind` has the ids of each kind with their values, for reading.
    """

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self.by_kind: Mapping[Kind, dict[str, Value]] = {kind: {} for kind in kinds}
        self._order: dict[tuple[Kind, str], None] = {}

    def begin(self, kind: Kind, key: str, value: Value) -> bool:
        """Add an item. Returns False, and changes nothing, if it is open already."""
        if key in self.by_kind[kind]:
            return False
        self.by_kind[kind][key] = value
        self._order[kind, key] = None
        return True

    def end(self, kind: Kind, key: str) -> bool:
        """Remove an item. Returns whether it was open."""
        if key not in self.by_kind[kind]:
            return False
        del self.by_kind[kind][key]
        del self._order[kind, key]
        return True

    def list_innermost_first(self) -> list[tuple[Kind, str, Value]]:
        """Return the open items, the most recent first."""
        return [(kind, key, self.by_kind[kind][key]) for kind, key in reversed(self._order)]

    def clear(self) -> None:
        for items in self.by_kind.values():
            items.clear()
        self._order.clear()
