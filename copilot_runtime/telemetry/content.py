"""Content attributes of spans: retrieved documents, tools, and the arguments and results of calls.

Each value is truncated to `MAX_CHARACTERS` of JSON (`truncation.py`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import orjson

from copilot_runtime.base.jsontext import replace_surrogates
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.truncation import truncate

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
        {"id": one.id, "title": one.title, "score": one.score, "content": one.text}
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
