"""Renders the A2UI surfaces of remote agents, whose messages arrive in data parts.

The extension of A2A: https://a2ui.org/a2a-extension/a2ui/v0.9 and v0.8.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.api.events import Activity
from copilot_runtime.api.messages import new_id
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject, JsonValue, as_object, as_objects, get_text
from copilot_runtime.extensions.generative_ui.a2ui.operations import (
    BASIC_CATALOG,
    OPERATIONS,
    SURFACE,
    VERSION,
    Operation,
    check_operations,
    create_surface,
    delete_surface,
    update_components,
    update_data_model,
)

MESSAGES = ("beginRendering", "surfaceUpdate", "dataModelUpdate", "deleteSurface")
"""Message keys of 0.8; `deleteSurface` also exists in 0.9."""

_RENAMED: Mapping[str, Mapping[str, str]] = {
    "Text": {"usageHint": "variant"},
    "Image": {"usageHint": "variant"},
    "Row": {"distribution": "justify", "alignment": "align"},
    "Column": {"distribution": "justify", "alignment": "align"},
    "List": {"alignment": "align"},
    "Tabs": {"tabItems": "tabs"},
    "Modal": {"entryPointChild": "trigger", "contentChild": "content"},
    "TextField": {"text": "value", "textFieldType": "variant", "type": "variant"},
    "MultipleChoice": {"selections": "value"},
    "Slider": {"minValue": "min", "maxValue": "max"},
}
"""Former names of properties of the basic catalog, by component."""

_LITERALS = ("literalString", "literalNumber", "literalBoolean", "literalArray")
_DEEPEST = 24


def is_legacy(message: JsonObject) -> bool:
    """Return `True` if a message has the format of 0.8."""
    return "version" not in message and any(key in message for key in MESSAGES)


class LegacySurface:
    """A surface with messages of 0.8. It yields no operations before `beginRendering`."""

    def __init__(self) -> None:
        self._waiting: list[Operation] = []
        self._is_begun = False

    def feed(self, message: JsonObject, catalog_id: str = "") -> Sequence[Operation]:
        """Return the operations for a message of this surface."""
        operations = [*self._convert(message)]
        if "beginRendering" in message and not self._is_begun:
            fields = as_object(message["beginRendering"])
            catalog = get_text(fields, "catalogId")
            named = catalog if "standard_catalog" not in catalog else ""
            created = create_surface(
                get_text(fields, "surfaceId"), named or catalog_id or BASIC_CATALOG
            )
            operations = [created, *self._waiting, *operations]
            self._waiting, self._is_begun = [], True
        elif not self._is_begun:
            self._waiting += operations
            return []
        return operations

    def _convert(self, message: JsonObject) -> Sequence[Operation]:
        kind = next(key for key in MESSAGES if key in message)
        fields = as_object(message[kind])
        surface = get_text(fields, "surfaceId")
        match kind:
            case "beginRendering":
                root = get_text(fields, "root")
                if root in ("", "root"):
                    return []
                wrap = {"id": "root", "component": "Column", "children": [root]}
                return [update_components(surface, [wrap])]
            case "surfaceUpdate":
                items = [_upgrade_component(one) for one in as_objects(fields.get("components"))]
                return [update_components(surface, [one for one in items if one])]
            case "dataModelUpdate":
                path = get_text(fields, "path")
                value = _read_entries(fields.get("contents"), _DEEPEST)
                return [update_data_model(surface, value, f"/{path.strip('/')}")]
            case _:
                return [delete_surface(surface)]


def _upgrade_component(component: JsonObject) -> JsonObject:
    """Return a component in the format of 0.9, or an empty object if it is malformed."""
    for name, properties in as_object(component.get("component")).items():
        names = _RENAMED.get(name, {})
        fields: JsonObject = {
            names.get(key, key): _unwrap(value, _DEEPEST)
            for key, value in as_object(properties).items()
        }
        if name == "MultipleChoice":
            name = "ChoicePicker"
            is_single = fields.pop("maxAllowedSelections", None) == 1
            fields["variant"] = "mutuallyExclusive" if is_single else "multipleSelection"
        if name == "Button":
            fields.pop("primary", None)
            if as_object(properties).get("primary") is True:
                fields["variant"] = "primary"
            fields["action"] = _upgrade_action(as_object(as_object(properties).get("action")))
        weight = {"weight": component["weight"]} if "weight" in component else {}
        return {"id": component.get("id"), "component": name, **weight, **fields}
    return {}


def _upgrade_action(action: JsonObject) -> JsonObject:
    context = {
        get_text(one, "key"): _unwrap(one.get("value"), _DEEPEST)
        for one in as_objects(action.get("context"))
    }
    return {"event": {"name": get_text(action, "name"), "context": context}}


def _unwrap(value: JsonValue, depth: int) -> JsonValue:
    """Return a value without the wrappers of literals, paths, child lists and templates."""
    if depth == 0:
        return None
    if isinstance(value, list):
        return [_unwrap(one, depth - 1) for one in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("path"), str):  # a literal next to a path is only the initial value
        return {"path": value["path"]}
    for literal in _LITERALS:
        if literal in value:
            return value[literal]
    if "explicitList" in value:
        return value["explicitList"]
    if "template" in value:
        template = as_object(value["template"])
        return {
            "componentId": template.get("componentId"),
            "path": template.get("dataBinding"),
        }
    return {key: _unwrap(one, depth - 1) for key, one in value.items()}


def _read_entries(contents: JsonValue, depth: int) -> JsonValue:
    """Return a list of keys and values as an object; some agents send the object itself."""
    if isinstance(contents, dict) or depth == 0:
        return contents if depth else None
    return {
        get_text(one, "key"): _read_value(one, depth)
        for one in as_objects(contents)
        if "key" in one
    }


def _read_value(entry: JsonObject, depth: int) -> Any:
    if "valueMap" in entry:
        return _read_entries(entry["valueMap"], depth - 1)
    if "valueList" in entry:
        return entry["valueList"]
    for key in ("valueString", "valueNumber", "valueBoolean"):
        if key in entry:
            return entry[key]
    return None


MIME_TYPES = frozenset({"application/json+a2ui", "application/a2ui+json"})
"""Media types that mark a data part as an A2UI message; the second is the newer one."""

EXTENSIONS: Mapping[str, str] = {
    "https://a2ui.org/a2a-extension/a2ui/v0.9.1": "v0.9",
    "https://a2ui.org/a2a-extension/a2ui/v0.9": "v0.9",
    "https://a2ui.org/a2a-extension/a2ui/v0.8": "v0.8",
}
"""URIs of the extension, the preferred first, and the version of their messages."""

MAX_SURFACE_BYTES = 1024 * 1024
_MOST_SURFACES = 32
_CHANGES_PER_DRAWING = 32
"""A surface of so many operations is redrawn after one change, of twice as many after two."""
_KINDS = ("createSurface", "updateComponents", "updateDataModel", "deleteSurface")

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Surface:
    """A surface, and the identifier of the message that displays it."""

    message_id: str
    operations: list[Operation] = field(default_factory=list[Operation])
    size: int = 0
    legacy: LegacySurface = field(default_factory=LegacySurface)
    drawn: int = 0
    """Number of operations already sent to the page."""

    def count_new(self) -> int:
        """Return the number of unsent operations, plus one if the surface is too large."""
        return len(self.operations) - self.drawn + (self.size > MAX_SURFACE_BYTES)


class SurfaceBook:
    """The surfaces of one conversation.

    A page needs all operations of a surface in one message, so they are stored; a change is sent in
    the message of its surface. At most 32 surfaces are stored; the oldest are evicted first.
    """

    def __init__(self) -> None:
        self._surfaces: dict[str, _Surface] = {}

    @property
    def size(self) -> int:
        """Size of the stored operations, in bytes."""
        return sum(it.size for it in self._surfaces.values())

    def feed(self, data: JsonValue, catalog_id: str = "") -> Iterator[Activity]:
        """Process the A2UI messages of a part, and yield the events for the page."""
        messages = as_objects(data) if isinstance(data, list) else [as_object(data)]
        changed: dict[str, None] = {}
        for message in messages:
            if (id := _find_surface(message)) is None:
                logger.warning("An agent sent a message that is not A2UI; it is ignored")
                continue
            surface = self._surfaces.get(id)
            if surface is None:
                surface = self._surfaces[id] = _Surface(f"{SURFACE}-{id[:200]}-{new_id()}")
            self._add(surface, message, catalog_id)
            changed[id] = None
        for id in changed:
            surface = self._surfaces[id]
            # every event has the whole surface: batch the changes of a long one
            if surface.count_new() > len(surface.operations) // _CHANGES_PER_DRAWING:
                yield from self._draw(id)
        while len(self._surfaces) > _MOST_SURFACES:
            del self._surfaces[next(iter(self._surfaces))]

    def flush(self) -> Iterator[Activity]:
        """Yield the surfaces that have unsent changes."""
        for id in [id for id, surface in self._surfaces.items() if surface.count_new()]:
            yield from self._draw(id)

    def _add(self, surface: _Surface, message: JsonObject, catalog_id: str) -> None:
        legacy = is_legacy(message)
        added = surface.legacy.feed(message, catalog_id) if legacy else [_clean(message)]
        surface.size += len(dumps(added if added else message))
        if surface.size <= MAX_SURFACE_BYTES:
            surface.operations += added

    def _draw(self, id: str) -> Iterator[Activity]:
        """Yield the whole surface. If it is too large, yield an error message and evict it."""
        surface = self._surfaces[id]
        surface.drawn = len(surface.operations)
        problem = check_operations(surface.operations)
        if surface.size > MAX_SURFACE_BYTES:
            problem = f"The surface has more than {MAX_SURFACE_BYTES} bytes."
        if problem is None and not surface.operations:
            return
        content: Mapping[str, Any] = {OPERATIONS: [*surface.operations]}
        if problem is not None:
            logger.warning("A surface of an agent cannot be drawn: %s", problem)
            content = {"status": "failed", "error": problem}
        if problem is not None or "deleteSurface" in surface.operations[-1]:
            del self._surfaces[id]
        yield Activity(message_id=surface.message_id, activity_type=SURFACE, content=content)


def _find_surface(message: JsonObject) -> str | None:
    """Return the surface identifier of a message, or None if it is no A2UI message."""
    for kind in (*MESSAGES, *_KINDS):
        if kind in message:
            return get_text(as_object(message[kind]), "surfaceId") or None
    return None


def _clean(message: JsonObject) -> Operation:
    """Return an operation without unknown keys, in the version that pages support."""
    return {"version": VERSION, **{kind: message[kind] for kind in _KINDS if kind in message}}


def choose_extension(uris: Sequence[str]) -> str | None:
    """Return the URI of the newest supported version of the extension, or None."""
    return next((uri for uri in EXTENSIONS if uri in uris), None)
