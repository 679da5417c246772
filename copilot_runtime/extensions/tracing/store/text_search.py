"""The texts of spans: the search for a part of them, and the question of a run."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

import orjson

from copilot_runtime.extensions.tracing.store.records import Record
from copilot_runtime.telemetry import semconv


def find_question(messages: Any) -> str:
    """Return the beginning of the person's last text on one line; without one, the name of the
    file, or an empty text.
    """
    found = _parse(messages) if isinstance(messages, str) else messages
    if isinstance(found, list):
        every = cast("list[Any]", found)
        found = next((it for it in reversed(every) if _is_question(it)), every)
    last = next(_list_strings([found]), "")
    return " ".join(last[:1_000].split())[:200]


def match_text(question: str, spans: Iterable[Record], text: str) -> bool:
    """Return `True` if the question of a trace or a span contains a text, ignoring case."""
    lower = text.lower()
    return lower in question.lower() or any(has_text(span, lower) for span in spans)


def has_text(span: Record, text: str) -> bool:
    """Return `True` if a lower-case text is in a span's name, its searched attributes or its stored
    answer, or begins the id of its trace, its thread or its run.
    """
    of, content = span["attributes"], span.get("content", {})
    values = [span["name"], *(of.get(name, "") for name in _SEARCHED)]
    if any(text in str(value).lower() for value in values):
        return True
    for id in (span["trace_id"], *(str(of.get(name, "")).lower() for name in _IDS)):
        if text == id or (len(text) >= _SHORTEST_ID and id.startswith(text)):
            return True
    texts = [content[name] for name in _SEARCHED_CONTENT if name in content]
    return any(text in value.lower() for value in _list_strings(texts))


def _is_question(message: Any) -> bool:
    return isinstance(message, dict) and cast("dict[str, Any]", message).get("role") == "user"


def _parse(text: str) -> Any:
    """Return the list or object that a text is as JSON, or else the text."""
    try:
        return orjson.loads(text) if text[:1] in "[{" else text
    except ValueError:
        return text


def _list_strings(values: list[Any]) -> Iterator[str]:
    """Yield the readable text of messages, which may be JSON, without field names, the last first.

    Of media, it is the name of the file, after all else.
    """
    while values:
        match values.pop():
            case str() as value:
                found = _parse(value)
                if isinstance(found, str):
                    yield found
                else:
                    values.append(found)
            case {"modality": _, **others}:
                values.insert(0, others.get("filename"))
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
    semconv.TOOL_NAME,
)
_IDS = (semconv.CONVERSATION_ID, semconv.RUN_ID)
_SEARCHED_CONTENT = (semconv.OUTPUT_MESSAGES, semconv.FEEDBACK_COMMENT)
"""Searched content attributes: answers and comments; a prompt would match nearly all traces."""
_MARKUP = {"id", "role", "type", "finish_reason"}
"""Technical fields of messages that the search ignores."""
_SHORTEST_ID = 4
"""Minimum length of the beginning of an id: shorter ones match too many traces."""
