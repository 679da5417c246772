"""Repairs JSON schemas: older drafts, OpenAPI and slips of servers become JSON Schema 2020-12.

Each keyword of 2020-12 has a value of its kind afterwards, because a provider that validates
schemas refuses a whole request for one wrong value. Definitions are moved to the root.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import orjson

from copilot_runtime.adapters.toolset.references import References, find_base, join_uri
from copilot_runtime.base.jsonvalue import (
    DEFINITIONS,
    JsonObject,
    as_list,
    as_object,
    as_objects,
)

_KINDS = ("array", "boolean", "integer", "null", "number", "object", "string")
_OTHER_TYPES: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("int", "int32", "int64", "long", "short"), ("integer",)),
    **dict.fromkeys(("decimal", "double", "float", "numeric"), ("number",)),
    **dict.fromkeys(("char", "file", "str", "text"), ("string",)),
    **{word: ("string", word) for word in ("date", "date-time", "email", "time", "uri", "uuid")},
    **dict.fromkeys(("datetime", "timestamp"), ("string", "date-time")),
    "url": ("string", "uri"),
    "bool": ("boolean",),
    **dict.fromkeys(("dict", "map", "mapping", "record", "struct"), ("object",)),
    **dict.fromkeys(("list", "sequence", "set", "tuple"), ("array",)),
    **dict.fromkeys(("nil", "none", "undefined"), ("null",)),
    **dict.fromkeys(("*", "any", "mixed", "unknown"), ()),
}
"""Words that are used as types, in lower case → the type and the format; empty for any type."""

_DROPPED = frozenset(
    {"$schema", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$comment", "$vocabulary"}
    | {"$defs", "definitions", "additionalItems", "nullable"}
)
_NO_SCHEMA = object()


class UnusableSchema(Exception):
    """A schema that no provider would understand; the message is the reason."""


@dataclass(frozen=True, slots=True)
class RepairedSchema:
    """The root of a schema, the definitions that it refers to, and what had to be repaired."""

    root: JsonObject
    definitions: Mapping[str, JsonObject]
    changes: list[str]


def repair_schema(document: JsonObject) -> RepairedSchema:
    """Return a decoded schema as valid JSON Schema 2020-12; `document` is not changed.

    Raises `UnusableSchema` for a reference to something that the document does not contain.
    """
    repair = _Repair(document)
    root = repair.schema(document)
    repair.finish()
    return RepairedSchema(root, repair.definitions, [*repair.changes])


class _Repair:
    def __init__(self, document: JsonObject) -> None:
        self.definitions: dict[str, JsonObject] = {}
        self.changes: dict[str, None] = {}
        self._references = References(document)
        self._base = ""  # of the references in the schema at work
        self._names: dict[str, str] = {}  # absolute reference → name of its definition
        self._taken: set[str] = set()
        self._pending: list[tuple[str, Any, str]] = []

    def finish(self) -> None:
        """Repair the definitions, and those that they refer to."""
        while self._pending:
            name, target, self._base = self._pending.pop()
            self.definitions[name] = self.schema(target)

    def schema(self, node: Any) -> JsonObject:
        """Return one schema repaired."""
        if isinstance(node, bool):
            return {} if node else {"not": {}}
        if isinstance(node, str):
            self._note(f"the word {node[:40]!r} as a schema")
            is_type = node.lower() in _KINDS or node.lower() in _OTHER_TYPES
            return self.schema({"type" if is_type else "description": node})
        if not isinstance(node, dict):
            self._note("a schema that is no object")
            return {}
        source = cast("JsonObject", node)
        outer, self._base = self._base, find_base(self._base, source)
        repaired = self._repair_fields(source)
        self._base = outer
        return repaired

    def _repair_fields(self, source: JsonObject) -> JsonObject:
        fields = {name: value for name, value in source.items() if name not in _DROPPED}
        self._repair_reference(fields)
        self._repair_type(fields)
        self._repair_nullable(fields, source.get("nullable"))
        self._repair_bounds(fields)
        self._repair_patterns(fields)
        self._repair_items(fields, source.get("additionalItems"))
        self._repair_properties(fields)
        self._repair_dependencies(fields)
        repaired: JsonObject = {}
        for name, value in fields.items():
            read = _READERS.get(name)
            found = value if read is None else read(self, value)
            if found is _NO_SCHEMA:
                self._note(f"{name}: {_shorten(value)}")
            else:
                repaired[name] = found
        return repaired

    def _note(self, change: str) -> None:
        self.changes[change] = None

    def _repair_reference(self, fields: JsonObject) -> None:
        for name in ("$ref", "$dynamicRef", "$recursiveRef"):
            if name in fields:
                fields["$ref"] = self._refer(fields.pop(name))

    def _refer(self, reference: Any) -> str:
        """Return the reference to a definition that is made of the target."""
        if not isinstance(reference, str):
            raise UnusableSchema(f"its schema has the reference {_shorten(reference)}")
        uri = join_uri(self._base, reference)
        name = self._names.get(uri)
        if name is None:
            target = self._references.find(reference, self._base)
            if not isinstance(target, dict | bool):
                raise UnusableSchema(
                    f"its schema refers to {_shorten(reference)}, which it does not contain"
                )
            stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", reference.rpartition("/")[2]).strip("_")
            name, number = stem or "root", len(self._names)
            while name in self._taken:
                number += 1
                name = f"{stem or 'root'}_{number}"
            self._names[uri] = name
            self._taken.add(name)
            self._pending.append((name, target, uri.partition("#")[0]))
        return DEFINITIONS + name

    def _repair_type(self, fields: JsonObject) -> None:
        if (kind := fields.get("type", _NO_SCHEMA)) is _NO_SCHEMA:
            return
        names: list[str] = []
        is_open = False
        words: list[Any] = kind if isinstance(kind, list) else [kind]
        for word in words:
            other = _OTHER_TYPES.get(word.lower()) if isinstance(word, str) else None
            if isinstance(word, str) and word in _KINDS:
                names.append(word)
                continue
            self._note(f"type: {_shorten(word)}")
            if other:
                names.append(other[0])
                for format in other[1:]:
                    fields.setdefault("format", format)
            elif isinstance(word, str) and word.lower() in _KINDS:
                names.append(word.lower())
            else:
                is_open = True
                if other is None and word is not None:  # else it is a word for any type
                    text = fields.get("description") or ""
                    fields["description"] = f"{text} (type: {_shorten(word)})".strip()
        names = [*dict.fromkeys(names)]
        if is_open or not names:
            del fields["type"]
        else:
            fields["type"] = names[0] if len(names) == 1 else names

    def _repair_nullable(self, fields: JsonObject, nullable: Any) -> None:
        """Express OpenAPI's `nullable` by the type `null`."""
        if nullable is not True:
            return
        kind = fields.get("type")
        if isinstance(kind, str | list):
            kinds: list[Any] = [kind] if isinstance(kind, str) else kind
            fields["type"] = [*kinds, *(() if "null" in kinds else ("null",))]
        for name in ("anyOf", "oneOf"):
            if isinstance(branches := fields.get(name), list):
                fields[name] = [*cast("list[Any]", branches), {"type": "null"}]
        if isinstance(values := fields.get("enum"), list) and None not in values:
            fields["enum"] = [*cast("list[Any]", values), None]

    def _repair_bounds(self, fields: JsonObject) -> None:
        """Express the flags of draft 4 by the numbers of later ones."""
        for flag, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if isinstance(fields.get(flag), bool):
                is_exclusive = fields.pop(flag)
                self._note(f"{flag}: {str(is_exclusive).lower()}")
                if is_exclusive and bound in fields:
                    fields[flag] = fields.pop(bound)
        if "divisibleBy" in fields:
            fields["multipleOf"] = fields.pop("divisibleBy")

    def _repair_patterns(self, fields: JsonObject) -> None:
        """Move expressions that OpenAI and Vertex refuse to the description.

        https://github.com/cline/cline/issues/14019, https://github.com/langfuse/langfuse/issues/14770
        """
        pattern = fields.get("pattern")
        if isinstance(pattern, str) and not _is_plain(pattern):
            self._note(f"pattern: {_shorten(pattern)}")
            text = fields.get("description") or ""
            fields["description"] = f"{text} (pattern: {fields.pop('pattern')})".strip()
        by_pattern = fields.get("patternProperties")
        if isinstance(by_pattern, dict):
            own = cast("JsonObject", by_pattern).items()
            fields["patternProperties"] = {key: value for key, value in own if _is_plain(key)}

    def _repair_items(self, fields: JsonObject, additional: Any) -> None:
        """Give each array `items` that are one schema; a list of schemas is a tuple."""
        items = fields.get("items")
        kind = fields.get("type")
        if isinstance(items, list):
            self._note("items as a list")
            prefix = cast("list[Any]", items)
            fields["items"] = additional if isinstance(additional, dict) else {}
            if prefix:
                fields["prefixItems"] = prefix
            if additional is False:
                fields.setdefault("maxItems", len(prefix))
        elif isinstance(items, bool):
            prefix = cast("list[Any]", fields.get("prefixItems") or [])
            fields["items"] = {}
            if not items:
                fields.setdefault("maxItems", len(prefix))
        elif items is None and (kind == "array" or (isinstance(kind, list) and "array" in kind)):
            self._note("an array without items")
            fields["items"] = {}

    def _repair_properties(self, fields: JsonObject) -> None:
        """Move `required: true` of draft 3 from the properties to their object."""
        properties = fields.get("properties")
        if isinstance(properties, list):  # an empty array of PHP, or a list of parameters
            self._note("properties as a list")
            fields["properties"] = {
                one["name"]: {key: value for key, value in one.items() if key != "name"}
                for one in as_objects(properties)
                if isinstance(one.get("name"), str)
            }
        required: list[Any] = []
        if isinstance(needs := fields.pop("required", None), list):
            required = needs
        elif isinstance(needs, str):
            self._note("required as a text")
            required = [needs]
        elif needs is not None:
            self._note(f"required: {_shorten(needs)}")
        own: JsonObject = {}
        for name, value in as_object(fields.get("properties")).items():
            flag = value.get("required") if isinstance(value, dict) else None
            if isinstance(flag, bool):
                self._note(f"required: {str(flag).lower()} of a property")
                value = {key: one for key, one in value.items() if key != "required"}
                required = [*required, name] if flag else required
            own[name] = value
        if own:
            fields["properties"] = own
        names = [*dict.fromkeys(name for name in required if isinstance(name, str))]
        if names or isinstance(needs, list):
            fields["required"] = names

    def _repair_dependencies(self, fields: JsonObject) -> None:
        for name, needs in as_object(fields.pop("dependencies", None)).items():
            place = "dependentRequired" if isinstance(needs, list) else "dependentSchemas"
            fields[place] = {**as_object(fields.get(place)), name: needs}

    def read_schemas(self, value: Any) -> Any:
        """Read a list of schemas, which must not be empty."""
        if not isinstance(value, list) or not value:
            return _NO_SCHEMA
        return [self.schema(one) for one in cast("list[Any]", value)]

    def read_map(self, value: Any) -> Any:
        """Read schemas by their names."""
        if not isinstance(value, dict):
            return _NO_SCHEMA
        return {name: self.schema(one) for name, one in cast("JsonObject", value).items()}


