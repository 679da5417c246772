"""Content attributes of spans, bounded in size: documents, tools, arguments, results, exceptions.

Truncation keeps the JSON of a value valid, and takes bounded time.
"""

from collections.abc import Iterable, Mapping, Sequence
from traceback import format_exception
from typing import Any, Protocol, cast

import orjson

from copilot_runtime.base.jsontext import dumps, replace_surrogates
from copilot_runtime.base.secrets import REDACTOR
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.span import read_message

MAX_CHARACTERS = 64 * 1024
"""Maximum length of an attribute's JSON, in characters."""

_MAX_PARSED = 4 * MAX_CHARACTERS
"""Maximum length of a text that is parsed as JSON: a longer one would be truncated anyway."""
JsonPart = dict[str, Any]


class Document(Protocol):
    """A search result: a retrieved passage or a memory record."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def score(self) -> float | None: ...


def render_retrieval(query: str, documents: Sequence[Document]) -> dict[str, Any]:
    """Return the content attributes of a retrieval span: the query and the documents."""
    return {
        semconv.RETRIEVAL_QUERY_TEXT: truncate(query, MAX_CHARACTERS),
        semconv.RETRIEVAL_DOCUMENTS: _render_documents(documents),
    }


def render_recall(query: str, records: Sequence[Document]) -> dict[str, Any]:
    """Return the content attributes of a memory search span: the query and the records."""
    return {
        semconv.MEMORY_QUERY_TEXT: truncate(query, MAX_CHARACTERS),
        semconv.MEMORY_RECORDS: _render_documents(records),
    }


def _render_documents(documents: Sequence[Document]) -> Any:
    found = [
        {
            "id": one.id,
            "title": one.title,
            "url": one.url,
            "score": one.score,
            "content": one.text,
        }
        for one in documents
    ]
    return truncate(found, MAX_CHARACTERS)


def render_tools(tools: Iterable[tuple[str, str, Mapping[str, Any]]]) -> list[JsonPart]:
    """Return tool definitions for a span, from pairs of name, description and JSON schema."""
    return limit(
        [
            {"type": "function", "name": name, "description": about, "parameters": schema}
            for name, about, schema in tools
        ]
    )


def render_text(text: str) -> Any:
    """Return a tool call's arguments or result, parsed if they are JSON, within the size limit."""
    return limit(parse_json(text))


def parse_json(text: str) -> Any:
    """Return the parsed object or list, or the text itself if it is not JSON of one."""
    if len(text) <= _MAX_PARSED and text.lstrip()[:1] in ("{", "["):
        try:
            return orjson.loads(text)
        except ValueError:  # half characters, or no JSON
            pass
    return replace_surrogates(text)


def limit(value: Any) -> Any:
    return truncate(value, MAX_CHARACTERS)


_MAX_EXCEPTION = 16 * 1024
"""Maximum length of a message or a traceback, in characters; a traceback keeps its end."""

_FRAMES = 50
"""Maximum number of frames per exception in a traceback: the innermost ones are kept."""


def describe_exception(error: BaseException) -> dict[str, str]:
    """Return the message and the traceback of an exception as content attributes."""
    try:
        trace = "".join(format_exception(error, limit=-_FRAMES))
    except Exception:  # the `__str__` of a chained exception may raise, too
        trace = ""
    message = REDACTOR.redact(replace_surrogates(read_message(error)))
    return {
        semconv.EXCEPTION_MESSAGE: truncate(message, _MAX_EXCEPTION),
        semconv.EXCEPTION_STACKTRACE: REDACTOR.redact(replace_surrogates(trace))[-_MAX_EXCEPTION:],
    }


_MAX_DEPTH = 32
_LEAST = 32
"""Minimum useful size of an item, in characters: lists and objects drop items below it."""
_MARK = 16
"""Characters reserved for the mark at the end of a truncated text."""


