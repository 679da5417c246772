"""Structural sharing between JSON values, and the repetition inside one value.

Consecutive states differ little. With structural sharing, each costs only the memory of its changed
parts. Repetition tells how much larger a value is on the wire than in memory.
"""

from typing import Any

from copilot_runtime.base.jsonpatch.difference import is_same_json
from copilot_runtime.base.jsontext import MAX_DEPTH

_DEEPEST_LOOK = 8
"""Levels that are searched for equal parts; deeper parts are compared as a whole.

Each level may be compared once more for its parent, so the cost grows with this number.
"""

_CONTAINERS = (dict, list)
_WORTH_IT = (dict, list, str)

LONG = 64
"""Minimum length, in characters, of texts that are shared."""


def share_structure(old: Any, new: Any, levels: int = _DEEPEST_LOOK) -> Any:
    """Return a value equal to `new` that reuses the equal parts of `old`. Changes neither.

    Comparing values that are not JSON may raise any exception.
    """
    if old is new or type(old) is not type(new):
        return new
    if isinstance(new, str):
        return old if len(new) >= LONG and old == new else new
    if type(new) not in _CONTAINERS:
        return new
    if len(old) == len(new) and is_same_json(old, new):
        return old
    if not levels:
        return new
    if isinstance(new, dict):
        pairs = [(key, old[key], part) for key, part in new.items() if key in old]
    else:
        pairs = [(at, *both) for at, both in enumerate(zip(old, new, strict=False))]
    parts = {
        key: share_structure(one, other, levels - 1)
        for key, one, other in pairs
        if one is not other and type(other) in _WORTH_IT
    }
    outcome = new
    for key, part in parts.items():
        if part is not new[key]:
            if outcome is new:
                outcome = new.copy()
            outcome[key] = part
    return outcome


def count_repetition(value: Any) -> int:
    """Return the serialised size minus the size in memory, in characters and values.

    Raises `ValueError` for a value that is nested more deeply than `MAX_DEPTH`.
    """
    measured: dict[int, tuple[int, int]] = {}
    written, _ = _measure(value, 1, measured)
    # size in memory: each container counts once, without its nested containers
    return written - sum(_own_length(part) for part in _containers(value))


def _measure(value: Any, level: int, measured: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return the serialised size of a value and its height in levels."""
    if not isinstance(value, _CONTAINERS):
        return 0, 0
    length, height = measured.get(id(value), (0, 0))
    if not height:
        if level > MAX_DEPTH:
            raise ValueError("it would be nested too deeply")
        length = _own_length(value)
        for part in value.values() if isinstance(value, dict) else value:
            if isinstance(part, _CONTAINERS):
                more, inner = _measure(part, level + 1, measured)
                length, height = length + more, max(height, inner)
        height += 1
        measured[id(value)] = length, height
    if level + height - 1 > MAX_DEPTH:
        raise ValueError("it would be nested too deeply")
    return length, height


def _containers(value: Any) -> list[Any]:
    """Return the distinct containers in a value."""
    containers: dict[int, Any] = {}
    left = [value]
    while left:
        part = left.pop()
        if isinstance(part, _CONTAINERS) and id(part) not in containers:
            containers[id(part)] = part
            left.extend(part.values() if isinstance(part, dict) else part)
    return [*containers.values()]


def _own_length(container: Any) -> int:
    """Return the size of a container without its nested containers."""
    length = len(container) + 1
    if isinstance(container, dict):
        length += sum(map(len, container))
        container = container.values()
    return length + sum(len(part) for part in container if isinstance(part, str))
