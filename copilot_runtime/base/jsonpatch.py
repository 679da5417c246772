"""JSON Patches (RFC 6902), which AG-UI uses for changes of a state: created, applied and compared.

Values are never changed in place: old and new value share the unchanged parts, which makes the
next difference cheap to compute. Consecutive states differ little, so with structural sharing each
costs only the memory of its changed parts.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from copilot_runtime.base.jsontext import MAX_DEPTH, dumps

MAX_OPERATIONS = 2_000
"""Maximum operations of a patch. Each may shift a long list: 60,000 operations took 10 s."""

_MAX_MOVES = 5_000_000
"""Maximum number of items that one patch may copy or shift; about 0.1 s."""

_SHORT = 1_000
"""Bytes up to which a patch is used even if the whole value is smaller."""

_MAX_REPETITION = 1_000_000
"""Maximum number of repeated values and characters in a patched value.

Copies are shared in memory. So forty `copy` operations, each of which doubles the value, are cheap
to apply, but their result is too large to serialise.
"""


def make_patch(old: Any, new: Any) -> list[dict[str, Any]] | None:
    """Return the operations that turn `old` into `new`, both JSON values.

    Returns None if the new value is shorter than the patch, or if the patch has more operations
    than `apply_patch` accepts.
    """
    try:
        operations = find_difference(old, new)
        if len(operations) > MAX_OPERATIONS:
            return None
        if operations and len(dumps(operations)) >= max(len(dumps(new)), _SHORT):
            return None
    except RecursionError:  # nested too deeply for recursion in Python
        return None
    return operations


def apply_patch(value: Any, operations: Sequence[Any]) -> Any:
    """Return the value with all operations applied, without changing value or operations.

    Raises `ValueError` that names the operation that cannot be applied, or if there are more than
    `MAX_OPERATIONS`.
    """
    if len(operations) > MAX_OPERATIONS:
        raise ValueError(f"it has {len(operations)} operations; {MAX_OPERATIONS} are allowed")
    patch = _Patch(value)
    for operation in operations:
        try:
            patch.apply(operation)
        except _PatchConflict as error:
            raise ValueError(f"{_describe(operation)}: {error}") from None
    if patch.copies and count_repetition(patch.root) > _MAX_REPETITION:
        raise ValueError(f"copy {patch.copies}: the copies are too large")
    return patch.root


class _PatchConflict(Exception):
    """An operation cannot be applied."""


class _Patch:
    """Applies operations to a value, copying each container before its first change.

    `own` has the copied containers by `id()`: only those are changed in place. `copies` is the
    target path of the last `copy` operation, `moves` the number of copied or shifted items.
    """

    def __init__(self, root: Any) -> None:
        self.root: Any = root
        self.own: dict[int, Any] = {}
        self.copies = ""
        self.moves = 0

    def apply(self, operation: Any) -> None:
        if not isinstance(operation, dict):
            raise _PatchConflict("it is no object")
        path = _parse_pointer(operation, "path")
        match operation.get("op"):
            case "add":
                self._add(path, _require_value(operation))
            case "replace":
                self._replace(path, _require_value(operation))
            case "remove":
                self._remove(path)
            case "move":
                origin = _parse_pointer(operation, "from")
                if path[: len(origin)] == origin and path != origin:
                    raise _PatchConflict("nothing can be moved into itself")
                value = self._find(origin)
                if path != origin:
                    self._remove(origin)
                    self._add(path, value)
            case "copy":
                copied = self._find(_parse_pointer(operation, "from"))
                self.own.clear()  # both paths share the value now: copy it before the next change
                self._add(path, copied)
                self.copies = operation["path"] or "/"
            case "test":
                if not is_same_json(self._find(path), _require_value(operation)):
                    raise _PatchConflict("the value is another one")
            case unknown:
                raise _PatchConflict(f"there is no operation {unknown!r}")

    def _add(self, path: list[str], value: Any) -> None:
        if not path:
            self.root = value
            return
        parent, key = self._parent(path)
        if isinstance(parent, dict):
            parent[key] = value
        elif key == "-":
            parent.append(value)
        else:
            at = _index(key, len(parent))
            self._count(len(parent) - at)
            parent.insert(at, value)

    def _replace(self, path: list[str], value: Any) -> None:
        if not path:
            self.root = value
            return
        parent, key = self._parent(path)
        parent[_resolve_key(parent, key)] = value

    def _remove(self, path: list[str]) -> None:
        if not path:
            self.root = None
            return
        parent, key = self._parent(path)
        at = _resolve_key(parent, key)
        if isinstance(parent, list):
            self._count(len(parent) - at)
        del parent[at]

    def _find(self, path: list[str]) -> Any:
        value = self.root
        for key in path:
            value = value[_resolve_key(value, key)]
        return value

    def _parent(self, path: list[str]) -> tuple[Any, str]:
        """Return the parent container of a path, as a copy to change, and the last key."""
        self.root = parent = self._copy_once(self.root)
        for key in path[:-1]:
            at = _resolve_key(parent, key)
            parent[at] = child = self._copy_once(parent[at])
            parent = child
        if not isinstance(parent, (dict, list)):
            raise _PatchConflict(f"there is nothing that could have a {path[-1]!r}")
        return parent, path[-1]

    def _copy_once(self, value: Any) -> Any:
        if id(value) in self.own or not isinstance(value, (dict, list)):
            return value
        self._count(len(value))
        copy = value.copy()
        self.own[id(copy)] = copy
        return copy

    def _count(self, moves: int) -> None:
        self.moves += moves
        if self.moves > _MAX_MOVES:
            raise _PatchConflict("too many changes of long lists or objects")


def _resolve_key(parent: Any, key: str) -> Any:
    """Return the key or index in `parent` for a path segment. Raises `_PatchConflict` if absent."""
    if isinstance(parent, dict):
        if key in parent:
            return key
    elif isinstance(parent, list) and key != "-":
        return _index(key, len(parent) - 1)
    raise _PatchConflict(f"there is no {key!r}")


def _index(key: str, last: int) -> int:
    if key.isascii() and key.isdigit() and (key == "0" or key[0] != "0"):
        if len(key) < 16 and int(key) <= last:
            return int(key)
        raise _PatchConflict(f"the list ends before {key!r}")
    raise _PatchConflict(f"{key!r} is no place in a list")


def _parse_pointer(operation: dict[str, Any], field: str) -> list[str]:
    """Split a JSON Pointer (RFC 6901) into its unescaped segments."""
    pointer = operation.get(field)
    if not isinstance(pointer, str):
        raise _PatchConflict(f"its {field!r} must be a string")
    if not pointer:
        return []
    if pointer[0] != "/":
        raise _PatchConflict(f"its {field!r} must begin with '/'")
    keys = pointer[1:].split("/")
    if "~" in pointer:
        keys = [key.replace("~1", "/").replace("~0", "~") for key in keys]
    return keys


def _require_value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise _PatchConflict("it has no value")
    return operation["value"]


def _describe(operation: Any) -> str:
    if not isinstance(operation, dict):
        return "operation"
    return " ".join(str(operation[key]) for key in ("op", "path") if key in operation)[:200]


_MAX_SHIFTS = 1_000_000
"""Maximum number of items that the changes of one list may shift; beyond it, replace the list."""


def find_difference(old: Any, new: Any) -> list[dict[str, Any]]:
    """Return the operations (RFC 6902) that make `new` out of `old`.

    Raises `RecursionError` for values that are nested too deeply.
    """
    operations: list[dict[str, Any]] = []
    _compare(old, new, "", operations)
    return operations


def is_same_json(one: Any, other: Any) -> bool:
    """Return whether two values are equal as JSON: 1 equals 1.0, but not true."""
    if one is other:
        return True
    if one != other:
        return False
    if type(one) is type(other) and not isinstance(one, (dict, list, tuple)):
        return True
    try:
        # in Python 1 == True, also in nested values; comparing the serialised text is fast
        if orjson.dumps(one) == orjson.dumps(other):
            return True
    except TypeError:
        pass
    return _same_slowly(one, other)


def _same_slowly(one: Any, other: Any) -> bool:
    """Compare two equal values recursively; a boolean never equals a number."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_same_slowly(value, other[key]) for key, value in one.items())
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return all(map(_same_slowly, one, other))
    return isinstance(one, bool) == isinstance(other, bool)


