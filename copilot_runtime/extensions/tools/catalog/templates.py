"""Fills arguments into `{name}` placeholders of URLs, queries, headers and bodies."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import quote, urlsplit

from copilot_runtime.actions.schema import InvalidArguments
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject

_PLACEHOLDER = re.compile(r"(?<!\$)\{(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\}")
_DOTS = {".", ".."}
_NOTHING: Any = object()


def list_placeholders(template: Any) -> list[str]:
    """Return the distinct names in a template."""
    return [*dict.fromkeys(_find(template))]


def fill(template: Any, arguments: Mapping[str, Any], names: frozenset[str]) -> Any:
    """Return a template with the placeholders in `names` replaced by arguments.

    A string that consists of one placeholder becomes the argument itself, with its type. If the
    argument is missing, the member is omitted.
    """
    filled = _fill(template, arguments, names)
    return None if filled is _NOTHING else filled


def fill_url(template: str, arguments: Mapping[str, Any], names: frozenset[str]) -> str:
    """Return a URL in which each argument fills one part of a path or query only.

    Raises `InvalidArguments` if an argument would change the path.
    """

    def substitute(match: re.Match[str]) -> str:
        if match["name"] not in names:
            return match[0]
        value = encode_text(arguments.get(match["name"]))
        if not value and match.start() < query:
            raise InvalidArguments(f"Invalid arguments: {match['name']}: it must not be empty.")
        return quote(value, safe="")

    query = len(template.partition("?")[0])
    url = _PLACEHOLDER.sub(substitute, template)
    before, after = (urlsplit(text).path.split("/") for text in (template, url))
    if any(a in _DOTS and b not in _DOTS for a, b in zip(after, before, strict=True)):
        raise InvalidArguments("Invalid arguments: '.' and '..' are no parts of a path.")
    return url


def encode_query(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return query fields: a list becomes a field per item, and null is omitted."""
    pairs: list[tuple[str, str]] = []
    for name, value in fields.items():
        values = cast("list[Any]", value) if isinstance(value, list) else [value]
        pairs += [(name, encode_text(each)) for each in values if each is not None]
    return pairs


def encode_text(value: Any) -> str:
    """Return an argument as text: a string unchanged, null as empty, other values as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else dumps(value).decode()


def _find(template: Any) -> Iterator[str]:
    if isinstance(template, str):
        yield from (match["name"] for match in _PLACEHOLDER.finditer(template))
    elif isinstance(template, Mapping):
        for inner in cast("Mapping[Any, Any]", template).values():
            yield from _find(inner)
    elif isinstance(template, list):
        for inner in cast("list[Any]", template):
            yield from _find(inner)


def _fill(template: Any, arguments: Mapping[str, Any], names: frozenset[str]) -> Any:
    if isinstance(template, Mapping):
        members = cast("Mapping[str, Any]", template).items()
        filled: JsonObject = {key: _fill(inner, arguments, names) for key, inner in members}
        return {key: value for key, value in filled.items() if value is not _NOTHING}
    if isinstance(template, list):
        items = [_fill(inner, arguments, names) for inner in cast("list[Any]", template)]
        return [item for item in items if item is not _NOTHING]
    if not isinstance(template, str):
        return template
    whole = _PLACEHOLDER.fullmatch(template)
    if whole is not None and whole["name"] in names:
        return arguments.get(whole["name"], _NOTHING)
    return _PLACEHOLDER.sub(
        lambda match: (
            encode_text(arguments.get(match["name"])) if match["name"] in names else match[0]
        ),
        template,
    )
