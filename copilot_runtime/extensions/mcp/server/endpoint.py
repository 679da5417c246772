"""The MCP server over streamable HTTP, at a path of its own below our URL.

It keeps no sessions: each request has all that it needs, so any process may answer it. Clients of
the protocol before 2026-07-28 get an id of a session all the same, by which they give calls up.
"""

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from starlette.types import Message, Receive

from copilot_runtime.base.errors import Interrupted
from copilot_runtime.extensions.mcp.server.calls import SESSION, Calls
from copilot_runtime.extensions.mcp.server.server import CALLER, build_server
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Services, Transport

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

_LARGEST = 16 * 1024
"""Bytes of a message about a session. A larger one begins none, and ends no call."""


class McpEndpoint(Transport):
    """Answers MCP clients between `open` and `aclose`."""

    paths = ("mcp",)
    for_programs = True

    def __init__(self, services: Services) -> None:
        self._server = build_server(services.program_runs)
        self._calls = Calls(services.runs)
        self._server.middleware.append(self._calls)
        self._settings = services.settings
        self._manager: StreamableHTTPSessionManager | None = None
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Take requests. They are answered in a task of its own, whoever ends it."""
        self._calls.open()
        began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._task = asyncio.create_task(self._live(began), name="mcp requests")
        await asyncio.wait((began, self._task), return_when=asyncio.FIRST_COMPLETED)
        if not began.done():
            self._task.result()

    async def aclose(self) -> None:
        """End all requests."""
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
            case _:  # there is nothing to tell beside answers
                await request.respond_json(405, _REFUSAL, {"allow": "POST, DELETE"})

    async def _answer(self, manager: "StreamableHTTPSessionManager", request: Request) -> None:
        body = await request.body()
        request.check_json(body)
        headers = [*request.response_headers]
        match _read_message(body):
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
                # whether the connection stays open, the server decides
                own = [one for one in message["headers"] if one[0].lower() != b"connection"]
                message = {**message, "headers": [*own, *headers]}
            await request.send(message)

        owner = _owner(request.caller.user)
        scope = {**request.scope, CALLER: request.caller, "user": owner}
        await manager.handle_request(scope, _repeat(body, request), send)

    async def _cancel(self, request: Request, request_id: int | str | None = None) -> None:
        """End a call of the session of a request, or all of them."""
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


_REFUSAL = {
    "jsonrpc": "2.0",
    "id": None,
    "error": {"code": -32000, "message": "Method Not Allowed: requests are sent by POST."},
}


def _read_message(body: bytes) -> Any:
    """Return what a short body says, as the package reads it; None for any other."""
    from pydantic_core import from_json

    try:
        return from_json(body) if len(body) <= _LARGEST else None
    except ValueError:  # the package says so
        return None


def _repeat(body: bytes, request: Request) -> Receive:
    """Return a `receive` that has the body again, which all transports read and measure alike."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return waiting.pop() if waiting else await request.receive()

    return receive


def _owner(user: str | None) -> Any:
    """Return a user in the form in which the package knows users."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    return AuthenticatedUser(AccessToken(token="", client_id=user or "", scopes=[]))
