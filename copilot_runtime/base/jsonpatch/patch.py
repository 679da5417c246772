"""Create and apply JSON Patches (RFC 6902), which AG-UI uses for changes of a state.

Values are never changed in place: old and new value share the unchanged parts, which makes the
next difference cheap to compute.
"""

from collections.abc import Sequence
from typing import Any

from copilot_runtime.base.jsonpatch.difference import find_difference, is_same_json
from copilot_runtime.base.jsonpatch.sharing import count_repetition
from copilot_runtime.base.jsontext import dumps

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
            raise _PatchConflict("so many changes of what is so long take too much time")


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
