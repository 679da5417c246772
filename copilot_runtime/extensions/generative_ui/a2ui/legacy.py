"""Convert messages of A2UI 0.8 into operations of 0.9, which frontends draw.

Specification: https://a2ui.org/specification/v0_8/. In 0.8, values are wrapped, a component has its
type as a key, and nothing is drawn before `beginRendering` names the root.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from copilot_runtime.base.jsonvalue import JsonObject, JsonValue, as_object, as_objects, get_text
from copilot_runtime.extensions.generative_ui.a2ui.operations import (
    BASIC_CATALOG,
    Operation,
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
