"""The MCP server over streamable HTTP, at a path of its own below our URL."""

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.types import Message, Receive

from copilot_runtime.config.settings import Settings
from copilot_runtime.errors import Interrupted, LimitExceeded
from copilot_runtime.transports.mcp.server import CALLER, build_server
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Services, Transport

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

logger = logging.getLogger(__name__)

_SESSION_LIFETIME = 1800.0
"""Seconds without a request after which a session ends; its id is then answered 404."""

_WAY_OUT = "End one by DELETE, or wait: one that nobody uses ends after 30 minutes."

_LARGEST_GREETING = 16 * 1024
"""Bytes of an `initialize`: its session keeps what it says of the client. More are answered 413."""


class McpEndpoint(Transport):
    """Answers MCP clients between `open` and `aclose`. Sessions belong to who began them."""

    paths = ("mcp",)
    for_programs = True

    def __init__(self, services: Services) -> None:
        self._server = build_server(services.program_runs)
        self._settings = services.settings
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

    async def __call__(self, request: Request) -> None:
        if self._sessions is None:
            error = Interrupted("The server does not take requests now.")
            await request.respond_json(error.status_code, {"error": error.message})
            return

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message["headers"], *request.response_headers]
                message = {**message, "headers": headers}
            await request.send(message)

        body = await request.body()  # of any method: it may have been read already
        if request.method == "POST":
            request.check_json(body)
            if (refusal := _refuse_greeting(body)) is not None:
                await request.respond_json(413, refusal)
                return
        receive = _repeat(body, request)
        owner = _owner(request.caller.user)
        scope = {**request.scope, CALLER: request.caller, "user": owner}
        try:
            await self._sessions.handle_request(scope, receive, send)
        except _TooManySessions as refusal:
            logger.warning("Refused a session of MCP: %s", refusal.message)
            await request.respond_json(refusal.status_code, _encode_error(refusal))

    async def _live(self, began: "asyncio.Future[None]") -> None:
        sessions = _build_sessions(self._server, self._settings)
        async with sessions.run():
            self._sessions = sessions
            began.set_result(None)
            await self._over.wait()
            self._sessions = None


class _TooManySessions(LimitExceeded):
    """There is no place for another session."""


def _build_sessions(server: Any, settings: Settings) -> "StreamableHTTPSessionManager":
    """Return the sessions, which raise `_TooManySessions` for one more than the settings allow."""
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    most, of_user = settings.mcp_sessions, settings.mcp_sessions_per_user

    class Sessions(StreamableHTTPSessionManager):
        def _admit_session(self, requestor: Any) -> Any:
            """Open a session: called under a lock. No public method decides about one."""
            owners = self._session_owners.values()
            if len(owners) >= most:
                raise _TooManySessions(
                    f"All {most} sessions are taken. {_WAY_OUT}", status_code=503
                )
            user = requestor["client_id"]
            if user and sum(owner["client_id"] == user for owner in owners) >= of_user:
                raise _TooManySessions(
                    f"You have {of_user} sessions, and may have no more. {_WAY_OUT}",
                    status_code=429,
                )
            return super()._admit_session(requestor)

    return Sessions(
        server,
        session_idle_timeout=_SESSION_LIFETIME,
        max_request_body_size=settings.max_body_bytes,
        max_sessions=None,
    )


def _encode_error(error: _TooManySessions) -> Mapping[str, Any]:
    """Return an error of JSON-RPC for a request whose id was not looked at."""
    from mcp_types import INTERNAL_ERROR

    fields = {"code": INTERNAL_ERROR, "message": error.message}
    return {"jsonrpc": "2.0", "id": None, "error": fields}


def _refuse_greeting(body: bytes) -> Mapping[str, Any] | None:
    """Return the error for an `initialize` that is too large to keep, or None for all else."""
    from mcp_types import INVALID_PARAMS
    from pydantic_core import from_json  # as the sessions read it, whatever they take for JSON

    if len(body) <= _LARGEST_GREETING:
        return None
    try:
        value = from_json(body)
    except ValueError:  # the sessions say so
        return None
    if not isinstance(value, dict) or value.get("method") != "initialize":
        return None
    message = f"An initialize request may have {_LARGEST_GREETING} bytes, and this one has more."
    logger.warning("Refused a session of MCP: %s", message)
    error = {"code": INVALID_PARAMS, "message": message}
    return {"jsonrpc": "2.0", "id": value.get("id"), "error": error}


def _repeat(body: bytes, request: Request) -> Receive:
    """Return a `receive` that has the body again, which all transports read and measure alike."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return waiting.pop() if waiting else await request.receive()

    return receive


def _owner(user: str | None) -> Any:
    """Return a user in the form in which the sessions compare users."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    return AuthenticatedUser(AccessToken(token="", client_id=user or "", scopes=[]))
