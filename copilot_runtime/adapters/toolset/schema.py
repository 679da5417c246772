"""Adapts the schema of a tool's parameters to the rules of one provider.

The meaning stays: alternatives at the root become one object, and what a provider does not
understand is said in its description. A schema that cannot be an object is not usable.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, cast

import orjson

from copilot_runtime.adapters.streaming import encode_body
from copilot_runtime.adapters.toolset.repair import UnusableSchema, repair_schema
from copilot_runtime.adapters.toolset.root import RootMerger, merge_objects, write_json
from copilot_runtime.adapters.toolset.rules import ToolRules
from copilot_runtime.base.jsonvalue import (
    DEFINITIONS,
    JsonObject,
    as_object,
    list_references,
)

_SILENT = frozenset({"title", "description", "default", "examples", "additionalProperties"})
"""Keywords whose loss changes nothing for a model."""

_FORMATS = frozenset({"date-time", "date", "time", "int32", "int64", "float", "double"})
"""The formats that Gemini documents."""

_NODES = 2_000
_STEM = 54
_NOT_IN_KEYS = re.compile(r"[^a-zA-Z0-9_]+")


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A schema as one provider takes it."""

    schema: JsonObject
    notes: Sequence[str] = ()
    """Sentences for the description of the tool, about what the schema no longer says."""
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """Sent name → own name of the parameters that are renamed."""
    changes: Sequence[str] = ()
    """The faults that were repaired, for the log."""
    size: int = 0
    """Bytes of the original as JSON."""


SCHEMA_BYTES = 500_000
"""Maximum size of the schemas of a request as JSON. To adapt them takes 0.1 s, and as tokens they
fill the context window of most models."""


def adapt_schema(schema: Any, rules: ToolRules, room: int = SCHEMA_BYTES) -> ToolSchema:
    """Return a schema by the rules of a provider.

    Raises `UnusableSchema` if it is no object, refers to something that it does not contain, or has
    more bytes than there is room for.
    """
    if not isinstance(schema, Mapping):
        raise UnusableSchema(f"its schema is no object, but {type(schema).__name__}")
    try:
        data = encode_body(schema)
        if len(data) > room:
            raise UnusableSchema(f"the schemas of all tools have more than {SCHEMA_BYTES:,} bytes")
        document: JsonObject = orjson.loads(data)
        repaired = repair_schema(document)
        root = RootMerger(repaired)
        adapted = root.build()
        if rules.inlines:
            adapted = _Inliner(repaired.definitions).expand(adapted)
        elif found := _list_definitions(adapted, repaired.definitions):
            adapted["$defs"] = found
    except (TypeError, ValueError, RecursionError) as error:
        raise UnusableSchema("its schema cannot be written as JSON") from error
    notes = root.notes
    if rules.keywords is not None:
        adapted = _Restriction(rules.keywords).schema(adapted)
    if rules.root is not None:
        lost = {name: value for name, value in adapted.items() if name not in rules.root}
        if dropped := {name: value for name, value in lost.items() if name not in _SILENT}:
            notes.append(f"The arguments also match {write_json(dropped)}.")
        adapted = {name: value for name, value in adapted.items() if name in rules.root}
    adapted, keys = _rename_keys(adapted, rules.key)
    changes = [
        *repaired.changes,
        *root.changes,
        *(f"the parameter {own!r}" for own in keys.values()),
    ]
    return ToolSchema(adapted, notes, keys, changes, len(data))


def _list_definitions(schema: JsonObject, definitions: Mapping[str, JsonObject]) -> JsonObject:
    """Return the definitions that a schema refers to, directly or not."""
    found: JsonObject = {}
    pending = [*list_references(schema)]
    while pending:
        name = pending.pop()
        if name in definitions and name not in found:
            found[name] = definitions[name]
            pending += list_references(definitions[name])
    return found


class _Inliner:
    """Replaces references by their definitions; inside of itself, a definition is any value."""

    def __init__(self, definitions: Mapping[str, JsonObject]) -> None:
        self._definitions = definitions
        self._left = _NODES

    def expand(self, node: Any, above: tuple[str, ...] = ()) -> Any:
        if isinstance(node, list):
            return [self.expand(one, above) for one in cast("list[Any]", node)]
        if not isinstance(node, dict):
            return node
        self._left -= 1
        fields = cast("JsonObject", node)
        reference = fields.get("$ref")
        name = reference.removeprefix(DEFINITIONS) if isinstance(reference, str) else ""
        if name not in self._definitions:
            return {key: self.expand(one, above) for key, one in fields.items()}
        own = {key: self.expand(one, above) for key, one in fields.items() if key != "$ref"}
        target = self._definitions[name]
        if name in above or self._left < 0:
            rest = {key: target[key] for key in ("type", "description") if key in target}
            return {**rest, **own}
        return {**self.expand(target, (*above, name)), **own}


