"""One session with an MCP server, in a task of its own, used by any number of runs at once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from contextvars import Context
from typing import Any, TypeVar

import httpx2
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolResult,
    PaginatedRequestParams,
    ServerCapabilities,
    Tool,
    ToolListChangedNotification,
)
from pydantic import ValidationError

from copilot_runtime.base.concurrency import retrieve_exception
from copilot_runtime.base.errors import CopilotError, NetworkError, RunStalled
from copilot_runtime.extensions.mcp.client.client import Client, EndNotifyingStream
from copilot_runtime.extensions.mcp.client.connect import (
    TransportStatus,
    open_transport,
    watch_requests,
)
from copilot_runtime.extensions.mcp.client.server import McpServer
from copilot_runtime.telemetry import NO_TELEMETRY, Telemetry, find_current_span, semconv
from copilot_runtime.telemetry.propagation import inject_context
from mcp import ClientSession, MCPError
from mcp.client.session import IncomingMessage

MAX_TOOLS = 500
"""Tools that are read of one server."""

MAX_TOOL_BYTES = 4_000_000
"""Bytes of all of them, as JSON: they are in memory as long as the session."""

MAX_PAGES = 100
"""Pages of tools that are read of one server."""

TOOLS_TTL = 60.0
"""Seconds after which tools are listed again even without a notification of a change."""

CLOSE_TIMEOUT = 10.0
"""Seconds that closing a connection may take. The package gives a process less."""

_LONGEST_ID = 128

_NO_REASON = "Server returned an error response"
"""The message of the package `mcp` for a status that is no success."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class SessionClosed(NetworkError):
    """The session had ended and nothing was done: the request may be repeated in a new one."""


