"""The operations of A2UI 0.9 that create, update and delete surfaces, and their validation.

The rules for components are those of `ag-ui-a2ui-toolkit`, which agents and frontends share.
Specification: https://a2ui.org/specification/v0_9/.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, cast

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


MAX_COMPONENTS = 1_000
"""Maximum number of components of a surface: frontends draw all of them at once."""

MAX_REFERENCES = 2_000
"""Maximum number of references between components."""

MAX_PROBLEMS = 20
"""Maximum number of reported problems: a model repairs the first ones first."""


_LONGEST = 500
"""Maximum length of a message or a path, in characters: they contain names chosen by a model."""


class Problem(NamedTuple):
    """A validation problem: the toolkit's code, the location, and a sentence."""

    code: str
    path: str
    message: str


def validate_components(
    components: object, catalog: Mapping[str, Any] | None = None
) -> Sequence[Problem]:
    """Return the problems of a surface's components; empty if they can be drawn.

    Components and their required properties are checked against a `catalog`, `{catalogId,
    components: {Name: JSON schema}}`, if there is one.
    """
    if not isinstance(components, list) or not components:
        return [Problem("empty_components", "components", "components is no list, or empty.")]
    items = cast(list[Any], components)
    if (problem := _check_size(items)) is not None:
        return [problem]
    # untyped, and needed by few runs
    toolkit: Any = import_module("ag_ui_a2ui_toolkit")
    found: Mapping[str, Any] = toolkit.validate_a2ui_components(
        components=items,
        data={},
        catalog=None if catalog is None else dict(catalog),
        validate_bindings=False,
    )
    if found["valid"]:
        return []
    errors: Sequence[Mapping[str, str]] = found["errors"][:MAX_PROBLEMS]
    return [
        Problem(one["code"], one["path"][:_LONGEST], one["message"][:_LONGEST]) for one in errors
    ]


def find_cycle(components: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the id of a component that contains itself, or `None`: it could never be drawn.

    Takes linear time in the number of components and references.
    """
    children = {str(one["id"]): [*_list_children(one)] for one in components}
    done: set[str] = set()
    for start in children:
        path, stack = {start}, [(start, iter(children[start]))]
        while stack and start not in done:
            id, rest = stack[-1]
            child = next((one for one in rest if one in children and one not in done), None)
            if child is None:
                stack.pop()
                path.remove(id)
                done.add(id)
            elif child in path:
                return child
            else:
                path.add(child)
                stack.append((child, iter(children[child])))
    return None


_REFERENCES = ("child", "children", "tabs")
"""The properties with which components reference others."""

_MODAL_REFERENCES = (*_REFERENCES, "trigger", "content")
"""References of the basic catalog's modal; custom components may use these names for text."""


def _list_children(component: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ids that a component references: single, in a list, in a template, or in tabs."""
    is_modal = component.get("component") == "Modal"
    for key in _MODAL_REFERENCES if is_modal else _REFERENCES:
        value = component.get(key)
        for one in cast(list[Any], value) if isinstance(value, list) else (value,):
            fields = cast(dict[str, Any], one) if isinstance(one, dict) else {"child": one}
            names = (fields.get("componentId"), fields.get("child"))
            yield from (name for name in names if isinstance(name, str))


def _check_size(items: Sequence[Any]) -> Problem | None:
    """Return a problem if the components are too many to process."""
    if len(items) > MAX_COMPONENTS:
        message = f"There are {len(items)} components; at most {MAX_COMPONENTS} are drawn."
        return Problem("too_many_components", "components", message)
    references = sum(_count_references(item) for item in items)
    if references > MAX_REFERENCES:
        message = f"Components refer to others {references} times, more than {MAX_REFERENCES}."
        return Problem("too_many_references", "components", message)
    return None


def _count_references(component: Any) -> int:
    if not isinstance(component, dict):
        return 0
    fields = cast(dict[str, Any], component)
    return sum(len(cast(list[Any], one)) for one in fields.values() if isinstance(one, list))
