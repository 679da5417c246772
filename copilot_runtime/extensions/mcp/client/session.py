"""A session with an MCP server, which runs in its own task and is shared by any number of runs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from contextvars import Context
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import httpx2
from mcp import ClientSession, MCPError
from mcp.client.session import IncomingMessage, MessageHandlerFnT
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolResult,
    ClientRequest,
    Implementation,
    InputRequiredResult,
    PaginatedRequestParams,
    Request,
    ServerCapabilities,
    Tool,
    ToolListChangedNotification,
)
from pydantic import BaseModel, TypeAdapter, ValidationError

from copilot_runtime.base.concurrency import retrieve_exception
from copilot_runtime.base.errors import CopilotError, LimitExceeded, NetworkError, RunStalled
from copilot_runtime.extensions.mcp.client.connect import (
    TransportStatus,
    open_transport,
    watch_requests,
)
from copilot_runtime.extensions.mcp.client.event_stream import MessageLimit
from copilot_runtime.extensions.mcp.client.messages import LargeResults, repair_message
from copilot_runtime.extensions.mcp.client.problems import Problems
from copilot_runtime.extensions.mcp.client.results import (
    RESULTS,
    ItemwiseDispatcher,
    SetAside,
    read_result,
)
from copilot_runtime.extensions.mcp.client.server import McpServer
from copilot_runtime.telemetry import NO_TELEMETRY, Telemetry, find_current_span, semconv
from copilot_runtime.telemetry.span import inject_context

MAX_TOOLS = 500
"""Maximum number of tools read from one server."""

MAX_TOOL_BYTES = 4_000_000
"""Maximum size of all tools as JSON, in bytes: they are cached as long as the session lives."""

MAX_PAGES = 100
"""Maximum number of pages of tools read from one server."""

TOOLS_TTL = 60.0
"""Seconds after which tools are listed again, even without a change notification."""

CLOSE_TIMEOUT = 10.0
"""Timeout for closing a connection, in seconds. The package gives a process less."""

_LONGEST_ID = 128

_NO_REASON = "Server returned an error response"
"""The package's message for an HTTP status other than 2xx."""

T = TypeVar("T")
R = TypeVar("R", bound=BaseModel)

logger = logging.getLogger(__name__)


class SessionClosed(NetworkError):
    """The session ended before the request took effect, so it can be retried in a new session."""


