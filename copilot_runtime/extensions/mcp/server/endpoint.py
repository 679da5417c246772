"""The MCP server over streamable HTTP, at its own path below the runtime's URL.

It is stateless: any process can answer any request. Clients of the protocol before 2026-07-28 get a
session identifier nevertheless, which they need to cancel calls.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import anyio
from starlette.types import Message, Receive

from copilot_runtime.api.bus import PeerLost
from copilot_runtime.base.errors import Interrupted
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.mcp.server.server import CALLER, build_server
from copilot_runtime.extensions.settings import narrow_settings
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Services, Transport

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

_LARGEST = 64 * 1024
"""Maximum size of a message without the arguments of its tool, in bytes. The package writes what it
refuses into its errors, and compares every value of the other fields with the protocol."""


class McpEndpoint(Transport):
    """Handles MCP clients between `open` and `aclose`."""

    paths = ("mcp",)
    for_programs = True

    def __init__(self, services: Services) -> None:
        self._server = build_server(services.program_runs)
        self._calls = Calls(services.runs)
        self._server.middleware.append(self._calls)
        self._settings = narrow_settings(services.settings)
        self._manager: StreamableHTTPSessionManager | None = None
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Accept requests.

        A task of its own handles them, independent of the task that closes it.
        """
        self._calls.open()
        began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._task = asyncio.create_task(self._live(began), name="mcp requests")
        await asyncio.wait((began, self._task), return_when=asyncio.FIRST_COMPLETED)
        if not began.done():
            self._task.result()

    async def aclose(self) -> None:
        """Cancel all requests."""
        self._over.set()
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def __call__(self, request: Request) -> None:
        if self._manager is None:
            error = Interrupted("The server does not take requests now.")
            await request.respond_json(error.status_code, {"error": error.message})
            return
        match request.method:
            case "POST":
                await self._answer(self._manager, request)
            case "DELETE":
                await self._cancel(request)
                await request.respond_json(200, {})
            case _:  # the server sends no messages other than responses
                refusal = _write_error(-32000, "Method Not Allowed: requests are sent by POST.")
                await request.respond_json(405, refusal, {"allow": "POST, DELETE"})

    async def _answer(self, manager: "StreamableHTTPSessionManager", request: Request) -> None:
        body = await request.body()
        headers = [*request.response_headers]
        try:
            message = await request.json()
        except ValueError:
            await request.respond_json(400, _write_error(-32700, "Parse error"))
            return
        if not _is_message(message, len(body)):
            await request.respond_json(400, _write_error(-32600, _INVALID))
            return
        match message:
            case {"method": "initialize"}:
                headers.append((SESSION.encode(), uuid4().hex.encode()))
            case {
                "method": "notifications/cancelled",
                "params": {"requestId": int() | str() as id},
            }:
                await self._cancel(request, id)
            case _:
                pass

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                # the HTTP server decides whether the connection stays open
                own = [one for one in message["headers"] if one[0].lower() != b"connection"]
                message = {**message, "headers": [*own, *headers]}
            await request.send(message)

        owner = _owner(request.caller.user)
        scope = {**request.scope, CALLER: request.caller, "user": owner}
        await manager.handle_request(scope, _repeat(body, request), send)

    async def _cancel(self, request: Request, request_id: int | str | None = None) -> None:
        """Cancel one call of a session, or all of them."""
        session = request.headers.get(SESSION, "")
        await self._calls.cancel(request.caller.user or "", session, request_id)

    async def _live(self, began: "asyncio.Future[None]") -> None:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        manager = StreamableHTTPSessionManager(
            self._server, stateless=True, max_request_body_size=self._settings.max_body_bytes
        )
        async with manager.run():
            self._manager = manager
            began.set_result(None)
            await self._over.wait()
            self._manager = None


_INVALID = (
    "The body is not one request or notification of JSON-RPC, or has more than "
    f"{_LARGEST:,} bytes without the arguments of its tool."
)


def _write_error(code: int, message: str) -> JsonObject:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}