def _compare(old: Any, new: Any, path: str, operations: list[dict[str, Any]]) -> None:
    if old is new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        _compare_objects(old, new, path, operations)
    elif isinstance(old, list) and isinstance(new, list):
        _compare_lists(old, new, path, operations)
    elif not is_same_json(old, new):
        operations.append({"op": "replace", "path": path, "value": new})


def _compare_objects(
    old: dict[str, Any], new: dict[str, Any], path: str, operations: list[dict[str, Any]]
) -> None:
    for key, value in old.items():
        if key not in new:
            operations.append({"op": "remove", "path": f"{path}/{_escape(key)}"})
        elif value is not new[key]:
            _compare(value, new[key], f"{path}/{_escape(key)}", operations)
    for key, value in new.items():
        if key not in old:
            operations.append({"op": "add", "path": f"{path}/{_escape(key)}", "value": value})


def _compare_lists(
    old: list[Any], new: list[Any], path: str, operations: list[dict[str, Any]]
) -> None:
    """Skip the common prefix and suffix; compare, remove or add the items in between."""
    start, shorter = 0, min(len(old), len(new))
    while start < shorter and is_same_json(old[start], new[start]):
        start += 1
    end, longest = 0, shorter - start
    while end < longest and is_same_json(old[-1 - end], new[-1 - end]):
        end += 1
    changed = longest - end
    if end * abs(len(old) - len(new)) > _MAX_SHIFTS:
        operations.append({"op": "replace", "path": path, "value": new})
        return
    for at in range(start, start + changed):
        _compare(old[at], new[at], f"{path}/{at}", operations)
    at = start + changed
    for _ in range(len(old) - end - at):
        operations.append({"op": "remove", "path": f"{path}/{at}"})
    added = new[at : len(new) - end]
    for offset, value in enumerate(added):
        index = f"{at + offset}" if end else "-"
        operations.append({"op": "add", "path": f"{path}/{index}", "value": value})