class Session:
    """A connection that opens when it is created, and closes after `idle` seconds without use.

    Callers send requests from their own tasks. The connection must be opened and closed in the same
    task, so the session has its own task. `on_end` is called when it has ended.
    """

    def __init__(
        self,
        server: McpServer,
        headers: Mapping[str, str],
        environment: Mapping[str, str],
        *,
        idle: float,
        on_end: Callable[["Session"], None],
        limit: MessageLimit,
        problems: Problems,
        telemetry: Telemetry = NO_TELEMETRY,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._extensions = extensions or {}
        self._limit = limit
        self._problems = problems
        self._tool_problems: list[str] = []
        self._large_results = LargeResults()
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
        # an empty context: the task belongs to no run
        self.task = self.loop.create_task(
            self._run({**headers}), name=f"mcp:{server.label}", context=Context()
        )
        self.task.add_done_callback(self._finish)

    @property
    def alive(self) -> bool:
        """True if the session accepts requests."""
        return not (self._is_retired or self._over.is_set())

    @property
    def is_open(self) -> bool:
        """True if the connection is open."""
        return self.alive and self._ready.done()

    @property
    def has_tools(self) -> bool:
        """True if the list of tools is cached."""
        return self.is_open and self._tools is not None and self._listed_at > 0

    def retire(self) -> None:
        """Accept no new requests, and close when the current ones are done."""
        self._is_retired = True
        if not self.users:
            self.close()

    def close(self) -> None:
        """Close at once; current calls fail."""
        self._over.set()
        if not self._ready.done():
            self.task.cancel()

    @contextmanager
    def use(self) -> Generator[None, None, None]:
        """Mark the session as in use, which prevents the idle timeout."""
        self.users += 1
        try:
            yield
        finally:
            self.users -= 1
            self.last_used = self.loop.time()
            if self._is_retired and not self.users:
                self.close()

    async def ready(self) -> ClientSession:
        """Return the session once it is open. Raises the error that prevented this."""
        await asyncio.shield(self._ready)
        assert self._client is not None
        return self._client

    async def capabilities(self) -> ServerCapabilities:
        return (await self.ready()).server_capabilities or ServerCapabilities()

    async def tools(self) -> Sequence[Tool]:
        """Return the server's tools, from a cache that change notifications invalidate.

        After `TOOLS_TTL`, the next call lists them again.
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
        """List the tools, unless a concurrent caller has refreshed the cache."""
        async with self._tools_lock:
            if is_stale or self._tools is None or not self._listed_at:
                self._listed_at = self.loop.time()
                tools = await self.request(self._list_tools)
                self._tools = tools if self._listed_at else None  # may have changed meanwhile
                return tools
            return self._tools

    def _end_refreshing(self, task: "asyncio.Task[Sequence[Tool]]") -> None:
        self._refreshing = None
        retrieve_exception(task)  # on failure, the old list stays in use until the next call

    async def request(self, question: Callable[[ClientSession], Awaitable[T]]) -> T:
        """Send an idempotent request."""
        client = await self.ready()
        self._describe_session(client)
        with watch_requests() as status:
            try:
                async with asyncio.timeout(self.server.timeout):
                    return await question(client)
            except TimeoutError:
                raise self._build_timeout() from None
            except (MCPError, RuntimeError, ValidationError) as error:
                raise self._convert_error(error, status, is_idempotent=True) from error

    async def call(
        self, tool: str, values: Mapping[str, Any], *, is_idempotent: bool
    ) -> CallToolResult:
        """Call a tool.

        Raises `SessionClosed` if the tool certainly did not run, or if it is idempotent.
        """
        client = await self.ready()
        self._describe_session(client)
        timeout = self.server.timeout
        limit = asyncio.timeout(timeout)

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            logger.debug("%s: %s %g of %s: %s", self.server.label, tool, progress, total, message)
            with suppress(RuntimeError):  # the timeout has expired
                limit.reschedule(self.loop.time() + timeout)

        # MCP propagates the trace context in `_meta`, on any transport
        meta: Any = inject_context(find_current_span()) or None
        with watch_requests() as status:
            try:
                async with limit:
                    return await client.call_tool(
                        tool, {**values}, progress_callback=on_progress, meta=meta
                    )
            except TimeoutError:
                raise self._build_timeout() from None
            except (MCPError, RuntimeError, ValidationError) as error:
                raise self._convert_error(error, status, is_idempotent=is_idempotent) from error

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
        self, error: Exception, status: TransportStatus, *, is_idempotent: bool
    ) -> CopilotError:
        """Return our error for an exception; retire the session if it is unusable."""
        label = self.server.label
        if excess := status.excess or (self.server.uses_sse and self._status.excess):
            reason = f"is too large. {excess}"
            return LimitExceeded(
                f"The answer of the MCP server {label!r} {reason}",
                public=f"The answer of the MCP server {reason}",
            )
        if not isinstance(error, MCPError):
            return CopilotError(f"The MCP server {label!r} sent an invalid response.")
        if self._is_unknown_session(error, status.refusal):
            self.retire()
            return SessionClosed(
                f"The MCP server {label!r} does not know the session: {error.message}."
            )
        if error.code == CONNECTION_CLOSED and error.message == "Connection closed":
            self.retire()
            kind = SessionClosed if is_idempotent else NetworkError
            return kind(f"The connection to the MCP server {label!r} broke off.")
        if status.refusal is not None:
            self.retire()  # the session may be the cause
            if error.message == _NO_REASON:
                return NetworkError(
                    f"The MCP server {label!r} answered with status {status.refusal}."
                )
        return CopilotError(f"The MCP server {label!r} says: {error.message}")

    def _is_unknown_session(self, error: MCPError, status: int | None) -> bool:
        """Return whether the server rejected the request because the session is unknown."""
        if self._client is None or self._client.initialize_result is None:
            return False  # the server has no sessions
        return status == 404 or (status == 400 and "session" in error.message.lower())

    async def _list_tools(self, client: ClientSession) -> Sequence[Tool]:
        self._tool_problems = []
        tools = await self._read_tools(client)
        self._problems.set_tools(self.server, self._tool_problems)
        return tools

    async def _read_tools(self, client: ClientSession) -> Sequence[Tool]:
        """Return the tools of all pages; of several with one name, the first."""
        tools: dict[str, Tool] = {}
        room = MAX_TOOL_BYTES
        cursor: str | None = None
        cursors: set[str | None] = set()
        for _ in range(MAX_PAGES):
            try:
                page = await client.list_tools(params=PaginatedRequestParams(cursor=cursor))
            except (MCPError, RuntimeError, ValidationError) as error:
                if not tools:
                    raise
                self._report("tools/list", f"its list of tools breaks off: {error!s:.200}")
                return [*tools.values()]
            begins_again = page.next_cursor in cursors
            for tool in page.tools:
                if tool.name in tools:
                    if not begins_again:
                        problem = f"a second tool {tool.name!r:.100} is left out"
                        self._report("tools/list", problem)
                    continue
                room -= len(tool.model_dump_json())
                if room < 0:
                    self._report("tools/list", "it has very large tools; the first are read")
                    return [*tools.values()]
                tools[tool.name] = tool
            cursor = page.next_cursor
            if not cursor:
                return [*tools.values()]
            if begins_again:
                self._report("tools/list", "its list of tools begins again, and has no end")
                return [*tools.values()]
            cursors.add(cursor)
            if len(tools) >= MAX_TOOLS:
                break
        self._report("tools/list", "it has very many tools; the first are read")
        return [*tools.values()][:MAX_TOOLS]

    def _report(self, method: str, problem: str, is_left_out: bool = True) -> None:
        """Log what is malformed in the result of a method."""
        self._problems.log(self.server, problem)
        if is_left_out and method == "tools/list":
            self._tool_problems.append(problem)

    async def _run(self, headers: Mapping[str, str]) -> None:
        """Open the connection, wait for its end, and close it."""
        try:
            async with AsyncExitStack() as stack:
                try:
                    await self._open(stack, headers)
                    await self._wait_until_over()
                except Exception as error:
                    self._fail(self._describe(error))  # before closing, which may take long
                    raise
                finally:
                    self._over.set()
                    self._kill_timer = self.loop.call_later(CLOSE_TIMEOUT, self.task.cancel)
        except Exception as error:  # exception groups, too, from the transport's task groups
            self._fail(self._describe(error))

    async def _open(self, stack: AsyncExitStack, headers: Mapping[str, str]) -> None:
        async with asyncio.timeout(self.server.startup_timeout):
            link = open_transport(
                self.server,
                headers,
                self._status,
                self._over,
                environment=self._environment,
                limit=self._limit,
                report=partial(self._problems.log, self.server),
                results=self._large_results,
            )
            read, write = await stack.enter_async_context(link)
            stream = EndNotifyingStream(read, self._over)
            dispatcher = ItemwiseDispatcher(stream, write, self._large_results, self._report)
            session = Client(dispatcher, self._on_message, self._report, self._extensions)
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
        """Fail all pending requests: the session has ended, perhaps before `_run` started."""
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
        """Describe an error, without the URL that some exceptions repeat."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if self._status.refusal is not None:
            return f"it answered with status {self._status.refusal}"
        if isinstance(error, TimeoutError):
            return f"no answer within {self.server.startup_timeout:g} s"
        if isinstance(error, CopilotError):
            return f"{error.message} {error.hint or ''}".strip(". ")
        if isinstance(error, MCPError | OSError | RuntimeError | httpx2.TransportError):
            return str(error) or type(error).__name__
        return type(error).__name__


_US = Implementation(name="copilot-runtime", version="1")


_REPLY: TypeAdapter[SetAside | InputRequiredResult] = TypeAdapter(SetAside | InputRequiredResult)


class Client(ClientSession):
    """The package's session, which reads results item by item; open and close it in one task.

    `report` is called with a method, and then as `read_result` does.
    """

    def __init__(
        self,
        dispatcher: ItemwiseDispatcher,
        message_handler: MessageHandlerFnT,
        report: Callable[[str, str, bool], None],
        extensions: Mapping[str, Mapping[str, Any]],
    ) -> None:
        super().__init__(
            dispatcher=dispatcher,
            message_handler=message_handler,
            client_info=_US,
            extensions={name: dict(value) for name, value in extensions.items()} or None,
        )
        self._report = report

    async def send_request(
        self,
        request: ClientRequest | Request[Any, Any],
        result_type: type[R] | TypeAdapter[R],
        *args: Any,
        **options: Any,
    ) -> R:
        """Send a request and return its result, without what is malformed in it."""
        method = request.method
        if method not in RESULTS:
            return await super().send_request(request, result_type, *args, **options)
        reply = await super().send_request(request, _REPLY, *args, **options)
        if isinstance(reply, SetAside):
            result = read_result(method, reply.result, partial(self._report, method))
            return cast("R", result)
        return cast("R", reply)

    async def handshake(self) -> None:
        """Negotiate a version: by `initialize`, then by `discover` for stateless servers.

        In this order, because a stdio server may never answer an unknown method.
        """
        try:
            await self.initialize()
        except (MCPError, ValidationError) as error:
            try:
                await self.discover()
            except (MCPError, ValidationError):
                raise error from None  # it says why the server refused

    async def validate_tool_result(self, name: str, result: CallToolResult) -> None:
        """Accept every result.

        A model can use a result that violates the tool's schema, and a schema may contain a regular
        expression with exponential runtime.
        """


class EndNotifyingStream:
    """A stream of messages that sets an event at its end; it repairs messages.

    A session would notice the end only on its next request.
    """

    def __init__(self, stream: Any, ended: asyncio.Event) -> None:
        self._stream = stream
        self._ended = ended

    @property
    def last_context(self) -> Context | None:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        return repair_message(await self._stream.receive())

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "EndNotifyingStream":
        return self

    async def __anext__(self) -> Any:
        try:
            return repair_message(await self._stream.__anext__())
        except BaseException:
            self._ended.set()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)