def _read_flag_or_schema(repair: _Repair, value: Any) -> Any:
    return value if isinstance(value, bool) else repair.schema(value)


def _read_number(_: _Repair, value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return _NO_SCHEMA
    return value if type(value) in (int, float) else _NO_SCHEMA


def _read_positive(repair: _Repair, value: Any) -> Any:
    number = _read_number(repair, value)
    return number if number is not _NO_SCHEMA and number > 0 else _NO_SCHEMA


def _read_count(repair: _Repair, value: Any) -> Any:
    number = _read_number(repair, value)
    is_count = number is not _NO_SCHEMA and 0 <= number < 2**53 and number == int(number)
    return int(number) if is_count else _NO_SCHEMA


def _read_text(_: _Repair, value: Any) -> Any:
    return value if isinstance(value, str) else _NO_SCHEMA


def _read_flag(_: _Repair, value: Any) -> Any:
    return value if isinstance(value, bool) else _NO_SCHEMA


def _read_values(_: _Repair, value: Any) -> Any:
    distinct = {orjson.dumps(one): one for one in as_list(value)}
    return [*distinct.values()] or _NO_SCHEMA


def _read_names(_: _Repair, value: Any) -> Any:
    if not isinstance(value, dict):
        return _NO_SCHEMA
    return {
        name: [*dict.fromkeys(item for item in one if isinstance(item, str))]
        for name, one in cast("JsonObject", value).items()
        if isinstance(one, list)
    }


_Reader = Callable[[_Repair, Any], Any]


def _readers(read: _Reader, keywords: str) -> dict[str, _Reader]:
    return dict.fromkeys(keywords.split(), read)


_READERS: Mapping[str, _Reader] = {
    **_readers(_read_flag_or_schema, "additionalProperties unevaluatedProperties unevaluatedItems"),
    **_readers(_Repair.schema, "items contains propertyNames not if then else contentSchema"),
    **_readers(_Repair.read_schemas, "allOf anyOf oneOf prefixItems"),
    **_readers(_Repair.read_map, "properties patternProperties dependentSchemas"),
    **_readers(_read_number, "minimum maximum exclusiveMinimum exclusiveMaximum"),
    **_readers(_read_positive, "multipleOf"),
    **_readers(_read_count, "minLength maxLength minItems maxItems minProperties maxProperties"),
    **_readers(_read_count, "minContains maxContains"),
    **_readers(_read_text, "title description format pattern contentEncoding contentMediaType"),
    **_readers(_read_flag, "uniqueItems deprecated readOnly writeOnly"),
    **_readers(_read_values, "enum examples"),
    **_readers(_read_names, "dependentRequired"),
}
"""Keyword of JSON Schema 2020-12 → a function that returns its value, or `_NO_SCHEMA`."""


_NOT_PLAIN = re.compile(r"\(\?<?[=!]|\\[pP]\{")  # lookaround, classes of Unicode


def _is_plain(pattern: str) -> bool:
    """Return whether a regular expression is one that all validators know."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return _NOT_PLAIN.search(pattern) is None


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return repr(text[:80]) if isinstance(value, str) else text[:80]
