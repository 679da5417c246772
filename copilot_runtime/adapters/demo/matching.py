"""Matches sentences to actions, and fills arguments, for the demo model."""

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from math import inf, isfinite
from typing import Any, NamedTuple

from copilot_runtime.api.action import Action
from copilot_runtime.base.jsonvalue import as_list, as_object, as_objects, as_text, get_object

Schema = Mapping[str, Any]

NOTE = "(I am the demo model, which follows rules. A real model would answer in its own words.)"
"""The end of each answer."""

QUOTED = re.compile(r"""["“„]([^"“”]+)["“”]|(?<!\w)'([^']+)'(?!\w)""")
_NUMBER = re.compile(r"(?<![\w#.])-?\d{1,15}+(?:\.\d{1,15}+)?(?![\w.]*\w)")
_COLOR = re.compile(
    r"#[0-9a-f]{3,8}\b|\b(?:black|blue|brown|crimson|cyan|gold|gr[ae]y|green|indigo|magenta|navy"
    r"|olive|orange|pink|purple|red|silver|teal|tomato|turquoise|violet|white|yellow)\b",
    re.IGNORECASE,
)
_NAME = r"[A-ZÀ-Þ][\w'\u2019-]*"
_PLACE = re.compile(rf"\b(?:in|at|from|to|for|of)\s+({_NAME}(?:\s+{_NAME})*)")
_NO = re.compile(r"\b(?:no|not|off|false|without|disable|don't)\b", re.IGNORECASE)
_OPENING = re.compile(
    r"^\W*(?:please\s+)?(?:(?:add|create|make|write|note|save|remember|search|find|look up)\s+)?"
    r"(?:(?:a|an|the|my|me|down|new)\s+)*"
    r"(?:(?:notes?|to-?dos?|tasks?|items?)\b(?: (?:to|that|about|for|saying)\b)?\s*)?",
    re.IGNORECASE,
)
_ASKING = re.compile(
    r"\W*(?:how|what|when|where|which|who|why|is|are|was|were|does|do|did|has|have|can|could|may"
    r"|should|will|would)\b(?!.*: )",
    re.IGNORECASE | re.DOTALL,
)
"""A question, which is no value of an argument."""
_PLACES = {"city", "place", "location", "town", "country", "address", "destination"}
_FORMATS = {
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
_COLOR_EXAMPLE, _PLACE_EXAMPLE = "teal", "Berlin"
_EXAMPLES = {_COLOR_EXAMPLE, _PLACE_EXAMPLE, *(example for _, example in _FORMATS.values())}
"""Values that no sentence has asked for."""
_MAX_DEPTH = 6
_MAX_ITEMS = 5


def fill_arguments(schema: Schema, text: str, *, items: Sequence[Mapping[str, str]] = ()) -> Any:
    """Return a value for `schema` made from `text`.

    Lists of objects take their texts from `items`, when there are some.
    """
    return _Filler(schema, text, items).fill(schema)


def find_missing(schema: Schema, text: str) -> list[str]:
    """Return the required arguments for which `text` has no value, so that they are made up."""
    filler = _Filler(schema, text, ())
    filler.fill(schema)
    return filler.examples


def split_words(name: str) -> list[str]:
    """Split `snake_case`, `camelCase` and plain sentences into lower-case words."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", name)
    return re.findall(r"[^\W_]+", re.sub(r"(?<=\w)[-'\u2019](?=\w)", "", spaced).lower())


def find_color(text: str) -> str | None:
    """Return the first colour in a sentence."""
    color = _COLOR.search(text)
    return color[0].lower() if color else None


def is_color(name: str, schema: Schema) -> bool:
    """Return whether the values of a property are colours, by its name and description."""
    return bool(re.search("colou?r", f"{name} {schema.get('description')}", re.IGNORECASE))


def get_properties(schema: Schema) -> dict[str, Schema]:
    """Return the properties of an object's schema."""
    return {name: as_object(each) for name, each in as_object(schema.get("properties")).items()}


class _Filler:
    """Uses each quoted text and each number of the sentence once."""

    def __init__(self, root: Schema, text: str, items: Sequence[Mapping[str, str]]) -> None:
        self._root = root
        self._text = text
        self._items = items
        self._quotes = [quote[1] or quote[2] for quote in QUOTED.finditer(text)]
        self._numbers: list[str] = _NUMBER.findall(QUOTED.sub(" ", text))
        self.examples: list[str] = []
        """The arguments that are examples, as the sentence has no value for them."""

    def fill(self, schema: Schema, name: str = "", depth: int = 0, required: bool = True) -> Any:
        """Return a value: from the sentence if possible, else an example, or None if optional."""
        schema = self._resolve(schema)
        options = [schema["const"]] if "const" in schema else as_list(schema.get("enum"))
        match "enum" if options else _type(schema):
            case "enum":
                value = next((each for each in options if _mentions(self._text, each)), None)
                example = options[0]
            case "object" | "array" if not required or depth >= _MAX_DEPTH:
                return None
            case "object":
                return self._fill_object(schema, depth + 1)
            case "array":
                return self._fill_array(schema, name, depth + 1)
            case "integer" | "number":
                value, example = self._take_number(schema, name), _clamp(1, schema)
            case "boolean":
                example = not _NO.search(self._text)
                value = example if _mentions(self._text, name) else None
            case "string":
                value, example = self._find_text(schema, name)
            case _:
                return None
        if value is not None or not required:
            return value
        is_example = (
            bool(options[1:])
            or _type(schema) in ("integer", "number")
            or str(example) in _EXAMPLES
            or (_type(schema) == "string" and bool(_ASKING.match(self._text)))
        )
        if "default" not in schema and depth == 1 and is_example:
            self.examples.append(name)
        return schema.get("default", example)

    def _fill_object(self, schema: Schema, depth: int) -> dict[str, Any]:
        """Fill the required properties, and the others that the sentence has a value for."""
        required = as_list(schema.get("required"))
        values = {
            name: self.fill(each, name, depth, name in required)
            for name, each in get_properties(schema).items()
        }
        return {
            name: value for name, value in values.items() if value is not None or name in required
        }

    def _fill_array(self, schema: Schema, name: str, depth: int) -> list[Any]:
        each = self._resolve(as_object(schema.get("items")))
        names = get_properties(each)
        if names and self._items:
            return [{name: item.get(name, "") for name in names} for item in self._items]
        least = schema.get("minItems")
        count = min(max(least, 1), _MAX_ITEMS) if isinstance(least, int) else 1
        if _type(each) == "string" and "enum" not in each:
            count = max(count, len(self._quotes))
        return [self.fill(each, name, depth) for _ in range(count)]

    def _find_text(self, schema: Schema, name: str) -> tuple[str | None, str]:
        """Return the text that the sentence has for a property, or None; and an example."""
        if format := _FORMATS.get(str(schema.get("format"))):
            match = re.search(format[0], self._text)
            return match and match[0], format[1]
        color = find_color(self._text) if is_color(name, schema) else None
        if self._quotes and not color:
            return self._quotes.pop(0), ""
        if is_color(name, schema):
            return color, _COLOR_EXAMPLE
        if name.lower() in _PLACES:
            place = _PLACE.search(self._text)
            return place and place[1], _PLACE_EXAMPLE
        return None, _strip_request(self._text)

    def _take_number(self, schema: Schema, name: str) -> float | None:
        """Take the number before the property's name ("20 sides"), or the first one left."""
        if not self._numbers:
            text = next((quote for quote in self._quotes if _NUMBER.fullmatch(quote)), None)
            if text is None:
                return None
            self._quotes.remove(text)
            return _clamp(float(text), schema)
        before = re.search(rf"(-?\d+(?:\.\d+)?)[\s-]+{re.escape(name)}", self._text, re.IGNORECASE)
        number = before[1] if before and before[1] in self._numbers else self._numbers[0]
        self._numbers.remove(number)
        return _clamp(float(number), schema)

    def _resolve(self, schema: Schema) -> Schema:
        """Follow references, and take the first choice that is not null."""
        for _ in range(_MAX_DEPTH):
            reference = as_text(schema.get("$ref"))
            if reference.startswith("#/"):
                schema = get_object(self._root, *reference[2:].split("/"))
                continue
            choices = [as_objects(schema.get(key)) for key in ("anyOf", "oneOf", "allOf")]
            choice = next((c for c in chain(*choices) if c.get("type") != "null"), None)
            if choice is None:
                return schema
            schema = {"description": schema.get("description"), **choice}
        return {}


def _type(schema: Schema) -> str:
    usual = "object" if "properties" in schema else "string"
    types = [schema.get("type", usual), *as_list(schema.get("type"))]
    return next((each for each in types if isinstance(each, str) and each != "null"), "null")


def _mentions(text: str, option: object) -> bool:
    words = " ".join(split_words(str(option)))
    return bool(words) and f" {words} " in f" {' '.join(split_words(text))} "


def _strip_request(text: str) -> str:
    """Return the text after a colon, or the sentence without its opening request."""
    before, _, after = text.partition(": ")
    if after.strip() and len(before) < 60:
        return after.strip()
    return _OPENING.sub("", text.strip()).strip(" .!?") or text.strip() or "demo"


def _clamp(number: float, schema: Schema) -> float:
    bounds = {k: v for k, v in schema.items() if isinstance(v, int | float) and isfinite(v)}
    number = min(max(number, bounds.get("minimum", -inf)), bounds.get("maximum", inf))
    return int(number) if schema.get("type") == "integer" or number == int(number) else number


_SEPARATOR = re.compile(r'("[^"]*"|“[^”]*”)|(?:[;!?\n]|[.,](?=\s)|\b(?:and|then|also)\b)')
_VERBS = set(
    split_words(
        "add ask be call change check create delete do fetch find get give list load look make "
        "open put read remove run save search send set show switch tell turn update use write"
    )
)
_STOP_WORDS = set(
    split_words(
        "a am an are at by could do does for from have how i in into is it me my of on please some "
        "that the them then this to want what when where which who why will with"
    )
)
_SYNONYMS = {
    **dict.fromkeys(("accent", "background", "colour"), "color"),
    **dict.fromkeys(("clock", "hour"), "time"),
    **dict.fromkeys(("reminder", "task"), "todo"),
    "dice": "roll",
    "memo": "note",
    "temperature": "weather",
}
_MIN_SCORE, _MIN_NAME_SCORE = 2, 3


class Call(NamedTuple):
    """A call of a tool."""

    tool: str
    arguments: Mapping[str, Any]


class Match(NamedTuple):
    """An action, and the clause of the sentence that asks for it."""

    action: Action
    clause: str


def match_actions(text: str, actions: Sequence[Action], *, by_name: bool = False) -> list[Match]:
    """Return the calls that a sentence asks for, at most one for each of its clauses.

    With `by_name`, it has all words of the action's name that are no verbs, or a value that only
    this action takes.
    """
    matches: list[Match] = []
    for clause in _split_clauses(text):
        if action := _find_best(clause, actions, by_name):
            matches.append(Match(action, clause))
        elif matches:  # "note the milk and the eggs": the second half belongs to the first
            matches[-1] = Match(matches[-1].action, f"{matches[-1].clause} and {clause}")
    if not matches and (action := _find_best(text, actions, by_name)):
        return [Match(action, text)]
    return matches


def build_example(action: Action) -> str:
    """Return a sentence that makes the demo model call this action."""
    required = as_list(action.parameters.get("required"))
    properties = get_properties(action.parameters).items()
    values = [_example_phrase(name, schema) for name, schema in properties if name in required]
    return " ".join(filter(None, [format_title(action), *dict.fromkeys(values[:3])]))


_SAMPLES = {
    "day": "Sunday",
    **dict.fromkeys(
        ("content", "message", "note", "task", "text", "title", "todo"), "water the plants"
    ),
    **dict.fromkeys(("customer", "name", "owner", "person", "recipient", "user"), "Ann"),
}


def format_title(action: Action) -> str:
    """Return an action's name as a person would write it."""
    return " ".join(split_words(action.name)).capitalize()


def _split_clauses(text: str) -> list[str]:
    """Cut a sentence at `and`, commas and stops, but never inside quotes."""
    clauses = _SEPARATOR.sub(lambda separator: separator[1] or "\0", text).split("\0")
    return [clause.strip() for clause in clauses if clause.strip()]


def _find_best(clause: str, actions: Sequence[Action], by_name: bool) -> Action | None:
    scores = {_score(clause, action, by_name): action for action in reversed(actions)}
    best = max(scores, default=0)
    return scores[best] if best >= (_MIN_NAME_SCORE if by_name else _MIN_SCORE) else None


def _score(clause: str, action: Action, by_name: bool) -> int:
    """Weigh the words that a clause shares with the action: nouns most, then values and verbs."""
    words, name = _normalize(clause), _normalize(action.name)
    nouns = name - _VERBS - _STOP_WORDS
    if not nouns and name <= words:  # as in `who_am_i`
        nouns = name
    purpose = action.description.partition("\n\n")[0]  # the rest says when and how
    description = {word for word in _normalize(purpose) - _VERBS if len(word) > 3}
    properties = get_properties(action.parameters).items()
    values = sum(_score_value(clause, each, schema) for each, schema in properties)
    if by_name and not values and not (nouns and nouns <= words):
        return 0
    return (
        3 * len(words & nouns)
        + len(words & name & _VERBS - nouns)
        + min(2, len(words & description - _STOP_WORDS))
        + values
    )


def _score_value(clause: str, name: str, schema: Schema) -> int:
    """Weigh whether a clause holds a value that only this property could take."""
    if is_color(name, schema):
        return 4 if find_color(clause) else 0
    options = [word for option in as_list(schema.get("enum")) for word in split_words(str(option))]
    return 3 if set(options) & set(split_words(clause)) else 0


def _normalize(text: str) -> set[str]:
    """Return the words of a text without plurals and synonyms."""
    singular = [re.sub(r"(?<=..[^s])s$", "", word) for word in split_words(text)]
    return {_SYNONYMS.get(word, word) for word in singular}


def _example_phrase(name: str, schema: Schema) -> str:
    if is_color(name, schema):
        return "to teal"
    if options := as_list(schema.get("enum")):
        return str(options[-1])
    if name.lower() in ("city", "place", "location"):
        return "in Paris"
    if schema.get("type") in ("integer", "number"):
        return str(schema.get("minimum", 3))
    if schema.get("type") != "string":
        return ""
    if format := _FORMATS.get(str(schema.get("format"))):
        return format[1]
    words = " ".join(["some", *split_words(name)])
    return f'"{_SAMPLES.get(name.lower(), words)}"'
