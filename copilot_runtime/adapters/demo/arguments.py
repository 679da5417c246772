"""Fills a JSON schema with what a sentence offers, for the demo model."""

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, cast

Schema = Mapping[str, Any]

_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”|„([^“”]+)[“”]|(?<!\w)\'([^\']+)\'(?!\w)')
_NUMBER = re.compile(r"(?<![\w#.])-?\d++(?:\.\d++)?(?![\w.]*\w)")
_COLOR = re.compile(
    r"#[0-9a-f]{3,8}\b|\b(?:aqua|black|blue|brown|coral|crimson|cyan|gold|gr[ae]y|green|indigo"
    r"|lavender|lime|magenta|maroon|navy|olive|orange|orchid|pink|plum|purple|red|salmon|silver"
    r"|tan|teal|tomato|turquoise|violet|white|yellow)\b",
    re.IGNORECASE,
)
_NAME = r"[A-ZÀ-Þ][\w'\u2019-]*"
_PLACE = re.compile(rf"\b(?:in|at|from|to|for|of)\s+({_NAME}(?:\s+{_NAME})*)")
_NO = re.compile(r"\b(?:no|not|off|false|without|disable|don't)\b", re.IGNORECASE)
_PLACES = {"city", "place", "location", "town", "country", "address", "destination"}
_TEXTS = {"text", "note", "title", "message", "content", "item", "task", "todo", "query", "name"}
_FORMATS: dict[str, tuple[str, str]] = {
    "date": (r"\b\d{4}-\d\d-\d\d\b", "2030-01-31"),
    "date-time": (r"\b\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)?", "2030-01-31T12:00:00Z"),
    "time": (r"\b\d\d:\d\d(?::\d\d)?\b", "12:00:00"),
    "email": (r"[\w.+-]+@[\w-]+\.[\w.-]+", "someone@example.com"),
    "uri": (r"\bhttps?://\S+", "https://example.com/"),
    "uuid": (
        r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
        f"{'0' * 8}-0000-4000-8000-{'0' * 12}",
    ),
}
_MAX_DEPTH = 6
_MAX_ITEMS = 5


def arguments(schema: Schema, text: str, *, items: Sequence[Mapping[str, str]] = ()) -> Any:
    """Return a value for `schema` made from `text`.

    Lists of objects take their texts from `items`, when there are some.
    """
    return _Filler(schema, text, items).value(schema, "", 0)


def words(name: str) -> list[str]:
    """Split `snake_case`, `camelCase` and plain sentences into lower-case words."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", name)
    return re.findall(r"[^\W_]+", re.sub(r"(?<=\w)[-'\u2019](?=\w)", "", spaced).lower())


def find_color(text: str) -> str | None:
    """Return the first colour a sentence names."""
    found = _COLOR.search(text)
    return found[0].lower() if found else None


def wants_color(name: str, schema: Schema) -> bool:
    """Tell whether a property asks for a colour."""
    asked = {*words(name), *words(str(schema.get("description", "")))}
    return bool(asked & {"color", "colour", "colors", "colours"})


def properties_of(schema: Schema) -> dict[str, Schema]:
    """Return the properties of an object's schema, whatever the schema looks like."""
    return {name: _schema(each) for name, each in _schema(schema.get("properties")).items()}


def required_of(schema: Schema) -> list[Any]:
    """Return the names of the properties an object must have."""
    return _list(schema.get("required"))


def options_of(schema: Schema) -> list[Any]:
    """Return the values an enum allows."""
    return _list(schema.get("enum"))


