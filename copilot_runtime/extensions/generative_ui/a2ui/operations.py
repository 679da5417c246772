"""The operations of A2UI 0.9 that create, update and delete surfaces.

Specification: https://a2ui.org/specification/v0_9/.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

VERSION = "v0.9"

OPERATIONS = "a2ui_operations"
"""The key of the operations in results of tools and contents of activities."""

SURFACE = "a2ui-surface"
"""The type of activities that frontends draw as surfaces."""

BASIC_CATALOG = "https://a2ui.org/specification/v0_9/basic_catalog.json"

Operation = Mapping[str, Any]


def create_surface(surface_id: str, catalog_id: str = BASIC_CATALOG) -> Operation:
    """Return the operation that creates a surface."""
    return {
        "version": VERSION,
        "createSurface": {"surfaceId": surface_id, "catalogId": catalog_id},
    }


def update_components(surface_id: str, components: Sequence[Mapping[str, Any]]) -> Operation:
    """Return the operation that sets the components of a surface; the root has the id `root`."""
    return {
        "version": VERSION,
        "updateComponents": {"surfaceId": surface_id, "components": components},
    }


def update_data_model(surface_id: str, value: Any, path: str = "/") -> Operation:
    """Return the operation that sets the data of a surface at a path, a JSON pointer."""
    return {
        "version": VERSION,
        "updateDataModel": {"surfaceId": surface_id, "path": path, "value": value},
    }


def delete_surface(surface_id: str) -> Operation:
    """Return the operation that deletes a surface."""
    return {"version": VERSION, "deleteSurface": {"surfaceId": surface_id}}


def group_by_surface(operations: Sequence[Operation]) -> Mapping[str, Sequence[Operation]]:
    """Group operations by the identifier of their surface, in order.

    The operations must have passed `check_operations`.
    """
    groups: dict[str, list[Operation]] = {}
    for operation in operations:
        kind = next(key for key in operation if key in _KINDS)
        groups.setdefault(operation[kind]["surfaceId"], []).append(operation)
    return groups


def check_operations(operations: object, max_operations: int = 1_000) -> str | None:
    """Return the first problem of the operations as a sentence with its location, or `None`.

    Only the structure is checked, in linear time; components are not compared with a catalog.
    """
    if not isinstance(operations, list):
        return f"{OPERATIONS} is no array."
    items = cast(list[Any], operations)
    if len(items) > max_operations:
        return f"{OPERATIONS} has {len(items)} operations; at most {max_operations} are drawn."
    return next(
        (f"{OPERATIONS}[{at}] {it}" for at, one in enumerate(items) if (it := _check_one(one))),
        None,
    )


_KINDS = frozenset({"createSurface", "updateComponents", "updateDataModel", "deleteSurface"})


def _check_one(operation: Any) -> str | None:
    if not isinstance(operation, dict):
        return "is no object."
    fields = cast(dict[str, Any], operation)
    version = fields.get("version")
    # frontends ignore it, and some agents omit it
    if version is not None and not str(version).startswith(VERSION):
        return f"is of version {version!r}, and pages draw {VERSION!r}."
    kinds = _KINDS & fields.keys()
    if len(kinds) != 1:
        return f"needs exactly one of {', '.join(sorted(_KINDS))}."
    (kind,) = kinds
    if not isinstance(fields[kind], dict):
        return f"has a {kind} that is no object."
    body = cast(dict[str, Any], fields[kind])
    if not isinstance(body.get("surfaceId"), str) or not body["surfaceId"]:
        return f"has a {kind} without surfaceId."
    if not isinstance(body.get("catalogId", ""), str):
        return f"has a {kind} whose catalogId is no text."
    if kind == "updateDataModel" and not isinstance(body.get("path", "/"), str):
        return "has an updateDataModel whose path is no text."
    if kind == "updateComponents" and not _are_components(body.get("components")):
        return "has an updateComponents whose components are no array of objects with an id."
    return None


def _are_components(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_component, cast(list[Any], value)))


def _is_component(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    fields = cast(dict[str, Any], value)
    # an existing component may be updated without its type
    return isinstance(fields.get("id"), str) and isinstance(fields.get("component", ""), str)