class _Restriction:
    """Writes schemas with a few keywords; the others become words of the description."""

    def __init__(self, keywords: frozenset[str]) -> None:
        self._keywords = keywords

    def schema(self, node: JsonObject) -> JsonObject:
        fields = {**node}
        for part in fields.pop("allOf", ()):
            fields = merge_objects(fields, part)
        if "const" in fields:
            fields["enum"] = [fields.pop("const")]
        if "oneOf" in fields:
            fields["anyOf"] = [*fields.pop("anyOf", ()), *fields.pop("oneOf")]
        dropped: JsonObject = {}
        self._restrict_values(fields, dropped)
        for name in [*fields]:
            if name not in self._keywords or (name == "format" and fields[name] not in _FORMATS):
                value = fields.pop(name)
                if name not in ("default", "examples"):
                    dropped[name] = value
        if dropped:
            words = f"{fields.get('description', '')} {write_json(dropped)}"
            fields["description"] = words.strip()
        if "properties" in fields:
            own = fields["properties"]
            fields["properties"] = {name: self.schema(one) for name, one in own.items()}
        for name in ("items", "additionalProperties"):
            if isinstance(one := fields.get(name), dict):
                fields[name] = self.schema(cast("JsonObject", one))
        if "prefixItems" in fields:
            fields["prefixItems"] = [self.schema(one) for one in fields["prefixItems"]]
        for name in fields.get("required", ()):  # Gemini refuses a name without a property
            fields.setdefault("properties", {}).setdefault(name, {})
        return self._split(fields)

    @staticmethod
    def _restrict_values(fields: JsonObject, dropped: JsonObject) -> None:
        """Keep the values of texts only; `null` among them is a type, and no text is refused.

        https://github.com/sbroenne/mcp-server-excel/issues/607
        """
        values = fields.get("enum")
        if not isinstance(values, list):
            return
        texts = [one for one in cast("list[Any]", values) if one is not None]
        if not all(isinstance(one, str) for one in texts):
            dropped["enum"] = fields.pop("enum")
            fields.setdefault("type", _find_type(texts))
            return
        if not texts:
            del fields["enum"]
            fields["type"] = "null"
            return
        if "" in texts:
            dropped["enum"] = values
            texts = [one for one in texts if one]
        fields["enum"] = texts
        if not texts:
            del fields["enum"]
        fields["type"] = ["string", "null"] if None in values else "string"

    def _split(self, fields: JsonObject) -> JsonObject:
        """Write alternatives with nothing beside them, and several types as alternatives."""
        kinds = fields.get("type")
        if "anyOf" not in fields:
            real = [one for one in kinds if one != "null"] if isinstance(kinds, list) else []
            if len(real) < 2:
                return fields
            fields["anyOf"] = [{"type": one} for one in cast("list[str]", kinds)]
            del fields["type"]
        branches = [self.schema(one) for one in fields.pop("anyOf")]
        about = {name: fields.pop(name) for name in ("title", "description") if name in fields}
        real = [one for one in branches if one != {"type": "null"}]
        if len(real) == 1:
            only = {**about, **self._join(real[0], fields)}
            kind = only.get("type")
            if len(real) < len(branches) and isinstance(kind, str):
                only["type"] = [kind, "null"]
            if len(real) == len(branches) or kind is not None:
                return only
        return {**about, "anyOf": [self._join(one, fields) for one in branches]}

    def _join(self, branch: JsonObject, fields: JsonObject) -> JsonObject:
        """Return an alternative with what stands beside all of them."""
        if branch == {"type": "null"} or not fields:
            return branch
        if "anyOf" in branch:
            return {**branch, "anyOf": [self._join(one, fields) for one in branch["anyOf"]]}
        joined = merge_objects(branch, fields)
        for name, one in as_object(joined.get("properties")).items():
            if "allOf" in one:
                joined["properties"][name] = self.schema(one)
        return joined


def _find_type(values: Sequence[Any]) -> str:
    """Return the type of values that are not all texts."""
    kinds = {type(one) for one in values}
    if kinds == {bool}:
        return "boolean"
    return "integer" if kinds == {int} else "number" if kinds <= {int, float} else "string"


def _rename_keys(schema: JsonObject, pattern: str) -> tuple[JsonObject, Mapping[str, str]]:
    """Return a schema whose parameters have names of the pattern, and their own names."""
    if not pattern:
        return schema, {}
    fits = re.compile(pattern).fullmatch
    properties: JsonObject = {}
    parameters: Mapping[str, JsonObject] = schema["properties"]
    names = {own: _encode_key(own) for own in parameters if not fits(own)}
    if not names:
        return schema, {}
    for own, one in parameters.items():
        if own in names:
            text = one.get("description", "")
            one = {**one, "description": f"{own}: {text}" if text else own}
        properties[names.get(own, own)] = one
    renamed = {**schema, "properties": properties}
    if "required" in schema:
        renamed["required"] = [names.get(own, own) for own in schema["required"]]
    if "dependentRequired" in schema:
        renamed["dependentRequired"] = {
            names.get(own, own): [names.get(one, one) for one in needs]
            for own, needs in schema["dependentRequired"].items()
        }
    return renamed, {sent: own for own, sent in names.items()}


def _encode_key(key: str) -> str:
    """Return a name for a parameter that every provider accepts."""
    stem = _NOT_IN_KEYS.sub("_", key)[:_STEM].strip("_")
    mark = sha256(key.encode(errors="replace")).hexdigest()[:8]
    return f"{'' if stem[:1].isalpha() else '_'}{stem}_{mark}"
