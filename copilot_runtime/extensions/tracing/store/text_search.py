"""The texts of spans: the search for a part of them, and the question of a run."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

import orjson

from copilot_runtime.extensions.tracing.store.records import Record
from copilot_runtime.telemetry import semconv


def find_question(messages: Any) -> str:
    """Return the beginning of the last text of input messages on one line; empty without one."""
    last = next(_list_strings([messages]), "")
    return " ".join(last[:1_000].split())[:200]


def match_text(spans: Iterable[Record], text: str) -> bool:
    """Return `True` if a span contains a text, ignoring case; an empty text always matches."""
    lower = text.lower()
    return not lower or any(has_text(span, lower) for span in spans)


def has_text(span: Record, text: str) -> bool:
    """Return `True` if a lower-case text is in a span's name, its searched attributes or its stored
    answer, or is a prefix of its trace id.
    """
    of, content = span["attributes"], span.get("content", {})
    values = [span["name"], *(of.get(name, "") for name in _SEARCHED)]
    if any(text in str(value).lower() for value in values):
        return True
    if len(text) >= _SHORTEST_ID and span["trace_id"].startswith(text):
        return True
    texts = [content[name] for name in _SEARCHED_CONTENT if name in content]
    return any(text in value.lower() for value in _list_strings(texts))


def _list_strings(values: list[Any]) -> Iterator[str]:
    """Yield the readable text of messages, which may be JSON, without field names."""
    while values:
        match values.pop():
            case str() as value:
                try:
                    found = orjson.loads(value) if value[:1] in "[{" else None
                except ValueError:
                    found = None
                if isinstance(found, list | dict):
                    values.append(found)
                else:
                    yield value
            case dict() as value:
                fields = cast("dict[str, Any]", value).items()
                values += [it for name, it in fields if name not in _MARKUP]
            case list() as value:
                values += cast("list[Any]", value)
            case _:
                pass


_SEARCHED = (
    semconv.RESPONSE_MODEL,
    semconv.REQUEST_MODEL,
    semconv.ERROR_TYPE,
    semconv.CONVERSATION_ID,
    semconv.RUN_ID,
    semconv.TOOL_NAME,
)
_SEARCHED_CONTENT = (semconv.OUTPUT_MESSAGES, semconv.FEEDBACK_COMMENT)
"""Searched content attributes: answers and comments; prompts would match nearly every trace."""
_MARKUP = {"id", "role", "type", "finish_reason"}
"""Technical fields of messages that the search ignores."""
_SHORTEST_ID = 4
"""Minimum length of a trace id prefix: shorter ones match too many traces."""