class _Filler:
    """Hands out each quoted text and each number of the sentence once."""

    def __init__(self, root: Schema, text: str, items: Sequence[Mapping[str, str]]) -> None:
        self._root = root
        self._text = text
        self._items = items
        self._quoted = [str(found[found.lastindex or 0]) for found in _QUOTED.finditer(text)]
        numbers = map(float, _NUMBER.findall(_QUOTED.sub(" ", text)))
        self._numbers = [number for number in numbers if isfinite(number)]

    def value(self, schema: Schema, name: str, depth: int) -> Any:
        schema = self._resolve(schema)
        if "const" in schema:
            return schema["const"]
        if options := options_of(schema):
            return self._chosen(options, schema)
        match _kind(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, name, depth)
            case "integer" | "number" as kind:
                return self._number(schema, kind, name)
            case "boolean":
                return not _NO.search(self._text)
            case "null":
                return None
            case _:
                return self._string(schema, name)

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        if depth >= _MAX_DEPTH:
            return {}
        required = required_of(schema)
        return {
            name: self.value(each, name, depth + 1)
            for name, each in properties_of(schema).items()
            if name in required or self._offers(self._resolve(each), name)
        }

    def _offers(self, schema: Schema, name: str) -> bool:
        """Tell whether the sentence says anything about an optional property."""
        if options := options_of(schema):
            return any(_mentions(self._text, option) for option in options)
        kind = _kind(schema)
        if kind in ("integer", "number"):
            return bool(self._numbers)
        if kind == "string":
            if wants_color(name, schema):
                return find_color(self._text) is not None
            return bool(self._quoted) or (name.lower() in _PLACES and bool(self._place()))
        return kind == "boolean" and set(words(name)) <= set(words(self._text))

    def _array(self, schema: Schema, name: str, depth: int) -> list[Any]:
        each = self._resolve(_schema(schema.get("items")))
        if depth >= _MAX_DEPTH:
            return []
        if self._items and _kind(each) == "object":
            return [_named(properties_of(each), item) for item in self._items]
        if _kind(each) == "string" and not each.get("enum") and len(self._quoted) > 1:
            taken, self._quoted = self._quoted, []
            return taken
        count = min(max(_bound(schema, "minItems") or 1, 1), _MAX_ITEMS)
        return [self.value(each, name, depth + 1) for _ in range(int(count))]

    def _chosen(self, options: Sequence[Any], schema: Schema) -> Any:
        named = [option for option in options if _mentions(self._text, option)]
        return named[0] if named else schema.get("default", options[0])

    def _number(self, schema: Schema, kind: str, name: str) -> float | int:
        low, high = _bound(schema, "minimum"), _bound(schema, "maximum")
        number = self._next_number(name)
        if number is None:
            number = _bound(schema, "default")
        if number is None:
            number = low if low is not None else 1.0
        number = number if low is None else max(number, low)
        number = number if high is None else min(number, high)
        return int(number) if kind == "integer" or number == int(number) else number

    def _next_number(self, name: str) -> float | None:
        """Take the number before the property's name ("20 sides"), or the first one left."""
        if not self._numbers:
            return None
        before = re.search(rf"(-?\d+(?:\.\d+)?)[\s-]+{re.escape(name)}", self._text, re.IGNORECASE)
        named = float(before[1]) if before else None
        return self._numbers.pop(self._numbers.index(named) if named in self._numbers else 0)

    def _string(self, schema: Schema, name: str) -> str:
        pattern, example = _FORMATS.get(str(schema.get("format")), ("", ""))
        if pattern:
            found = re.search(pattern, self._text)
            return found[0] if found else example
        if wants_color(name, schema):
            return find_color(self._text) or "teal"
        if self._quoted:
            return self._quoted.pop(0)
        if name.lower() in _PLACES:
            return self._place() or str(schema.get("default", "Berlin"))
        if "default" in schema:
            return str(schema["default"])
        if set(words(name)) & _TEXTS:
            return _rest(self._text)
        return self._place() or _rest(self._text)

    def _place(self) -> str:
        found = _PLACE.search(self._text)
        return found[1] if found else ""

    def _resolve(self, schema: Schema) -> Schema:
        """Follow references and take the first choice that is not null."""
        for _ in range(_MAX_DEPTH):
            reference = schema.get("$ref")
            if isinstance(reference, str) and reference.startswith("#/"):
                target: Any = self._root
                for step in reference[2:].split("/"):
                    target = _schema(target).get(step)
                schema = _schema(target)
                continue
            choices = [*_list(schema.get("anyOf")), *_list(schema.get("oneOf"))]
            choices += _list(schema.get("allOf"))
            real = [choice for choice in map(_schema, choices) if choice.get("type") != "null"]
            if not real:
                return schema
            schema = {**real[0], **{k: v for k, v in schema.items() if k == "description"}}
        return {}


def _kind(schema: Schema) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((each for each in _list(kind) if each != "null"), "null")
    if isinstance(kind, str):
        return kind
    return "object" if "properties" in schema else "string"


def _named(properties: Mapping[str, Schema], item: Mapping[str, str]) -> dict[str, str]:
    """Give each property the text of that name; any other gets the longest one."""
    return {name: item.get(name) or max(item.values(), key=len) for name in properties}


def _mentions(text: str, option: object) -> bool:
    spoken = f" {' '.join(words(text))} "
    return f" {' '.join(words(str(option)))} " in spoken if words(str(option)) else False


def _rest(text: str) -> str:
    """Return what follows a colon, or the sentence without its opening request."""
    before, colon, after = text.partition(": ")
    if colon and after.strip() and len(before) < 60:
        return after.strip()
    asked = r"^\W*(?:please\s+)?(?:add|create|make|write|note|save|remember|search|find|look up)\s+"
    rest = re.sub(asked, "", text.strip(), flags=re.IGNORECASE)
    rest = re.sub(r"^(?:a |an |the |my |me |down |new )*", "", rest, flags=re.IGNORECASE)
    rest = re.sub(
        r"^(?:notes?|to-?dos?|tasks?|items?)\b(?: (?:to|that|about|for|saying)\b)?\s*", "", rest
    )
    return rest.strip(" .!?") or text.strip() or "demo"


def _bound(schema: Schema, key: str) -> float | None:
    found = schema.get(key)
    return found if isinstance(found, int | float) and isfinite(found) else None


def _schema(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []
