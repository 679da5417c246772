"""Calls of MCP clients under way, and how a client gives one up at whatever process.

Clients of the protocol before 2026-07-28 give a call up by a message of its own, which comes as
another request over HTTP, and so to any process that shares the store of threads.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from copilot_runtime.api.carrier import PeerLost
from copilot_runtime.runtime.conversations import Conversations

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

SESSION = "mcp-session-id"
"""The header with the id that a client got for its `initialize`: its requests are counted anew."""

QUESTION = "cancel_mcp"
"""What other processes ask of this one."""


class CallKey(NamedTuple):
    """Who calls, in which session, and by which id; that is a number or a text."""

    user: str
    session: str
    request_id: int | str


class Calls:
    """The calls that this process answers.

    As middleware of the server, it takes note of each call with a session. A call ends with its
    connection as well.
    """

    def __init__(self, runs: Conversations) -> None:
        self._runs = runs
        self._scopes: dict[CallKey, anyio.CancelScope] = {}

    def open(self) -> None:
        """Answer other processes, to which clients say what is meant for this one."""
        if self._runs.peers is not None:
            self._runs.peers.add_answer(QUESTION, self._answer)

    async def __call__(
        self, ctx: "ServerRequestContext[Any, Any]", call_next: "CallNext"
    ) -> "HandlerResult":
        request = ctx.request
        session = "" if request is None else request.headers.get(SESSION, "")
        if request is None or not session:  # others are given up by closing their connection
            return await call_next(ctx)
        user = request.scope["user"].access_token.client_id
        if ctx.request_id is None or ctx.method == "initialize":
            return await call_next(ctx)
        return await self._call(CallKey(user, session, ctx.request_id), ctx, call_next)

    async def cancel(self, user: str, session: str, request_id: int | str | None = None) -> None:
        """End a call of a user, or all of a session, in whatever process."""
        values = {"user": user, "session": session, "request_id": request_id}
        if not await self._answer(values) and self._runs.peers is not None:
            with suppress(PeerLost):  # the call ends with its connection as well
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
        """End calls of this process. Returns True if there was the one that was meant, or None."""
        match values:
            case {"user": str(user), "session": str(session), "request_id": None}:
                for key, scope in self._scopes.items():
                    if key[:2] == (user, session):
                        scope.cancel()
                return None  # others may have more of them
            case {"user": str(user), "session": str(session), "request_id": int() | str() as id}:
                scope = self._scopes.get(CallKey(user, session, id))
                if scope is None:
                    return None
                scope.cancel()
                return True
            case _:
                return None
