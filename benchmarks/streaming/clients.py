"""What a client sends and what it expects back: one `Client` per protocol that is measured."""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.streaming.agui_order import agui_fault

Past = Sequence[tuple[str, str]]
"""Messages said before, as (role, content), oldest first."""

_ROOT = Path(__file__).parents[2]
_CLIENT_DOCUMENTS = _ROOT / "tests" / "conformance" / "v1" / "client-documents"
_V1_DOCUMENT = (_CLIENT_DOCUMENTS / "generateCopilotResponse.graphql").read_text()
_V1_TIME = "2026-01-01T00:00:00.000Z"
_SYSTEM = "You are a test."


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """How one kind of client speaks.

    `body` makes the JSON of a request from the past, the prompt and the name of a tool ("" for
    none). A stream is whole when `end_mark` was in it; `fault` may say what is wrong with the
    bytes before its first chunk joined with the bytes after its last.
    """

    accept: str
    body: Callable[[Past, str, str], dict[str, object]]
    end_mark: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    fault: Callable[[bytes], str] | None = None


class RequestWriter:
    """Writes the HTTP requests of one client."""

    def __init__(self, client: Client, url: str, *, history: int, tool: str) -> None:
        """`history` is the number of past messages that every request repeats."""
        self._client = client
        self._address = urlsplit(url)
        self._tool = tool
        self._past = [
            ("assistant" if number % 2 else "user", f"past message {number} " + "lorem ipsum " * 10)
            for number in range(history)
        ]

    def write(self, prompt: str) -> bytes:
        """Return head and body of one request whose last user message is `prompt`."""
        body = self._client.body(self._past, prompt, self._tool)
        data = json.dumps(body, separators=(",", ":")).encode()
        headers = {
            "host": self._address.netloc,
            "content-type": "application/json",
            "content-length": str(len(data)),
            "connection": "keep-alive",
            "authorization": "Bearer sk-mock",
            "accept": self._client.accept,
            **self._client.headers,
        }
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        return f"POST {self._address.path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode() + data


def _openai_body(past: Past, prompt: str, tool: str) -> dict[str, object]:  # noqa: ARG001
    said = [("system", _SYSTEM), *past, ("user", prompt)]
    messages = [{"role": role, "content": content} for role, content in said]
    return {"model": "gpt-4o", "stream": True, "messages": messages}


def _v1_body(past: Past, prompt: str, tool: str) -> dict[str, object]:  # noqa: ARG001
    before = [(f"h{i}", role, content) for i, (role, content) in enumerate(past)]
    said = [("sys-1", "system", _SYSTEM), *before, ("user-1", "user", prompt)]
    messages = [
        {"id": key, "createdAt": _V1_TIME, "textMessage": {"content": text, "role": role}}
        for key, role, text in said
    ]
    data: dict[str, object] = {
        "agentStates": [],
        "context": [],
        "extensions": {},
        "forwardedParameters": {},
        "frontend": {"actions": [], "url": "http://localhost:3000/"},
        "messages": messages,
        "metaEvents": [],
        "metadata": {"requestType": "Chat"},
        "runId": None,
        "threadId": str(uuid.uuid4()),
    }
    return {
        "operationName": "generateCopilotResponse",
        "query": _V1_DOCUMENT,
        "variables": {"data": data, "properties": {}},
    }


def _agui_body(past: Past, prompt: str, tool: str) -> dict[str, object]:
    before = [{"id": f"h{i}", "role": role, "content": text} for i, (role, text) in enumerate(past)]
    parameters = {"type": "object", "properties": {"v": {"type": "string"}}}
    tools = [{"name": tool, "description": "A tool.", "parameters": parameters}] if tool else []
    return {
        # a thread of its own for every chat: where threads are kept, this is what keeping costs
        "threadId": str(uuid.uuid4()),
        "runId": str(uuid.uuid4()),
        "state": {},
        "messages": [*before, {"id": str(uuid.uuid4()), "role": "user", "content": prompt}],
        "tools": tools,
        "context": [],
        "forwardedProps": {},
    }


OPENAI = Client(accept="application/json", body=_openai_body, end_mark=b"[DONE]")
"""Chat completions, streamed."""

V1 = Client(
    accept=(
        "application/graphql-response+json, application/graphql+json, application/json, "
        "text/event-stream, multipart/mixed"
    ),
    body=_v1_body,
    end_mark=b'"hasNext":false',
    headers={"x-copilotkit-runtime-client-gql-version": "1.10.6"},
)
"""CopilotKit 1.10: GraphQL with increments in multipart/mixed."""

AGUI = Client(
    accept="text/event-stream",
    body=_agui_body,
    end_mark=b'"RUN_FINISHED"',
    fault=agui_fault,
)
"""CopilotKit from 1.50: a run of AG-UI in server-sent events."""
