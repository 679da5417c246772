"""The MCP server over streamable HTTP, at a path of its own below our URL."""

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from copilot_runtime.errors import Interrupted
from copilot_runtime.interfaces import Caller
from copilot_runtime.security.cors import RawHeaders
from copilot_runtime.transports.auth import CALLER
from copilot_runtime.transports.mcp.server import mcp_server
from copilot_runtime.transports.program_runs import ProgramRuns

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

PATH = "mcp"


class McpEndpoint:
    """Answers MCP clients between `open` and `aclose`. Sessions belong to who began them."""

    def __init__(self, program_runs: ProgramRuns, *, max_body_bytes: int) -> None:
        self._server = mcp_server(program_runs)
        self._max_body_bytes = max_body_bytes
        self._sessions: StreamableHTTPSessionManager | None = None
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Take requests. The sessions live in a task of their own, whoever ends it."""
        began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._task = asyncio.create_task(self._live(began), name="mcp sessions")
        await asyncio.wait((began, self._task), return_when=asyncio.FIRST_COMPLETED)
        if not began.done():
            self._task.result()

    async def aclose(self) -> None:
        """End all sessions."""
        self._over.set()
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send, *, added: RawHeaders
    ) -> None:
        """Answer a request; the answer has the headers `added`, too."""
        if self._sessions is None:
            error = Interrupted("The server does not take requests now.")
            refusal = JSONResponse({"error": error.message}, error.status_code)
            await refusal(scope, receive, send)
            return
        caller: Caller = scope[CALLER]

        async def telling(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        await self._sessions.handle_request(
            {**scope, "user": _owner(caller.user)}, receive, telling
        )

    async def _live(self, began: "asyncio.Future[None]") -> None:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        sessions = StreamableHTTPSessionManager(
            self._server, max_request_body_size=self._max_body_bytes
        )
        async with sessions.run():
            self._sessions = sessions
            began.set_result(None)
            await self._over.wait()
            self._sessions = None


def _owner(user: str | None) -> Any:
    """Return a user as the sessions tell users apart."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    return AuthenticatedUser(AccessToken(token="", client_id=user or "", scopes=[]))
