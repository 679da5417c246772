"""Validate A2UI components before a frontend draws them.

The rules are those of `ag-ui-a2ui-toolkit`, which agents and frontends share.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, cast

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