def _escape(key: str) -> str:
    key = str(key)
    return key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key


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
    measured: dict[int, tuple[int, int, int]] = {}
    written = _measure(value, 1, measured)[0] if isinstance(value, _CONTAINERS) else 0
    # size in memory: each container counts once, without its nested containers
    return written - sum(own for _, _, own in measured.values())


def _measure(
    value: Any, level: int, measured: dict[int, tuple[int, int, int]]
) -> tuple[int, int, int]:
    """Return a container's serialised size, its height in levels, and its own part of the size."""
    if (size := measured.get(id(value))) is None:
        if level > MAX_DEPTH:
            raise ValueError("it would be nested too deeply")
        length = own = _own_length(value)
        height = 0
        for part in value.values() if isinstance(value, dict) else value:
            if isinstance(part, _CONTAINERS):
                more, inner, _ = _measure(part, level + 1, measured)
                length, height = length + more, max(height, inner)
        size = measured[id(value)] = length, height + 1, own
    if level + size[1] - 1 > MAX_DEPTH:
        raise ValueError("it would be nested too deeply")
    return size


def _own_length(container: Any) -> int:
    """Return the size of a container without its nested containers."""
    length = len(container) + 1
    if isinstance(container, dict):
        length += sum(map(len, container))
        container = container.values()
    return length + sum(len(part) for part in container if isinstance(part, str))
