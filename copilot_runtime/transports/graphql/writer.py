"""Write to a client that may be slow, and notice one that has left."""

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType

from starlette.types import Receive, Send

logger = logging.getLogger(__name__)


class Stalled(Exception):
    """The client took nothing for too long."""


class Writer:
    """The body of one streamed response, written with the server's own backpressure.

    A client that takes nothing for `timeout` seconds is cut off: `write` then raises `Stalled`.
    One timer watches a whole response; a timer per chunk would cost more than the chunk.
    """

    def __init__(self, send: Send, timeout: float) -> None:
        self._send = send
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._since: float | None = None
        self._stalled = False
        self._timer = self._loop.call_later(timeout, self._check)

    async def write(self, body: bytes, *, more: bool = True) -> None:
        self._since = self._loop.time()
        try:
            await self._send({"type": "http.response.body", "body": body, "more_body": more})
        except asyncio.CancelledError:
            if self._stalled and self._task is not None:
                self._task.uncancel()
                raise Stalled from None
            raise
        self._since = None

    def close(self) -> None:
        self._timer.cancel()

    def _check(self) -> None:
        now = self._loop.time()
        since = now if self._since is None else self._since
        if now - since >= self._timeout and self._task is not None:
            logger.warning("Cut off a client that took nothing for %g seconds", self._timeout)
            self._stalled = True
            self._task.cancel()
        else:
            self._timer = self._loop.call_at(since + self._timeout, self._check)


class Presence:
    """Calls `gone` when the client leaves while the block is at work.

    Without it nobody notices: `send` to a client that left says nothing, and the model goes on
    costing tokens.
    """

    def __init__(self, receive: Receive, gone: Callable[[], None]) -> None:
        self._receive = receive
        self._gone = gone

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._watch())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._task.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone()
