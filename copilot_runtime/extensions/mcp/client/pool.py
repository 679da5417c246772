"""A pool of sessions with MCP servers: one per server and credentials, shared by all runs."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

from mcp import ClientSession

from copilot_runtime.base.errors import LimitExceeded, NetworkError
from copilot_runtime.extensions.mcp.client.connect import DEFAULT_LIMIT
from copilot_runtime.extensions.mcp.client.event_stream import MessageLimit
from copilot_runtime.extensions.mcp.client.problems import Problems
from copilot_runtime.extensions.mcp.client.server import McpServer
from copilot_runtime.extensions.mcp.client.session import Session, SessionClosed
from copilot_runtime.telemetry import NO_TELEMETRY, Telemetry

T = TypeVar("T")

_Key = tuple[Any, ...]

logger = logging.getLogger(__name__)


class SessionPool:
    """Opens a session on first use, and closes it after `idle` seconds without use.

    `aclose` waits `grace` seconds for processes to end. When `most` sessions are open, a new one
    replaces the least recently used. `limit` is the maximum size of a message over HTTP;
    `extensions` are the client extensions announced to servers, as
    settings by the name of each extension.
    """

    def __init__(
        self,
        *,
        idle: float = 300.0,
        most: int = 100,
        grace: float = 5.0,
        limit: MessageLimit = DEFAULT_LIMIT,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._extensions = extensions
        self._limit = limit
        self.idle = idle
        self.most = most
        self.grace = grace
        self.problems = Problems()
        self.telemetry: Telemetry = NO_TELEMETRY
        """Records the duration of sessions: the telemetry of the runtime whose runs use them."""
        self._sessions: dict[_Key, Session] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def connect(
        self,
        server: McpServer,
        headers: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
    ) -> "Connection":
        """Return a connection, which finds or opens a session for each request.

        A process that is started for it also gets the variables in `environment`.
        """
        return Connection(self, server, headers, environment or {})

    def find_session(self, key: _Key) -> Session | None:
        """Return the open session of a connection, or None."""
        return self._sessions.get(key)

    @asynccontextmanager
    async def session(
        self,
        server: McpServer,
        headers: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[Session, None]:
        """Yield an open session."""
        session = self._session(server, headers, environment or {})
        with session.use():
            await session.ready()
            yield session

    async def aclose(self) -> None:
        """Close all sessions. A later request opens a new one."""
        sessions = [*self._sessions.values()]
        self._sessions.clear()
        for session in sessions:
            session.close()
        tasks = {session.task for session in sessions} | self._ending
        if tasks:
            await asyncio.wait(tasks, timeout=self.grace)
        if late := {task for task in tasks if not task.done()}:
            for task in late:
                task.cancel()
            await asyncio.wait(late, timeout=self.grace)
        for task in tasks:
            if not task.done():
                logger.warning("%s does not end, and is left behind.", task.get_name())

    def _session(
        self, server: McpServer, headers: Mapping[str, str], environment: Mapping[str, str]
    ) -> Session:
        key = _key(server, headers)
        session = self._sessions.get(key)
        loop = asyncio.get_running_loop()
        if session is not None and session.alive and session.loop is loop:
            return session
        if len(self._sessions) >= self.most:
            self._evict()

        def on_end(session: Session) -> None:
            self._ending.discard(session.task)
            if self._sessions.get(key) is session:
                del self._sessions[key]

        session = Session(
            server,
            headers,
            environment,
            idle=self.idle,
            on_end=on_end,
            limit=self._limit,
            problems=self.problems,
            telemetry=self.telemetry,
            extensions=self._extensions,
        )
        if (old := self._sessions.get(key)) is not None and old.loop is loop:
            self._ending.add(old.task)
        self._sessions[key] = session
        return session

    def _evict(self) -> None:
        idle_sessions = [
            (one.last_used, key) for key, one in self._sessions.items() if not one.users
        ]
        if not idle_sessions:
            raise LimitExceeded(f"There are {self.most} sessions with MCP servers, all in use.")
        session = self._sessions.pop(min(idle_sessions, key=lambda one: one[0])[1])
        session.close()
        self._ending.add(session.task)


class Connection:
    """A server, with the headers of one caller."""

    def __init__(
        self,
        pool: SessionPool,
        server: McpServer,
        headers: Mapping[str, str],
        environment: Mapping[str, str],
    ) -> None:
        self.server = server
        self.key = _key(server, headers)
        """Connections with equal keys share a session."""
        self._pool = pool
        self._headers = headers
        self._environment = environment

    @property
    def is_open(self) -> bool:
        """True if a session is open."""
        session = self._pool.find_session(self.key)
        return session is not None and session.is_open

    @property
    def has_tools(self) -> bool:
        """True if the list of tools is cached."""
        session = self._pool.find_session(self.key)
        return session is not None and session.has_tools

    async def ask(self, question: Callable[[Session], Awaitable[T]]) -> T:
        """Use a session. Retry with a new one if it had ended before the request was sent."""
        try:
            async with self._open() as session:
                return await question(session)
        except SessionClosed:
            pass
        async with self._open() as session:
            try:
                return await question(session)
            except SessionClosed as error:
                raise NetworkError(error.message) from error

    async def request(self, question: Callable[[ClientSession], Awaitable[T]]) -> T:
        """Send an idempotent request."""
        return await self.ask(lambda session: session.request(question))

    def _open(self) -> AbstractAsyncContextManager[Session]:
        return self._pool.session(self.server, self._headers, self._environment)


def _key(server: McpServer, headers: Mapping[str, str]) -> _Key:
    where = (server.url, *server.command, server.cwd, server.transport)
    client = (server.public_only, server.http_client)
    times = (server.startup_timeout, server.timeout, server.max_time)
    return (where, client, times, tuple(sorted(server.env.items())), tuple(sorted(headers.items())))
