"""Measure the memory of the values in a log, and share what is repeated in them."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from copilot_runtime.base.jsonpatch.sharing import LONG, share_structure

_CONTAINER_BYTES = 56
_PLACE_BYTES = 8
_ATOMS = frozenset({int, float, bool, type(None)})


class SizeTracker:
    """The values of one log: what is in several of them is stored, and counts, once.

    A state of 25 kB that comes a thousand times, each time with another number in it, costs little
    more than one.
    """

    def __init__(self) -> None:
        self._last: dict[object, Any] = {}
        self._ids: set[int] = set()  # of values that the log keeps alive, so each is unique

    def share(self, key: object, value: Any) -> Any:
        """Return a value made of the parts of the last one of that key, where they are the same."""
        last = self._last.get(key)
        with suppress(Exception):  # values of a program compare as they like: arrays refuse to
            value = value if last is None else share_structure(last, value)
        self._last[key] = value
        return value

    def add(self, values: Iterable[Any]) -> int:
        """Add values. Returns about how many bytes more they take."""
        ids, size, left = self._ids, 0, [*values]
        while left:
            value = left.pop()
            if isinstance(value, (str, bytes)):
                if len(value) >= LONG:
                    if id(value) in ids:
                        continue
                    ids.add(id(value))
                size += len(value)
                continue
            if type(value) in _ATOMS or id(value) in ids:
                continue
            ids.add(id(value))
            size += _CONTAINER_BYTES
            parts: Iterable[Any]
            if isinstance(value, dict):
                size += sum(len(key) for key in value if isinstance(key, str))
                parts = value.values()
                size += _PLACE_BYTES * len(value)
            elif isinstance(value, (list, tuple, set, frozenset)):
                parts = value
                size += _PLACE_BYTES * len(value)
            else:
                parts = _fields(value)
            if not _ATOMS.issuperset(map(type, parts)):
                left.extend(parts)
        return size


def _fields(value: object) -> list[Any]:
    """Return what a dataclass or a model of pydantic holds, and nothing of any other object."""
    kind = type(value)
    if names := getattr(kind, "__dataclass_fields__", None):
        return [getattr(value, name, None) for name in names]
    return [*vars(value).values()] if hasattr(kind, "__pydantic_fields__") else []
