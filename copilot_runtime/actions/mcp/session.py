"""One session with an MCP server, in a task of its own, used by any number of runs at once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from contextvars import Context
from typing import Any, TypeVar

import httpx2
from mcp import ClientSession, MCPError
from mcp.client.session import IncomingMessage
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolResult,
    PaginatedRequestParams,
    ServerCapabilities,
    Tool,
    ToolListChangedNotification,
)
from pydantic import ValidationError

from copilot_runtime.actions.mcp.client import Client, Watched
from copilot_runtime.actions.mcp.connect import Seen, linked, watching
from copilot_runtime.actions.mcp.server import McpServer
from copilot_runtime.errors import CopilotError, NetworkError, RunStalled

MOST_TOOLS = 500
"""Tools that are read of one server."""

REFRESH = 60.0
"""Seconds after which a server is asked for its tools again even if it tells of no change."""

LONGEST_END = 10.0
"""Seconds that a server may take to say goodbye. A process gets less from the package."""

_NO_REASON = "Server returned an error response"
"""What the package says instead of a status."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Ended(NetworkError):
    """The session was over and nothing was done: who asks again gets a new one."""


class Session:
    """A connection that begins when it is made, and ends when nobody needs it for `idle` seconds.

    What is asked goes out from the task that asks; only entering and leaving the connection must
    happen in one task, and that one is ours. `ended` is called when it has ended.
    """

    def __init__(
        self,
        server: McpServer,
        headers: Mapping[str, str],
        *,
        idle: float,
        ended: Callable[["Session"], None],
    ) -> None:
        self.server = server
        self.loop = asyncio.get_running_loop()
        self.needed = 0
        self.used = self.loop.time()
        self._idle = idle
        self._ended = ended
        self._seen = Seen()
        self._over = asyncio.Event()
        self._retired = False
        self._ready: asyncio.Future[None] = self.loop.create_future()
        self._ready.add_done_callback(_taken)
        self._listing = asyncio.Lock()
        self._tools: Sequence[Tool] | None = None
        self._listed = 0.0
        self._client: Client | None = None
        self._last_word: asyncio.TimerHandle | None = None
        # of no run in particular, so it keeps no context of one
        self.task = self.loop.create_task(
            self._live({**headers}), name=f"mcp:{server.label}", context=Context()
        )
        self.task.add_done_callback(self._finish)

    @property
    def alive(self) -> bool:
        """Whether it is good for another question."""
        return not (self._retired or self._over.is_set())

    def retire(self) -> None:
        """End it as soon as those are done who use it now."""
        self._retired = True
        if not self.needed:
            self.close()

    def close(self) -> None:
        """End it, without waiting; calls under way break off."""
        self._over.set()
        if not self._ready.done():
            self.task.cancel()

    @contextmanager
    def use(self) -> Generator[None, None, None]:
        """Keep it from ending for lack of use."""
        self.needed += 1
        try:
            yield
        finally:
            self.needed -= 1
            self.used = self.loop.time()
            if self._retired and not self.needed:
                self.close()

    async def ready(self) -> ClientSession:
        """Return the session once it is open. Raises what keeps it from opening."""
        await asyncio.shield(self._ready)
        assert self._client is not None
        return self._client

    async def capabilities(self) -> ServerCapabilities:
        return (await self.ready()).server_capabilities or ServerCapabilities()

    async def tools(self) -> Sequence[Tool]:
        """Return the server's tools, as they are now as far as it tells."""
        async with self._listing:
            if self._tools is None or self._is_old():
                self._listed = self.loop.time()
                tools = await self.asked(self._all_tools)
                self._tools = tools if self._listed else None  # they may have changed meanwhile
                return tools
            return self._tools

    async def asked(self, question: Callable[[ClientSession], Awaitable[T]]) -> T:
        """Ask for something that changes nothing."""
        client = await self.ready()
        with watching() as seen:
            try:
                async with asyncio.timeout(self.server.timeout):
                    return await question(client)
            except TimeoutError:
                raise self._silence() from None
            except (MCPError, RuntimeError, ValidationError) as error:
                raise self._failure(error, seen.refusal, harmless=True) from error

    async def call(self, tool: str, values: Mapping[str, Any], *, harmless: bool) -> CallToolResult:
        """Run a tool. Raises `Ended` when it surely did not run, or may without harm run twice."""
        client = await self.ready()
        patience = self.server.timeout
        limit = asyncio.timeout(patience)

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            logger.debug("%s: %s %g of %s: %s", self.server.label, tool, progress, total, message)
            with suppress(RuntimeError):  # it came too late
                limit.reschedule(self.loop.time() + patience)

        with watching() as seen:
            try:
                async with limit:
                    return await client.call_tool(tool, {**values}, progress_callback=progressed)
            except TimeoutError:
                raise self._silence() from None
            except (MCPError, RuntimeError, ValidationError) as error:
                raise self._failure(error, seen.refusal, harmless=harmless) from error

    def _silence(self) -> RunStalled:
        label, patience = self.server.label, self.server.timeout
        return RunStalled(f"The MCP server {label!r} said nothing for {patience:g} s.")

    def _failure(self, error: Exception, status: int | None, *, harmless: bool) -> CopilotError:
        """Return what an exception means for who asked; retire if nothing better can come."""
        label = self.server.label
        if not isinstance(error, MCPError):
            return CopilotError(f"The MCP server {label!r} answered with what is no answer.")
        if self._is_forgotten(error, status):
            self.retire()
            return Ended(f"The MCP server {label!r} does not know the session: {error.message}.")
        if error.code == CONNECTION_CLOSED and error.message == "Connection closed":
            self.retire()
            kind = Ended if harmless else NetworkError
            return kind(f"The connection to the MCP server {label!r} broke off.")
        if status is not None:
            self.retire()  # it may be the session that it does not like
            if error.message == _NO_REASON:
                return NetworkError(f"The MCP server {label!r} answered with status {status}.")
        return CopilotError(f"The MCP server {label!r} says: {error.message}")

    def _is_forgotten(self, error: MCPError, status: int | None) -> bool:
        """Say whether the server knows our session no more; then it did nothing."""
        if self._client is None or self._client.initialize_result is None:
            return False  # there are no sessions
        return status == 404 or (status == 400 and "session" in error.message.lower())

    def _is_old(self) -> bool:
        return not self._listed or self.loop.time() - self._listed > REFRESH

    async def _all_tools(self, client: ClientSession) -> Sequence[Tool]:
        tools: list[Tool] = []
        cursor: str | None = None
        for _ in range(MOST_TOOLS):
            page = await client.list_tools(params=PaginatedRequestParams(cursor=cursor))
            tools += page.tools
            cursor = page.next_cursor
            if not cursor:
                return tools
            if len(tools) >= MOST_TOOLS:
                break
        logger.warning("%r has very many tools; the first are read.", self.server.label)
        return tools[:MOST_TOOLS]

    async def _live(self, headers: Mapping[str, str]) -> None:
        """Open the connection, wait until it is over, and close it."""
        try:
            async with AsyncExitStack() as stack:
                try:
                    await self._open(stack, headers)
                    await self._until_over()
                except Exception as error:
                    self._fail(self._reason(error))  # who waits need not wait for the end as well
                    raise
                finally:
                    self._over.set()
                    self._last_word = self.loop.call_later(LONGEST_END, self.task.cancel)
        except Exception as error:  # groups too: of the transport's own tasks
            self._fail(self._reason(error))

    async def _open(self, stack: AsyncExitStack, headers: Mapping[str, str]) -> None:
        async with asyncio.timeout(self.server.patience):
            link = linked(self.server, headers, self._seen, self._over)
            read, write = await stack.enter_async_context(link)
            session = Client(Watched(read, self._over), write, self._heard)
            self._client = await stack.enter_async_context(session)
            await self._client.greet()
        self._seen.refusal = None
        self._ready.set_result(None)

    async def _until_over(self) -> None:
        while not self._over.is_set():
            left = self._idle if self.needed else self.used + self._idle - self.loop.time()
            if left <= 0:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), left)

    async def _heard(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._listed = 0.0

    def _finish(self, task: asyncio.Task[None]) -> None:
        """See that nobody waits for what has ended; `_live` may never have begun."""
        self._over.set()
        if self._last_word is not None:
            self._last_word.cancel()
        if not self._ready.done():
            self._fail("it was given up")
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("The session with %r failed.", self.server.label, exc_info=error)
        self._ended(self)

    def _fail(self, reason: str) -> None:
        if not self._ready.done():
            self._ready.set_exception(NetworkError(f"It cannot be reached: {reason}."))
        else:
            logger.info("The session with %r ended: %s", self.server.label, reason)

    def _reason(self, error: BaseException) -> str:
        """Say what went wrong, without the address that some exceptions repeat."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if self._seen.refusal is not None:
            return f"it answered with status {self._seen.refusal}"
        if isinstance(error, TimeoutError):
            return f"no answer within {self.server.patience:g} s"
        if isinstance(error, CopilotError):
            return f"{error.message} {error.hint or ''}".strip(". ")
        if isinstance(error, MCPError | OSError | httpx2.TransportError):
            return str(error) or type(error).__name__
        return type(error).__name__


def _taken(future: "asyncio.Future[None]") -> None:
    """Look at the exception, so that one nobody waited for is not complained about."""
    if not future.cancelled():
        future.exception()