class Session:
    """A connection that opens when it is made, and ends after `idle` seconds without use.

    Requests are sent by the tasks that make them. The connection has to be entered and left in one
    task, so the session has a task for that. `on_end` is called when it has ended.
    """

    def __init__(
        self,
        server: McpServer,
        headers: Mapping[str, str],
        environment: Mapping[str, str],
        *,
        idle: float,
        on_end: Callable[["Session"], None],
        telemetry: Telemetry = NO_TELEMETRY,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._extensions = extensions or {}
        self.server = server
        self.loop = asyncio.get_running_loop()
        self.users = 0
        self.last_used = self.loop.time()
        self._idle = idle
        self._on_end = on_end
        self._telemetry = telemetry
        self._opened_at = 0.0
        self._status = TransportStatus()
        self._over = asyncio.Event()
        self._is_retired = False
        self._ready: asyncio.Future[None] = self.loop.create_future()
        self._ready.add_done_callback(retrieve_exception)
        self._tools_lock = asyncio.Lock()
        self._tools: Sequence[Tool] | None = None
        self._listed_at = 0.0
        self._refreshing: asyncio.Task[Sequence[Tool]] | None = None
        self._client: Client | None = None
        self._kill_timer: asyncio.TimerHandle | None = None
        self._environment = environment
        # it belongs to no run, so it gets no context of one
        self.task = self.loop.create_task(
            self._run({**headers}), name=f"mcp:{server.label}", context=Context()
        )
        self.task.add_done_callback(self._finish)

    @property
    def alive(self) -> bool:
        """Whether it can take another request."""
        return not (self._is_retired or self._over.is_set())

    @property
    def is_open(self) -> bool:
        """Whether nobody has to wait for the connection."""
        return self.alive and self._ready.done()

    @property
    def has_tools(self) -> bool:
        """Whether nobody has to wait for the list of tools."""
        return self.is_open and self._tools is not None and self._listed_at > 0

    def retire(self) -> None:
        """Take no new requests, and end when those under way are done."""
        self._is_retired = True
        if not self.users:
            self.close()

    def close(self) -> None:
        """End now; calls under way fail."""
        self._over.set()
        if not self._ready.done():
            self.task.cancel()

    @contextmanager
    def use(self) -> Generator[None, None, None]:
        """Count as in use, so that it does not end for lack of use."""
        self.users += 1
        try:
            yield
        finally:
            self.users -= 1
            self.last_used = self.loop.time()
            if self._is_retired and not self.users:
                self.close()

    async def ready(self) -> ClientSession:
        """Return the session once it is open. Raises what keeps it from opening."""
        await asyncio.shield(self._ready)
        assert self._client is not None
        return self._client

    async def capabilities(self) -> ServerCapabilities:
        return (await self.ready()).server_capabilities or ServerCapabilities()

    async def tools(self) -> Sequence[Tool]:
        """Return the server's tools, from a cache that its notifications empty.

        After `TOOLS_TTL` they are listed again, for those who ask later.
        """
        if self._tools is None or not self._listed_at:
            return await self._fetch_tools()
        if self.loop.time() - self._listed_at > TOOLS_TTL and self._refreshing is None:
            self._refreshing = self.loop.create_task(
                self._fetch_tools(is_stale=True), name="mcp tools", context=Context()
            )
            self._refreshing.add_done_callback(self._end_refreshing)
        return self._tools

    async def _fetch_tools(self, *, is_stale: bool = False) -> Sequence[Tool]:
        """List the tools, unless somebody else has done so meanwhile and they are not stale."""
        async with self._tools_lock:
            if is_stale or self._tools is None or not self._listed_at:
                self._listed_at = self.loop.time()
                tools = await self.request(self._list_tools)
                self._tools = tools if self._listed_at else None  # they may have changed meanwhile
                return tools
            return self._tools

    def _end_refreshing(self, task: "asyncio.Task[Sequence[Tool]]") -> None:
        self._refreshing = None
        retrieve_exception(task)  # if it failed, the old list counts until the next time

    async def request(self, question: Callable[[ClientSession], Awaitable[T]]) -> T:
        """Send a request that changes nothing, and so may be repeated."""
        client = await self.ready()
        self._describe_session(client)
        with watch_requests() as status:
            try:
                async with asyncio.timeout(self.server.timeout):
                    return await question(client)
            except TimeoutError:
                raise self._build_timeout() from None
            except (MCPError, RuntimeError, ValidationError) as error:
                raise self._convert_error(error, status.refusal, is_idempotent=True) from error

    async def call(
        self, tool: str, values: Mapping[str, Any], *, is_idempotent: bool
    ) -> CallToolResult:
        """Run a tool.

        Raises `SessionClosed` if it did not run for certain, or if it may run twice without harm.
        """
        client = await self.ready()
        self._describe_session(client)
        timeout = self.server.timeout
        limit = asyncio.timeout(timeout)

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            logger.debug("%s: %s %g of %s: %s", self.server.label, tool, progress, total, message)
            with suppress(RuntimeError):  # it came too late
                limit.reschedule(self.loop.time() + timeout)

        meta: Any = inject_context(find_current_span()) or None  # MCP has it there, over any way
        with watch_requests() as status:
            try:
                async with limit:
                    return await client.call_tool(
                        tool, {**values}, progress_callback=on_progress, meta=meta
                    )
            except TimeoutError:
                raise self._build_timeout() from None
            except (MCPError, RuntimeError, ValidationError) as error:
                raise self._convert_error(
                    error, status.refusal, is_idempotent=is_idempotent
                ) from error

    def _describe_session(self, client: ClientSession) -> None:
        find_current_span().set_attributes(
            {
                semconv.MCP_PROTOCOL_VERSION: client.protocol_version,
                semconv.MCP_SESSION_ID: self._status.session_id[:_LONGEST_ID] or None,
            }
        )

    def _build_timeout(self) -> RunStalled:
        label, timeout = self.server.label, self.server.timeout
        return RunStalled(f"The MCP server {label!r} said nothing for {timeout:g} s.")

    def _convert_error(
        self, error: Exception, status: int | None, *, is_idempotent: bool
    ) -> CopilotError:
        """Return our error for an exception; retire if this session cannot be used again."""
        label = self.server.label
        if not isinstance(error, MCPError):
            return CopilotError(f"The MCP server {label!r} answered with what is no answer.")
        if self._is_unknown_session(error, status):
            self.retire()
            return SessionClosed(
                f"The MCP server {label!r} does not know the session: {error.message}."
            )
        if error.code == CONNECTION_CLOSED and error.message == "Connection closed":
            self.retire()
            kind = SessionClosed if is_idempotent else NetworkError
            return kind(f"The connection to the MCP server {label!r} broke off.")
        if status is not None:
            self.retire()  # the session may be the reason
            if error.message == _NO_REASON:
                return NetworkError(f"The MCP server {label!r} answered with status {status}.")
        return CopilotError(f"The MCP server {label!r} says: {error.message}")

    def _is_unknown_session(self, error: MCPError, status: int | None) -> bool:
        """Return whether the server does not have the session any more, and so did nothing."""
        if self._client is None or self._client.initialize_result is None:
            return False  # there are no sessions
        return status == 404 or (status == 400 and "session" in error.message.lower())

    async def _list_tools(self, client: ClientSession) -> Sequence[Tool]:
        tools: list[Tool] = []
        room = MAX_TOOL_BYTES
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(params=PaginatedRequestParams(cursor=cursor))
            for tool in page.tools:
                room -= len(tool.model_dump_json())
                if room < 0:
                    logger.warning(
                        "%r has very large tools; the first are read.", self.server.label
                    )
                    return tools
                tools.append(tool)
            cursor = page.next_cursor
            if not cursor:
                return tools
            if len(tools) >= MAX_TOOLS:
                break
        logger.warning("%r has very many tools; the first are read.", self.server.label)
        return tools[:MAX_TOOLS]

    async def _run(self, headers: Mapping[str, str]) -> None:
        """Open the connection, wait until it is over, and close it."""
        try:
            async with AsyncExitStack() as stack:
                try:
                    await self._open(stack, headers)
                    await self._wait_until_over()
                except Exception as error:
                    self._fail(self._describe(error))  # now, because closing may take long
                    raise
                finally:
                    self._over.set()
                    self._kill_timer = self.loop.call_later(CLOSE_TIMEOUT, self.task.cancel)
        except Exception as error:  # groups too: of the transport's own tasks
            self._fail(self._describe(error))

    async def _open(self, stack: AsyncExitStack, headers: Mapping[str, str]) -> None:
        async with asyncio.timeout(self.server.startup_timeout):
            link = open_transport(
                self.server, headers, self._status, self._over, environment=self._environment
            )
            read, write = await stack.enter_async_context(link)
            stream = EndNotifyingStream(read, self._over)
            session = Client(stream, write, self._on_message, self._extensions)
            self._client = await stack.enter_async_context(session)
            await self._client.handshake()
        self._status.refusal = None
        self._opened_at = self.loop.time()
        self._ready.set_result(None)

    async def _wait_until_over(self) -> None:
        while not self._over.is_set():
            left = self._idle if self.users else self.last_used + self._idle - self.loop.time()
            if left <= 0:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), left)

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._listed_at = 0.0

    def _finish(self, task: asyncio.Task[None]) -> None:
        """Fail whatever waits for this session: it has ended. `_run` may never have begun."""
        self._over.set()
        if self._refreshing is not None:
            self._refreshing.cancel()
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        if not self._ready.done():
            self._fail("it was given up")
        if self._opened_at:
            self._telemetry.record(
                semconv.MCP_CLIENT_SESSION_DURATION,
                self.loop.time() - self._opened_at,
                {semconv.NETWORK_TRANSPORT: "pipe" if self.server.command else "tcp"},
            )
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("The session with %r failed.", self.server.label, exc_info=error)
        self._on_end(self)

    def _fail(self, reason: str) -> None:
        if not self._ready.done():
            self._ready.set_exception(NetworkError(f"It cannot be reached: {reason}."))
        else:
            logger.info("The session with %r ended: %s", self.server.label, reason)

    def _describe(self, error: BaseException) -> str:
        """Say what went wrong, without the address that some exceptions repeat."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if self._status.refusal is not None:
            return f"it answered with status {self._status.refusal}"
        if isinstance(error, TimeoutError):
            return f"no answer within {self.server.startup_timeout:g} s"
        if isinstance(error, CopilotError):
            return f"{error.message} {error.hint or ''}".strip(". ")
        if isinstance(error, MCPError | OSError | httpx2.TransportError):
            return str(error) or type(error).__name__
        return type(error).__name__
