"""One URL for every client: GraphQL for CopilotKit v1, AG-UI for what came after.

At the URL itself, a body with `method` is an AG-UI envelope, one with `threadId` a run of the
default agent, as AG-UI's own `HttpAgent` sends it; everything else is GraphQL. Below the URL
are AG-UI's REST routes and, if they are served, a remote endpoint for Node and an MCP server.
"""

from collections.abc import Mapping
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from copilot_runtime.interfaces import Caller
from copilot_runtime.jsontext import dumps, loads
from copilot_runtime.security.cors import Cors
from copilot_runtime.transports.agui.endpoint import AguiEndpoint
from copilot_runtime.transports.auth import CALLER, Authenticator, Unauthorized
from copilot_runtime.transports.body import ClientGone
from copilot_runtime.transports.graphql.endpoint import GraphQLEndpoint
from copilot_runtime.transports.mcp.endpoint import PATH, McpEndpoint
from copilot_runtime.transports.remote_endpoint.endpoint import ROUTES, RemoteServer

_PREFLIGHTED = "application/json"
"""The type of body that a page may send to another origin only when that origin has agreed."""


class Router:
    """An ASGI application for the URL `base` and all below it, without its last slash."""

    def __init__(
        self,
        base: str,
        graphql: GraphQLEndpoint,
        agui: AguiEndpoint,
        *,
        cors: Cors,
        authenticator: Authenticator,
        max_body_bytes: int,
        pages: Cors | None = None,
        remote: RemoteServer | None = None,
        mcp: McpEndpoint | None = None,
    ) -> None:
        self._base = base
        self._graphql = graphql
        self._agui = agui
        self._cors = cors
        self._authenticator = authenticator
        self._max_body_bytes = max_body_bytes
        self._pages = pages or Cors(())
        """The pages that may use what is meant for programs."""
        self._remote = remote
        self._mcp = mcp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        path = self._below(scope)
        if scope["type"] == "http" and scope["method"] == "OPTIONS":
            await _answer(send, 204, b"", self._cors.preflight(headers))
            return
        try:
            caller = await self._authenticator.authenticate(scope, headers)
        except Unauthorized as error:
            await self._send_away(error, scope, headers, send)
            return
        scope = {**scope, CALLER: caller}
        if path:
            await self._rest(path, caller, scope, headers, receive, send)
        elif scope["type"] == "http" and scope["method"] == "POST":
            await self._post(caller, scope, headers, receive, send)
        else:
            await self._graphql(scope, receive, send)

    async def _rest(
        self,
        path: str,
        caller: Caller,
        scope: Scope,
        headers: Mapping[str, str],
        receive: Receive,
        send: Send,
    ) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 4404, "reason": "Not found"})
        elif self._is_for_programs(path, scope["method"]):
            await self._program(path, caller, scope, headers, receive, send)
        elif scope["method"] == "POST" and self._is_foreign(headers):
            error = {"error": "forbidden", "message": "Pages of this origin may not ask."}
            await _answer(send, 403, dumps(error), self._cors.headers(headers))
        else:
            await self._agui.rest(path, caller, scope, headers, receive, send)

    def _is_for_programs(self, path: str, method: str) -> bool:
        """Say whether this is for the MCP server or the remote endpoint."""
        if path == PATH:
            return self._mcp is not None
        return self._remote is not None and path in ROUTES and (method == "POST" or path != "info")

    async def _program(
        self,
        path: str,
        caller: Caller,
        scope: Scope,
        headers: Mapping[str, str],
        receive: Receive,
        send: Send,
    ) -> None:
        """Let programs in, and only those pages that are named: a page comes with a login."""
        origin, added = headers.get("origin"), self._cors.headers(headers)
        if origin is not None and not self._pages.allows(origin):
            error = {"error": "Pages of browsers may not ask here."}
            await _answer(send, 403, dumps(error), added)
        elif path == PATH and self._mcp is not None:
            await self._mcp(scope, receive, send, added=added)
        elif self._remote is not None:
            method: str = scope["method"]
            await self._remote(path, method, caller, headers, receive, send, added=added)

    async def _post(
        self,
        caller: Caller,
        scope: Scope,
        headers: Mapping[str, str],
        receive: Receive,
        send: Send,
    ) -> None:
        """Look into the body to see who is meant, and hand it on as it came."""
        heard: list[Message] = []
        try:
            body = await self._peek(receive, heard)
        except ClientGone:
            return
        again = _again(heard, receive)
        envelope = _envelope(body)
        if envelope is None:
            await self._graphql(scope, again, send)
        elif self._is_foreign(headers):
            error = {"error": "forbidden", "message": "Pages of this origin may not ask."}
            await _answer(send, 403, dumps(error), self._cors.headers(headers))
        else:
            await self._agui.single(envelope, caller, headers, again, send)

    async def _peek(self, receive: Receive, heard: list[Message]) -> bytes:
        """Return the body, or nothing of one that is too large: GraphQL says so."""
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            heard.append(message)
            size += len(message.get("body", b""))
            if size > self._max_body_bytes:
                return b""
            if not message.get("more_body", False):
                return b"".join(part.get("body", b"") for part in heard)

    def _below(self, scope: Scope) -> str:
        """Return the path after our URL, still encoded, and empty for the URL itself."""
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        parts = raw.split(b"?")[0].decode("latin-1").split("/")
        before = scope.get("root_path", "").rstrip("/") + self._base
        if not scope["path"].startswith(before):  # mounted by something that strips the path
            before = self._base
        return "/".join(parts[before.count("/") + 1 :]).rstrip("/")

    def _is_foreign(self, headers: Mapping[str, str]) -> bool:
        """Say whether a page of another origin asks in a person's name, cookies and all.

        It could not read the answer, but the run and its actions would have happened. What
        needs a preflight has been allowed already.
        """
        origin = headers.get("origin")
        if origin is None or self._cors.allows(origin):
            return False
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        return kind != _PREFLIGHTED and origin.partition("://")[2] != headers.get("host")

    async def _send_away(
        self, error: Unauthorized, scope: Scope, headers: Mapping[str, str], send: Send
    ) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 4401, "reason": "Unauthorized"})
            return
        # in the words of either client: both show the message
        body = {
            "error": _kind(error.status),
            "message": error.message,
            "errors": [{"message": error.message, "extensions": {"code": error.code}}],
        }
        extra = [(name.encode(), value.encode()) for name, value in error.headers.items()]
        await _answer(send, error.status, dumps(body), [*self._cors.headers(headers), *extra])


def _kind(status: int) -> str:
    """Return what a refusal is called. Nobody is told that they may not when the server failed."""
    if status >= 500:
        return "internal_error"
    return {401: "unauthorized", 403: "forbidden"}.get(status, "refused")


def _envelope(body: bytes) -> dict[str, Any] | None:
    """Return what is meant for AG-UI, or None. Reads only a body that may be."""
    if b'"method"' not in body and b'"threadId"' not in body:
        return None
    if body.startswith((b'{"query"', b'{"operationName"')):
        return None  # as CopilotKit v1 writes it, so that a long chat is not read twice
    try:
        value = loads(body)
    except ValueError:
        return None
    if not isinstance(value, dict) or "query" in value or "operationName" in value:
        return None
    return value if "method" in value or "threadId" in value else None


def _again(heard: list[Message], receive: Receive) -> Receive:
    """Return a `receive` that says again what was heard, then goes on."""
    waiting = heard[::-1]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


async def _answer(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    kind = [(b"content-type", b"application/json")] if body else []
    length = (b"content-length", str(len(body)).encode())
    start = {"type": "http.response.start", "status": status, "headers": [*kind, length, *headers]}
    await send(start)
    await send({"type": "http.response.body", "body": body})
