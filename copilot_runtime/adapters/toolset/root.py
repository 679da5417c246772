"""Makes one object of the alternatives at the root of a schema, which providers refuse there."""

from collections.abc import Sequence
from typing import Any

import orjson

from copilot_runtime.adapters.toolset.repair import RepairedSchema, UnusableSchema
from copilot_runtime.base.jsonvalue import DEFINITIONS, JsonObject, as_list, as_object

_COMBINATORS = frozenset({"$ref", "allOf", "anyOf", "oneOf", "not", "enum", "const"})

MERGES = 2_000
"""The schemas at a root that are merged; references may double them at each step."""

_WORDS = 600


class RootMerger:
    """Makes one object schema, without combinators, of the root of a schema."""

    def __init__(self, repaired: RepairedSchema) -> None:
        self.notes: list[str] = []
        self.changes = [f"{name} at the root" for name in repaired.root if name in _COMBINATORS]
        self._source = repaired.root
        self._definitions = repaired.definitions
        self._left = MERGES

    def build(self) -> JsonObject:
        """Return the root, with `type` and `properties`."""
        found = self._merge(self._source)
        if found is None:
            kind = self._source.get("type", "object")
            if kind == "object":
                raise UnusableSchema("none of the alternatives at its root is an object")
            raise UnusableSchema(f"its parameters are of type {kind!r}, not an object")
        if isinstance(self._source.get("type"), list):
            self.changes.append(f"type: {self._source['type']} at the root")
        return {**found, "type": "object", "properties": found.get("properties") or {}}

    def _merge(self, schema: JsonObject, above: tuple[str, ...] = ()) -> JsonObject | None:
        """Return a schema as one object schema; `None` if no object matches it."""
        self._left -= 1
        if self._left < 0:
            raise UnusableSchema("the alternatives at its root are too many")
        kind = schema.get("type", "object")
        if "object" not in ([kind] if isinstance(kind, str) else kind):
            return None
        merged = {name: value for name, value in schema.items() if name not in _COMBINATORS}
        parts: list[JsonObject] = [*schema.get("allOf", ())]
        if isinstance(reference := schema.get("$ref"), str) and reference not in above:
            parts.append(self._definitions[reference.removeprefix(DEFINITIONS)])
            above = (*above, reference)
        for part in parts:
            found = self._merge(part, above)
            if found is None:
                return None
            merged = merge_objects(merged, found)
        for name in ("anyOf", "oneOf"):
            if name in schema:
                merges = [self._merge(one, above) for one in schema[name]]
                branches = [one for one in merges if one is not None]
                if not branches:
                    return None
                self._note_branches(merged, branches, name)
                merged = _merge_any(merged, branches)
        if "not" in schema:
            self.notes.append(f"The arguments must not match {write_json(schema['not'])}.")
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if values:
            self.notes.append(f"The arguments are one of {write_json(values)}.")
        return merged

    def _note_branches(self, base: JsonObject, branches: Sequence[JsonObject], name: str) -> None:
        """Note the groups of arguments that alternatives distinguish."""
        groups = [_describe_branch(one, base) for one in branches]
        if len(branches) > 1 and any(groups):
            number = "exactly one" if name == "oneOf" else "at least one"
            text = "; ".join(group or "none of them" for group in groups)
            self.notes.append(f"Pass {number} of these groups of arguments: {text[:_WORDS]}.")


def _describe_branch(branch: JsonObject, base: JsonObject) -> str:
    """Return the arguments by which an alternative differs from the others."""
    fixed: dict[str, Any] = {}
    for name, one in as_object(branch.get("properties")).items():
        values = [one["const"]] if "const" in one else as_list(one.get("enum"))
        if len(values) == 1:
            fixed[name] = values[0]
    needed = [*as_list(branch.get("required"))]
    own = [name for name in needed if name not in as_list(base.get("required"))]
    words = [f"{name}={write_json(value)}" for name, value in fixed.items()]
    return ", ".join([*words, *(name for name in own if name not in fixed)])


def merge_objects(first: JsonObject, second: JsonObject) -> JsonObject:
    """Return one object schema for values that match both."""
    merged = {**second, **first}
    properties = {**as_object(first.get("properties"))}
    for name, one in as_object(second.get("properties")).items():
        own = properties.get(name)
        if not own or not one or own == one:
            properties[name] = own or one
        else:
            properties[name] = {"allOf": [own, one]}
    required = [*as_list(first.get("required")), *as_list(second.get("required"))]
    if properties:
        merged["properties"] = properties
    if required:
        merged["required"] = [*dict.fromkeys(required)]
    if first.get("additionalProperties") != second.get("additionalProperties"):
        merged.pop("additionalProperties", None)  # each allows what the other one has
    return merged


def _merge_any(base: JsonObject, branches: Sequence[JsonObject]) -> JsonObject:
    """Return one object schema for values that match `base` and any of the branches."""
    variants: dict[str, list[JsonObject]] = {}
    for branch in branches:
        for name, one in as_object(branch.get("properties")).items():
            schemas = variants.setdefault(name, [])
            if one not in schemas:
                schemas.append(one)
    properties = {**as_object(base.get("properties"))}
    for name, found in variants.items():
        if not properties.get(name):
            properties[name] = _join_variants(found)
    shared = [
        name
        for name in as_list(branches[0].get("required"))
        if all(name in as_list(one.get("required")) for one in branches)
    ]
    merged = {**base}
    if properties:
        merged["properties"] = properties
    if required := [*dict.fromkeys([*as_list(base.get("required")), *shared])]:
        merged["required"] = required
    closed = all(one.get("additionalProperties") is False for one in branches)
    if closed and "additionalProperties" not in base:
        merged["additionalProperties"] = False
    if "description" not in base and len(branches) == 1 and "description" in branches[0]:
        merged["description"] = branches[0]["description"]
    return merged


def _join_variants(variants: Sequence[JsonObject]) -> JsonObject:
    """Return one schema for a property that alternatives describe differently."""
    if len(variants) == 1:
        return variants[0]
    values = [[one["const"]] if "const" in one else as_list(one.get("enum")) for one in variants]
    if not all(values):
        return {"anyOf": [*variants]}
    joined = [value for one in values for value in one]
    others = {name: one for name, one in variants[0].items() if name not in ("const", "enum")}
    return {**others, "enum": joined}


def write_json(value: Any) -> str:
    """Return a part of a schema as the words of a sentence."""
    text = orjson.dumps(value, default=str).decode()
    return text if len(text) <= _WORDS else f"{text[:_WORDS]}…"
