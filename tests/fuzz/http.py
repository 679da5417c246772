"""Requests over HTTP: those of all clients, and what becomes of them when they are changed."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.types import ASGIApp, Message

from tests.fuzz.documents import make_document
from tests.fuzz.mutate import ODD, Mutator
from tests.wire.client import ACCEPT, AGENTS, PATH, PLAIN, STATE, WHEN, browser_action, chat, user
from tests.wire_agui.http import connect_input, run_input
from tests.wire_agui.http import user as agui_user

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class HttpInput:
    method: str
    path: str
    body: Any = None
    """JSON, or bytes."""
    headers: Headers = ()
    query: str = ""


CALL = {
    "id": "call-1",
    "createdAt": WHEN,
    "actionExecutionMessage": {"name": "look", "arguments": '{"at":"x"}'},
}
RESULT = {
    "id": "result-1",
    "createdAt": WHEN,
    "resultMessage": {"actionExecutionId": "call-1", "actionName": "look", "result": "seen"},
}
PAGE = {"actions": [browser_action()], "url": "http://localhost:3000/"}
STATES = [{"agentName": "helper", "state": '{"n":1}', "config": '{"a":2}'}]
FULL_CHAT = chat(
    user(),
    CALL,
    RESULT,
    frontend=PAGE,
    agentStates=STATES,
    agentSession={"agentName": "helper", "threadId": "thread-1", "nodeName": "n"},
    context=[{"description": "d", "value": "v"}],
    forwardedParameters={"model": "m", "temperature": 0.5, "maxTokens": 5, "stop": ["x"]},
    metaEvents=[{"name": "LangGraphInterruptEvent", "value": "?", "response": "!"}],
    cloud={"guardrails": {"inputValidationRules": {"allowList": ["a"], "denyList": ["b"]}}},
)
PARTS = [
    {"type": "text", "text": "Look"},
    {"type": "image", "source": {"type": "data", "value": "AAAA", "mimeType": "image/png"}},
    {"type": "document", "source": {"type": "url", "value": "https://example.com/a.pdf"}},
    {"type": "binary", "mimeType": "image/png", "data": "AAAA"},
]
CONVERSATION = [
    {"id": "s", "role": "system", "content": "Be brief."},
    agui_user(PARTS),
    {
        "id": "a",
        "role": "assistant",
        "content": "",
        "toolCalls": [
            {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        ],
    },
    {"id": "t", "role": "tool", "toolCallId": "c", "content": "seen"},
    {"id": "r", "role": "reasoning", "content": "hm", "encryptedValue": "x"},
    {"id": "v", "role": "activity", "activityType": "plan", "content": {"step": 1}},
    agui_user("Hi", "user-2"),
]
FULL_RUN = run_input(
    messages=CONVERSATION,
    tools=[{"name": "setColor", "description": "", "parameters": {"type": "object"}}],
    context=[{"description": "d", "value": "v"}],
    state={"n": 1, "items": [1, {"a": None}]},
    forwardedProps={"model": "m", "temperature": 1, "command": {"resume": "yes"}},
    resume=[{"interruptId": "i", "status": "resolved", "payload": {"yes": True}}],
    parentRunId="p",
    protocolVersion="1.0",
)
EXECUTE = {
    "name": "helper",
    "threadId": "t",
    "messages": [{"type": "TextMessage", "id": "u", "role": "user", "content": "Hi"}],
    "state": {"n": 1},
    "config": {},
    "properties": {"a": 1},
    "actions": [{"name": "setColor", "description": "", "parameters": []}],
    "metaEvents": [{"name": "x", "value": "y", "response": "z"}],
}
LOAD = {"data": {"threadId": "thread-1", "agentName": "helper"}}


def rpc(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def envelope(method: str, body: Any = None, **params: Any) -> HttpInput:
    return HttpInput("POST", "", {"method": method, "params": params, "body": body})


JSON = b"application/json"
SEEDS: Sequence[HttpInput] = (
    HttpInput("POST", "", chat()),
    HttpInput("POST", "", FULL_CHAT),
    HttpInput("POST", "", {**FULL_CHAT, "query": PLAIN}),
    HttpInput("POST", "", {"query": AGENTS}),
    HttpInput("POST", "", {"query": STATE, "variables": LOAD}),
    HttpInput("POST", "", {"query": "{ hello }"}),
    HttpInput("GET", "", query="query=%7B%20hello%20%7D&variables=%7B%7D"),
    HttpInput("POST", "", b"query=%7Bhello%7D", ((b"content-type", b"application/graphql"),)),
    HttpInput("POST", "/agent/default/run", run_input()),
    HttpInput("POST", "/agent/default/run", FULL_RUN),
    HttpInput("POST", "/agent/helper/run", FULL_RUN),
    HttpInput("POST", "/agent/default/ask", run_input()),
    HttpInput("POST", "/agent/default/suggest", run_input()),
    HttpInput("POST", "/agent/helper/connect", connect_input("t")),
    HttpInput("POST", "/agent/default/stop/t", {}),
    HttpInput("POST", "", FULL_RUN),
    envelope("info"),
    envelope("agent/run", FULL_RUN, agentId="default"),
    envelope("agent/connect", connect_input("t"), agentId="helper"),
    envelope("agent/stop", agentId="default", threadId="t"),
    envelope("transcribe", {"audio": "AAAA", "mimeType": "audio/wav"}),
    envelope("resource/request", path="threads?limit=2", httpMethod="GET"),
    envelope("resource/request", {"name": "N"}, path="threads/t", httpMethod="PATCH"),
    HttpInput("GET", "/info"),
    HttpInput("GET", "/threads", query="agentId=default&limit=2&cursor=x"),
    HttpInput("GET", "/threads/t/messages"),
    HttpInput("GET", "/threads/t/events"),
    HttpInput("GET", "/threads/t/state"),
    HttpInput("PATCH", "/threads/t", {"name": "A name", "archived": True}),
    HttpInput("POST", "/threads/t/archive", {}),
    HttpInput("DELETE", "/threads/t"),
    HttpInput("POST", "/threads/clear", {}),
    HttpInput("POST", "/annotate", {"a": 1}),
    HttpInput("POST", "/info", {}),
    HttpInput("POST", "/actions/execute", {"name": "look", "arguments": {"at": "x"}}),
    HttpInput("POST", "/agents/execute", EXECUTE),
    HttpInput("POST", "/agents/state", {"name": "helper", "threadId": "t"}),
    HttpInput("POST", "/mcp", rpc("initialize", protocolVersion="2025-06-18", capabilities={})),
    HttpInput("POST", "/mcp", rpc("tools/list")),
    HttpInput("POST", "/mcp", rpc("tools/call", name="look", arguments={"at": "x"})),
    HttpInput(
        "POST",
        "/transcribe",
        b'--b\r\nContent-Disposition: form-data; name="audio"; filename="a.wav"\r\n'
        b"Content-Type: audio/wav\r\n\r\nRIFF\r\n--b--\r\n",
        ((b"content-type", b"multipart/form-data; boundary=b"),),
    ),
    HttpInput("OPTIONS", ""),
    HttpInput("GET", "/health"),
)

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW")
PATHS = (
    *(seed.path for seed in SEEDS),
    *("/agent//run", "/agent/a%2Fb/run", "/agent/%ff/run", "/%00"),
)
VALUES = (
    *(JSON, b"application/graphql", b"application/graphql-response+json", b"text/event-stream"),
    *(b"multipart/mixed", b"multipart/form-data", b"application/x-www-form-urlencoded", b"*/*"),
    *(b"text/plain; charset=utf-16", b"", b"\xff\xfe", b"null", b"http://evil.example", b"gzip"),
    *(b"Bearer x", b"-1", b"99999999999999", b"chunked", b"x" * 9000),
)
NAMES = (
    *(b"content-type", b"accept", b"origin", b"host", b"content-length", b"authorization"),
    *(b"x-copilotkit-runtime-client-gql-version", b"sec-fetch-site", b"mcp-session-id"),
    *(b"last-event-id", b"cookie", b"x-forwarded-for", b"accept-encoding", b"x-a", b"mcp-protocol"),
)


def make_request(seed: str) -> HttpInput:
    """Return one request: one of `SEEDS`, changed here and there."""
    mutator = Mutator(seed)
    made = mutator.pick(SEEDS)
    body = made.body
    if isinstance(body, dict):
        if "query" in body and mutator.chance(0.4):
            body = {**body, "query": make_document(mutator, body["query"])}
        if mutator.chance(0.85):
            body = mutator.change_json(
                body, *(it.body for it in SEEDS if isinstance(it.body, dict))
            )
        body = mutator.dumps(body)
    elif body is None and mutator.chance(0.1):
        body = mutator.dumps(mutator.pick(ODD))
    body = body or b""
    if mutator.chance(0.15):
        body = mutator.change_bytes(body)
    headers = {b"host": b"testserver", b"accept": ACCEPT.encode(), b"content-type": JSON}
    headers |= dict(made.headers)
    if mutator.chance(0.2):
        headers[mutator.pick(NAMES)] = mutator.pick(VALUES)
    if mutator.chance(0.1):
        made = replace(made, method=mutator.pick(METHODS))
    if mutator.chance(0.1):
        made = replace(made, path=mutator.pick(PATHS) + mutator.pick(("", "/", "/x", "%ff", "//")))
    if mutator.chance(0.2):
        query = mutator.change_bytes(made.query.encode() or b"limit=2").decode("latin-1")
        made = replace(made, query=query)
    return replace(made, body=body, headers=[*headers.items()])


async def ask(app: ASGIApp, made: HttpInput) -> None:
    """Send a request and read the answer; leave when nothing of it comes any more."""
    exchange = _Exchange(made.body)
    raw = (PATH + made.path).encode("utf-8", "replace")
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": made.method,
        "scheme": "http",
        "path": PATH + made.path.replace("%2F", "/").replace("%ff", "\ufffd").replace("%00", "\0"),
        "raw_path": raw,
        "query_string": made.query.encode("latin-1", "replace"),
        "root_path": "",
        "headers": made.headers,
        "client": ("127.0.0.1", 1),
        "server": ("testserver", 80),
        "state": {},
    }
    await app(scope, exchange.receive, exchange.send)
    # Node has no event for a run that failed: it sees an answer without an end
    has_end = exchange.ended or exchange.has_left or made.path.startswith("/agents/execute")
    assert has_end, "the answer has no end"
    assert exchange.status != 500, exchange.body
    if exchange.is_stream and exchange.ended:
        _check_stream(exchange.body)


class _Exchange:
    """One request and its answer. The client leaves when nothing comes for `_PATIENCE` seconds."""

    _PATIENCE = 0.2

    def __init__(self, body: bytes) -> None:
        self.status = 0
        self.body = b""
        self.is_stream = False
        self.ended = False
        self.has_left = False
        self._request: bytes | None = body
        self._came = asyncio.Event()

    async def receive(self) -> Message:
        if self._request is not None:
            body, self._request = self._request, None
            return {"type": "http.request", "body": body, "more_body": False}
        while not self.ended:
            self._came.clear()
            try:
                async with asyncio.timeout(self._PATIENCE):
                    await self._came.wait()
            except TimeoutError:
                break
        self.has_left = not self.ended
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self._came.set()
        if message["type"] == "http.response.start":
            assert not self.status, "the answer has two heads"
            self.status = message["status"]
            headers = dict(message["headers"])
            assert not any(b"\n" in value for value in headers.values())
            self.is_stream = headers.get(b"content-type", b"") == b"text/event-stream"
            return
        assert message["type"] == "http.response.body", message["type"]
        assert self.status, "the answer has no head"
        assert not self.ended, "the answer goes on after its end"
        self.body += message.get("body", b"")
        self.ended = not message.get("more_body", False)


def _check_stream(body: bytes) -> None:
    """Check that a run ended once, and that all events can be read."""
    frames = [frame for frame in body.split(b"\n\n") if frame.startswith(b"data:")]
    kinds = [json.loads(frame[5:]).get("type") for frame in frames]
    if "RUN_STARTED" in kinds and "MESSAGES_SNAPSHOT" not in kinds:
        assert kinds[-1] in ("RUN_FINISHED", "RUN_ERROR"), kinds