def truncate(value: Any, characters: int) -> Any:
    """Truncate a value so that its JSON has at most `characters` characters.

    A short value is returned as it is. The longest texts are cut first, and end with the number of
    omitted characters, as in `…[+1234]`. A list that is still too long loses its middle items, an
    object its last members.
    """
    return value if _measure(value, characters) <= characters else _cut(value, characters)


def _measure(value: Any, enough: int, depth: int = 0) -> int:
    """Return the length of a value's JSON, or any number above `enough` if it is longer."""
    match value:
        case str():
            return _measure_text(value)
        case None | bool() | int() | float():
            return max(5, len(str(value)))
        case Mapping() if depth < _MAX_DEPTH:
            size = 2
            for key, item in cast("Mapping[Any, Any]", value).items():
                size += _measure_text(str(key)) + 2 + _measure(item, enough, depth + 1)
                if size > enough:
                    break
            return size
        case list() | tuple() if depth < _MAX_DEPTH:
            size = 2
            for item in cast("Sequence[Any]", value):
                size += _measure(item, enough, depth + 1) + 1
                if size > enough:
                    break
            return size
        case _:
            return enough + 1


def _measure_text(text: str) -> int:
    if text.isprintable():
        return len(text) + text.count('"') + text.count("\\") + 2
    return len(dumps(text).decode())


def _cut(value: Any, room: int, depth: int = 0) -> Any:
    match value:
        case str():
            return _cut_text(value, room)
        case None | bool() | int() | float():
            return value
        case Mapping() if depth < _MAX_DEPTH and room >= _LEAST:
            return _cut_object(cast("Mapping[Any, Any]", value), room, depth)
        case list() | tuple() if depth < _MAX_DEPTH and room >= _LEAST:
            return _cut_list(cast("Sequence[Any]", value), room, depth)
        case _:
            return "…"


def _cut_text(text: str, room: int) -> str:
    if len(text) < room and _measure_text(text) <= room:
        return text
    keep = max(0, room - _MARK)
    while keep:
        cut = f"{text[:keep]}…[+{len(text) - keep}]"
        if _measure_text(cut) <= room:
            return cut
        keep = keep * 3 // 4  # escaped characters are longer
    return "…"


def _cut_object(value: Mapping[Any, Any], room: int, depth: int) -> dict[str, Any]:
    names: dict[str, Any] = {}
    room -= 2
    for key, item in value.items():
        name = _cut_text(str(key), min(4 * _LEAST, room // 2))
        size = _measure_text(name) + 2
        if names and room - size < _LEAST * (len(names) + 2):
            names["…"] = f"+{len(value) - len(names)}"
            room -= _MARK
            break
        room -= size
        names[name] = item
    items = _cut_items(list(names.values()), room, depth)
    return dict(zip(names, items, strict=True))


def _cut_list(value: Sequence[Any], room: int, depth: int) -> list[Any]:
    most = max(2, room // _LEAST)
    if len(value) > most:
        first, last = value[: most // 2], value[len(value) - (most - most // 2 - 1) :]
        missing = len(value) - len(first) - len(last)
        is_objects = isinstance(value[0], Mapping)
        mark = {"type": "omitted", "count": missing} if is_objects else f"…[+{missing}]"
        value = [*first, mark, *last]
    return _cut_items(value, room - 2 - len(value), depth)


def _cut_items(items: Sequence[Any], room: int, depth: int) -> list[Any]:
    """Truncate items so that they fit into `room` together; short items stay whole."""
    sizes = [_measure(item, max(room, 0), depth + 1) for item in items]
    share = _find_share(sizes, room)
    return [
        item if size <= share else _cut(item, share, depth + 1)
        for item, size in zip(items, sizes, strict=True)
    ]


def _find_share(sizes: Sequence[int], room: int) -> int:
    """Return the maximum size per item so that all fit, with short items' surplus shared."""
    share = 0
    for number, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - number)
        if size > share:
            return share
        room -= size
    return share
