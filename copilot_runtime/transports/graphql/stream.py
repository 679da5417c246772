"""Write payloads to a client that may be slow, and notice one that has left."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from starlette.types import Receive, Send

from copilot_runtime.jsontext import dumps
from copilot_runtime.transports.graphql.framing import Framing

logger = logging.getLogger(__name__)


class Stalled(Exception):
    """The client took nothing for too long."""


class Stream:
    """The body of one response: the first payload opens it, the last one closes it.

    It is written with the server's own backpressure. A client that takes nothing for `timeout`
    seconds is cut off: `send` then raises `Stalled`. One timer watches a whole response; a
    timer per chunk would cost more than the chunk.
    """

    def __init__(self, send: Send, framing: Framing, timeout: float) -> None:
        self._send = send
        self._framing = framing
        self._opening = framing.opening
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._since: float | None = None
        self._stalled = False
        self._timer = self._loop.call_later(timeout, self._check)

    async def send(self, *payloads: bytes, last: bool = False) -> None:
        """Write payloads of JSON bytes at once. With `last`, the body ends after them."""
        parts = [self._framing.part(payload) for payload in payloads]
        if self._opening:
            parts.insert(0, self._opening)
            self._opening = b""
        if last:
            parts.append(self._framing.closing)
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._since = self._loop.time()
        try:
            await self._send({"type": "http.response.body", "body": body, "more_body": not last})
        except asyncio.CancelledError:
            if self._stalled and self._task is not None:
                self._task.uncancel()
                raise Stalled from None
            raise
        self._since = None

    async def send_json(self, payload: Mapping[str, Any], *, last: bool = False) -> None:
        await self.send(dumps(payload), last=last)

    def close(self) -> None:
        """Stop watching."""
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


async def attended(
    work: Coroutine[Any, Any, None], receive: Receive, gone: Callable[[], None]
) -> None:
    """Do the work; call `gone` when the client leaves meanwhile.

    Without it nobody notices: `send` to a client that left says nothing, and the model goes on
    costing tokens. The work has a task of its own, so that what is written for each chunk need
    not pass through all the frames of the server and its middleware.
    """
    task = asyncio.create_task(work)
    left = asyncio.create_task(_departure(receive))
    try:
        await asyncio.wait((task, left), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            gone()
        await task
    finally:
        left.cancel()
        left.add_done_callback(_noted)
        if not task.done():  # the server is about to stop
            task.cancel()
            await asyncio.wait((task,))


async def _departure(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _noted(left: "asyncio.Task[None]") -> None:
    """Take the exception of a server that could not even say that the client has left."""
    if not left.cancelled():
        left.exception()
