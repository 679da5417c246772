"""JSON schemas: simplified for models, and untrusted ones, in bounded time and without network."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, cast

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.jsonvalue import DEFINITIONS, list_references

Schema = dict[str, Any]

_MAX_NODES = 2000
_MOST_MISFITS = 5
_LONGEST = 300

# keywords whose value is a schema, a list of schemas, or schemas by name
_ONE = ("items", "additionalProperties", "not", "contains", "propertyNames")
_MANY = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "patternProperties")


class _TooLarge(Exception):
    """The schema would be too large with all definitions inlined."""


def simplify(schema: Schema) -> Schema:
    """Return an object schema without titles and, unless a type contains itself, without `$ref`."""
    definitions: Mapping[str, Schema] = schema.get("$defs", {})
    recursive = _find_recursive(definitions)
    try:
        simple = _Simplifier(definitions, recursive).object(schema)
    except _TooLarge:
        recursive = set(definitions)
        simple = _Simplifier(definitions, recursive).object(schema)
    if recursive:
        # no limit here: each definition is written once, and inlined ones were counted
        simple["$defs"] = {
            name: _Simplifier(definitions, recursive, limit=None).schema(definitions[name])
            for name in definitions
            if name in recursive
        }
    return simple


class _Simplifier:
    def __init__(
        self, definitions: Mapping[str, Schema], recursive: set[str], limit: int | None = _MAX_NODES
    ) -> None:
        self.definitions = definitions
        self.recursive = recursive
        self.limit = limit if recursive != set(definitions) else None
        self.nodes = 0

    def object(self, schema: Schema) -> Schema:
        simple = self.schema({key: value for key, value in schema.items() if key != "$defs"})
        simple.pop("description", None)  # the action has its own
        head = {"type": "object", "properties": {}, "required": []}
        return {**head, **simple}

    def schema(self, schema: Any) -> Any:
        if not isinstance(schema, dict):  # `true` and `false` are schemas too
            return schema
        self.nodes += 1
        if self.limit is not None and self.nodes > self.limit:
            raise _TooLarge
        node = self._resolve(dict(cast("Schema", schema)))
        for noise in ("title", "discriminator"):
            node.pop(noise, None)
        if "const" in node:
            node["enum"] = [node.pop("const")]
        if "oneOf" in node:
            node["anyOf"] = node.pop("oneOf")
        node = _drop_null(node)
        for key in _ONE:
            if key in node:
                node[key] = self.schema(node[key])
        for key in _MANY:
            if key in node:
                node[key] = [self.schema(item) for item in node[key]]
        for key in _NAMED:
            if key in node:
                node[key] = {name: self.schema(item) for name, item in node[key].items()}
        if len(node.get("anyOf", ())) == 1:
            node |= {**node.pop("anyOf")[0], **node}
        return _order_keys(node)

    def _resolve(self, node: Schema) -> Schema:
        """Inline the definition of a `$ref`; keywords beside the `$ref` take precedence."""
        while (
            "$ref" in node
            and (name := node["$ref"].removeprefix(DEFINITIONS)) not in self.recursive
        ):
            del node["$ref"]
            node = {**self.definitions[name], **node}
        return node


def _find_recursive(definitions: Mapping[str, Schema]) -> set[str]:
    """Return the definitions that contain themselves, directly or not."""
    direct = {name: set(list_references(schema)) for name, schema in definitions.items()}

    def reaches_itself(start: str) -> bool:
        visited: set[str] = set()
        ahead = [*direct[start]]
        while ahead:
            name = ahead.pop()
            if name == start:
                return True
            if name not in visited:
                visited.add(name)
                ahead += direct[name]
        return False

    return {name for name in definitions if reaches_itself(name)}


def _drop_null(node: Schema) -> Schema:
    """Drop `null` from values that may be left out: fewer providers accept it."""
    if "default" in node and node["default"] is None:
        del node["default"]
        if "anyOf" in node:
            node["anyOf"] = [item for item in node["anyOf"] if item != {"type": "null"}]
    return node


def _order_keys(node: Schema) -> Schema:
    first = [key for key in ("type", "description") if key in node]
    return {key: node[key] for key in (*first, *(key for key in node if key not in first))}


def list_misfits(value: Any, schema: Mapping[str, Any]) -> list[str]:
    """Return the validation errors, each as a path and a message.

    Raises `ConfigurationFailed` for an invalid schema.
    """
    import re

    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        dialect: Any = validator_for(schema, default=Draft202012Validator)
        dialect.check_schema(schema)
        # an empty registry, or else a schema could have this server fetch any URL
        validator = limit_dialect(dialect, has_patterns=False)(schema, registry=Registry())
        errors = [*islice(validator.iter_errors(value), _MOST_MISFITS)]
    except RecursionError:
        return ["it is nested too deeply"]
    except (SchemaError, Unresolvable, TypeError, ValueError, re.error) as error:
        raise ConfigurationFailed(f"The schema is no JSON schema: {_shorten(error)}") from error
    return [_describe(error) for error in errors]


@cache
def limit_dialect(dialect: Any, *, has_patterns: bool) -> Any:
    """Return a dialect without checks of superlinear time: `uniqueItems` and patterns."""
    from jsonschema import ValidationError
    from jsonschema.validators import extend

    def check_unique(
        validator: Any, is_unique: Any, items: Any, schema: Any
    ) -> Iterator[ValidationError]:
        del schema
        if is_unique and validator.is_type(items, "array"):
            texts = {json.dumps(item, sort_keys=True) for item in items}
            if len(texts) < len(items):
                yield ValidationError("it has equal items")

    patterns = {} if has_patterns else {"pattern": None, "patternProperties": None}
    return extend(dialect, {"uniqueItems": check_unique, **patterns})


def _describe(error: Any) -> str:
    place = str(error.json_path).removeprefix("$").removeprefix(".")
    return f"{place}: {_shorten(error.message)}" if place else _shorten(error.message)


def _shorten(problem: object) -> str:
    text = str(problem).partition("\n")[0]
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