def _is_message(message: Any, size: int) -> bool:
    """Return `True` for a request or notification of JSON-RPC that the package reads quickly."""
    match message:
        case {"jsonrpc": "2.0", "method": str(method)}:
            params: Any = message.get("params")
        case _:
            return False
    if type(message.get("id", 0)) not in (int, str) or not isinstance(params, dict | None):
        return False
    if size <= _LARGEST:
        return True
    rest = {**message}
    if method == "tools/call" and params and isinstance(params.get("arguments"), dict):
        rest["params"] = {**params, "arguments": {}}
    return len(dumps(rest)) <= _LARGEST


def _repeat(body: bytes, request: Request) -> Receive:
    """Return a `receive` callable that replays the body, which was already read and measured."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return waiting.pop() if waiting else await request.receive()

    return receive


def _owner(user: str | None) -> Any:
    """Return a user as the package's `AuthenticatedUser`."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    return AuthenticatedUser(AccessToken(token="", client_id=user or "", scopes=[]))


SESSION = "mcp-session-id"
"""The header with the identifier that a client got for its `initialize`; its request numbers start
anew."""

QUESTION = "cancel_mcp"
"""The cluster request that cancels calls in other processes."""


class CallKey(NamedTuple):
    """The user, the session and the request identifier (a number or a string) of a call."""

    user: str
    session: str
    request_id: int | str


class Calls:
    """The calls in progress in this process.

    This server middleware registers each call that has a session. A call also ends with its
    connection. Clients of the protocol before 2026-07-28 cancel by a separate message, which over
    HTTP may reach any process that shares the thread store.
    """

    def __init__(self, runs: Conversations) -> None:
        self._runs = runs
        self._scopes: dict[CallKey, anyio.CancelScope] = {}

    def open(self) -> None:
        """Accept cancellations that clients sent to other processes."""
        if self._runs.peers is not None:
            self._runs.peers.add_answer(QUESTION, self._answer)

    async def __call__(
        self, ctx: "ServerRequestContext[Any, Any]", call_next: "CallNext"
    ) -> "HandlerResult":
        request = ctx.request
        session = "" if request is None else request.headers.get(SESSION, "")
        if request is None or not session:  # other clients cancel by closing the connection
            return await call_next(ctx)
        user = request.scope["user"].access_token.client_id
        if ctx.request_id is None or ctx.method == "initialize":
            return await call_next(ctx)
        return await self._call(CallKey(user, session, ctx.request_id), ctx, call_next)

    async def cancel(self, user: str, session: str, request_id: int | str | None = None) -> None:
        """Cancel a user's call, or all calls of a session, in any process."""
        values = {"user": user, "session": session, "request_id": request_id}
        if not await self._answer(values) and self._runs.peers is not None:
            with suppress(PeerLost):  # the call also ends with its connection
                await self._runs.peers.ask_all(
                    QUESTION, user=user, session=session, request_id=request_id
                )

    async def _call(
        self, key: CallKey, ctx: "ServerRequestContext[Any, Any]", call_next: "CallNext"
    ) -> "HandlerResult":
        with anyio.CancelScope() as scope:
            self._scopes[key] = scope
            try:
                return await call_next(ctx)
            finally:
                if self._scopes.get(key) is scope:
                    del self._scopes[key]
        from mcp import MCPError
        from mcp.server.streamable_http import REQUEST_CANCELLED

        raise MCPError(code=REQUEST_CANCELLED, message="Request cancelled")

    async def _answer(self, values: Mapping[str, Any]) -> bool | None:
        """Cancel calls of this process. Returns True if the one call was found, otherwise None."""
        match values:
            case {"user": str(user), "session": str(session), "request_id": None}:
                for key, scope in self._scopes.items():
                    if key[:2] == (user, session):
                        scope.cancel()
                return None  # other processes may have more of the session's calls
            case {"user": str(user), "session": str(session), "request_id": int() | str() as id}:
                scope = self._scopes.get(CallKey(user, session, id))
                if scope is None:
                    return None
                scope.cancel()
                return True
            case _:
                return None
