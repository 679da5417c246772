"""Map requests to operations, by their path or by the envelope of the single endpoint."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, unquote

from starlette.routing import compile_path

from copilot_runtime.transports.agui.errors import invalid
from copilot_runtime.transports.transport import Refusal

Name = Literal[
    "info",
    "run",
    "ask",
    "connect",
    "stop",
    "suggest",
    "transcribe",
    "list threads",
    "follow threads",
    "read messages",
    "read events",
    "read state",
    "change thread",
    "archive thread",
    "delete thread",
    "subscribe",
    "clear threads",
    "annotate",
    "inspect",
    "list memories",
    "recall memories",
    "follow memories",
    "add memory",
    "replace memory",
    "delete memory",
]


class Operation(NamedTuple):
    """A requested operation. `query` is from the URL, `body` from an envelope or the request."""

    name: Name
    agent: str = ""
    thread: str = ""
    memory: str = ""
    query: Mapping[str, str] = MappingProxyType({})
    body: Any = None


SCOPES: Mapping[Name, str] = {
    "connect": "threads:read",
    "stop": "runs:start",
    "transcribe": "runs:start",
    "list threads": "threads:read",
    "follow threads": "threads:read",
    "subscribe": "threads:read",
    "read messages": "threads:read",
    "read events": "threads:read",
    "read state": "threads:read",
    "change thread": "threads:write",
    "archive thread": "threads:write",
    "delete thread": "threads:write",
    "clear threads": "threads:write",
    "list memories": "data:read",
    "recall memories": "data:read",
    "add memory": "data:write",
    "replace memory": "data:write",
    "delete memory": "data:write",
}
"""The scopes that operations require. An unauthorised run gets an event in its stream."""

READS: frozenset[Name] = frozenset(
    {
        *("info", "inspect", "connect", "list threads", "follow threads", "subscribe"),
        *("read messages", "read events", "read state", "list memories", "recall memories"),
    }
)
"""Operations without side effects."""

REST_ROUTES: Mapping[str, Mapping[str, Name]] = {
    "info": {"GET": "info"},
    "agent/{agent}/run": {"POST": "run"},
    "agent/{agent}/ask": {"POST": "ask"},
    "agent/{agent}/connect": {"POST": "connect"},
    "agent/{agent}/suggest": {"POST": "suggest"},
    "agent/{agent}/stop/{thread}": {"POST": "stop"},
    "transcribe": {"POST": "transcribe"},
    "annotate": {"POST": "annotate"},
    "inspector-metadata": {"GET": "inspect"},
    "threads": {"GET": "list threads"},
    "threads/changes": {"GET": "follow threads"},
    "threads/subscribe": {"POST": "subscribe"},
    "threads/clear": {"POST": "clear threads"},
    "threads/{thread}": {"PATCH": "change thread", "DELETE": "delete thread"},
    "threads/{thread}/messages": {"GET": "read messages"},
    "threads/{thread}/events": {"GET": "read events"},
    "threads/{thread}/state": {"GET": "read state"},
    "threads/{thread}/archive": {"POST": "archive thread"},
    "memories": {"GET": "list memories", "POST": "add memory"},
    "memories/recall": {"POST": "recall memories"},
    "memories/subscribe": {"POST": "follow memories"},
    "memories/{memory}": {"PATCH": "replace memory", "DELETE": "delete memory"},
}

_PATTERNS = [(compile_path(path)[0], methods) for path, methods in REST_ROUTES.items()]

_BY_METHOD: Mapping[str, Name] = {
    "info": "info",
    "agent/run": "run",
    "agent/connect": "connect",
    "agent/suggest": "suggest",
    "agent/stop": "stop",
    "transcribe": "transcribe",
    "annotate": "annotate",
    "inspector/metadata": "inspect",
}


def from_path(method: str, path: str, query: str = "", body: Any = None) -> Operation:
    """Return the operation of a REST route; `path` is relative and still percent-encoded.

    Raises `Refusal`: 404 for an unknown path, 405 for a wrong method.
    """
    allowed: set[str] = set()
    path = path.strip("/")
    for pattern, methods in _PATTERNS:
        match = pattern.match(path)
        if match is None:
            continue
        if name := methods.get("GET" if method == "HEAD" else method):
            parameters = dict(parse_qsl(query, keep_blank_values=True)) if query else {}
            ids = {key: unquote(value) for key, value in match.groupdict().items()}
            return Operation(name, query=parameters, body=body, **ids)
        allowed.update(methods)
    if allowed:
        names = ", ".join(sorted(allowed))
        raise Refusal(405, {"error": "Method not allowed"}, {"allow": names})
    raise Refusal(404, {"error": "Not found"})


def from_envelope(envelope: Mapping[str, Any]) -> Operation:
    """Return the operation in an envelope `{method, params, body}`. Raises `Refusal`."""
    method = envelope.get("method")
    params = envelope.get("params")
    if not isinstance(params, dict):
        params = {}
    if not isinstance(method, str) or not method:
        raise invalid("Missing method field")
    if method == "resource/request":
        path = _parameter(params, "path")
        path, _, query = path.partition("?")
        if path.strip("/").partition("/")[0] not in ("threads", "memories"):  # others are methods
            raise invalid(f"Unsupported resource {path[:100]!r}")
        return from_path(_parameter(params, "httpMethod"), path, query, envelope.get("body"))
    name = _BY_METHOD.get(method)
    if name is None:
        raise invalid(f"Unsupported method '{method}'")
    agent = thread = ""
    if name in ("run", "connect", "suggest", "stop"):
        agent = _parameter(params, "agentId")
    if name == "stop":
        thread = _parameter(params, "threadId")
    elif name in ("run", "connect", "suggest", "transcribe") and envelope.get("body") is None:
        raise invalid("Missing request body for JSON handler")
    return Operation(name=name, agent=agent, thread=thread, body=envelope.get("body"))


def _parameter(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not value:
        raise invalid(f"Missing or invalid parameter '{name}'")
    return value
