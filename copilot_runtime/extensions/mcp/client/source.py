"""MCP servers as sources of actions: https://modelcontextprotocol.io."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from contextvars import Context
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from copilot_runtime.api.action import Action, ActionSource
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.concurrency import call, capture_result, retrieve_exception
from copilot_runtime.base.errors import MissingPackage, NetworkError
from copilot_runtime.extensions.mcp.client.server import AllowRule as AllowRule
from copilot_runtime.extensions.mcp.client.server import McpAllowlist as McpAllowlist
from copilot_runtime.extensions.mcp.client.server import McpServer as McpServer
from copilot_runtime.telemetry import NO_SPAN, Span
from copilot_runtime.telemetry.span import build_environment

if TYPE_CHECKING:
    from copilot_runtime.extensions.mcp.client.pool import Connection


SERVER_TIMEOUT = 25.0
"""Seconds that a run waits for a server; connecting continues for the next run."""

logger = logging.getLogger(__name__)

_MOST_DUPLICATES = 100
"""Maximum number of duplicate actions that are logged."""


def mcp_actions(*servers: McpServer) -> "McpActions":
    """Return servers as an action source, for `CopilotRuntime(actions=[...])` beside others."""
    return McpActions(McpAllowlist(servers=servers))


class McpActions(ActionSource):
    """The actions of all MCP servers of a request.

    A server that does not answer is skipped with a warning, and tried again by the next run. One
    that hangs delays a single run: later runs query it in the background, and skip it until it has
    answered. Of two actions with the same name, the first is used.
    """

    def __init__(self, servers: McpAllowlist) -> None:
        try:
            from copilot_runtime.extensions.mcp.client.pool import (
                SessionPool,  # imports the package mcp
            )
        except ImportError as error:
            raise MissingPackage("An MCP server", "mcp", "mcp") from error
        self._servers = servers
        self._pool = SessionPool()
        self._slow: SlowServers[Sequence[Action]] = SlowServers()
        self._duplicates: set[tuple[str, str]] = set()
        """Names and servers of duplicate actions that were already logged."""

    async def actions(self, run: RunInput) -> Sequence[Action]:
        """Return the actions for a request. Raises an error if a server is not allowed."""
        servers = self._servers.resolve(run)
        actions_by_name: dict[str, Action] = {}
        for server, actions in zip(
            servers, await asyncio.gather(*(self._load(one, run) for one in servers)), strict=True
        ):
            for action in actions:
                if action.name in actions_by_name:
                    self._warn_of_duplicate(action.name, server.label)
                else:
                    actions_by_name[action.name] = action
        return [*actions_by_name.values()]

    def list_problems(self) -> list[str]:
        """Return a sentence for each tool of the operator's servers that is left out."""
        return self._pool.problems.list_tools(self._servers.servers)

    def _warn_of_duplicate(self, name: str, label: str) -> None:
        """Log once that an action is a duplicate, up to a maximum number of actions."""
        key = (name, label)
        if key not in self._duplicates and len(self._duplicates) < _MOST_DUPLICATES:
            self._duplicates.add(key)
            logger.warning(
                "The action %r of %r is left out: there is one already. A prefix helps.",
                name,
                label,
            )

    async def aclose(self) -> None:
        """Close all connections and end all processes."""
        self._slow.close()
        await self._pool.aclose()

    async def _load(self, server: McpServer, run: RunInput) -> Sequence[Action]:
        try:
            async with asyncio.timeout(SERVER_TIMEOUT):
                headers = await capture_result(_headers(server, run))
        except TimeoutError:
            return _leave_out(server, f"Its headers took more than {SERVER_TIMEOUT:g} s.")
        if headers.error is not None:
            return _leave_out(server, headers.error)
        environment = build_environment(run.span) if server.command else None
        if run.span.telemetry is not None:
            self._pool.telemetry = run.span.telemetry
        connection = self._pool.connect(server, headers.value, environment)
        answer = await capture_result(
            self._slow.ask(
                connection.key, partial(_ask, connection), run.span, timeout=SERVER_TIMEOUT
            )
        )
        return answer.value if answer.error is None else _leave_out(server, answer.error)


def _ask(connection: "Connection", parent: Span) -> Coroutine[Any, Any, Sequence[Action]]:
    from copilot_runtime.extensions.mcp.client.tools import build_actions  # as above

    return build_actions(connection, parent)


def _leave_out(server: McpServer, reason: BaseException | str | None) -> Sequence[Action]:
    text = str(reason or "") or type(reason).__name__
    logger.warning("The MCP server %r is left out of this run. %s", server.label, text)
    return ()


async def _headers(server: McpServer, run: RunInput) -> Mapping[str, str]:
    return await call(server.headers, run) if callable(server.headers) else server.headers


QUICK = 1.0
"""A server that fails within so many seconds is queried again by the next run."""

_MOST_SLOW = 1000
"""Maximum number of slow servers to remember, per caller's headers."""

T = TypeVar("T")

Question = Callable[[Span], Coroutine[Any, Any, T]]
"""Queries a server, with the span of the run that waits for the answer."""


class SlowServers(Generic[T]):
    """Remembers servers that did not answer in time, and queries them in the background.

    Runs skip such a server until it has answered.
    """

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[T]] = {}
        """The last query of each slow server."""

    async def ask(self, key: Hashable, question: Question[T], span: Span, *, timeout: float) -> T:
        """Return the answer of the server with this key.

        Raises `NetworkError`, or the query's error.
        """
        last = self._tasks.pop(key, None)
        if last is not None and not _has_answered(last):
            self._ask_on(key, question, last)
            raise NetworkError("It was slow, and is asked in the background.")
        began = monotonic()
        task = _start(question, span)
        try:
            await asyncio.wait((task,), timeout=timeout)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if _has_answered(task):
            return task.result()
        if not task.done() or monotonic() - began > QUICK:
            self._ask_on(key, question, task)
        if not task.done():
            raise NetworkError(f"It did not answer within {timeout:g} s.")
        if task.cancelled():
            raise NetworkError("It was cancelled.")
        return task.result()

    def close(self) -> None:
        """Cancel all queries."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    def _ask_on(self, key: Hashable, question: Question[T], last: "asyncio.Task[T]") -> None:
        """Mark a server as slow; query it again if the last query failed."""
        if len(self._tasks) >= _MOST_SLOW:
            self._tasks.pop(next(iter(self._tasks))).cancel()
        self._tasks[key] = _start(question, NO_SPAN) if last.done() else last


def _start(question: Question[T], span: Span) -> "asyncio.Task[T]":
    # an empty context: the task may outlive the run
    loop = asyncio.get_running_loop()
    task = loop.create_task(question(span), name="mcp", context=Context())
    task.add_done_callback(retrieve_exception)
    return task


def _has_answered(task: "asyncio.Task[Any]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
