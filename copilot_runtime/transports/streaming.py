"""Write to a client that may be slow, and notice one that has left."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.types import Receive, Send

from copilot_runtime.security.cors import RawHeaders

logger = logging.getLogger(__name__)

UNBUFFERED: RawHeaders = [
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx holds back what it does not know to be a stream
    (b"content-encoding", b"identity"),  # so does a compressing middleware
]
"""Headers of a response that is to arrive as it is written."""


PIECE = 64 * 1024
"""Bytes that are written at once: a server takes all it is given, however slow its client is."""


class WriteTimeout(Exception):
    """The client took nothing for too long."""


class Stream:
    """The body of one response: the first write opens it, the last one closes it.

    It is written with the server's own backpressure. The connection of a client that takes nothing
    for `timeout` seconds is aborted: `write` then raises `WriteTimeout`. After `keep_alive`
    seconds of silence the `comment` is written, because proxies cut what is silent; 0 is never.
    One timer watches a whole response; a timer per chunk would cost more than the chunk.
    """

    def __init__(
        self,
        receive: Receive,
        send: Send,
        timeout: float,
        *,
        keep_alive: float = 0.0,
        comment: bytes = b"",
    ) -> None:
        self._receive = receive
        self._send = send
        self._timeout = timeout
        self._keep_alive = keep_alive
        self._comment = comment
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._since: float | None = None
        self._last = self._loop.time()
        self._stalled = False
        self._beat: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(min(keep_alive or timeout, timeout), self._check)

    async def write(self, body: bytes, *, last: bool = False) -> None:
        """Write some bytes. With `last`, the body ends after them."""
        if len(body) > PIECE:
            shared = share(body)
            body = shared.body
            for start in range(0, len(body), PIECE):
                await self.write(body[start : start + PIECE])
            if not last:
                return
            body = b""  # is not written before the client has taken most of the rest
        self._since = self._last = self._loop.time()
        try:
            await self._send({"type": "http.response.body", "body": body, "more_body": not last})
        except asyncio.CancelledError:
            if self._stalled and self._task is not None:
                self._task.uncancel()
                raise WriteTimeout from None
            raise
        self._since = None

    async def write_each(self, frames: Iterable[bytes]) -> None:
        """Write many frames in few pieces. No frame is asked for before the client has room."""
        parts: list[bytes] = []
        size = 0
        for frame in frames:
            if len(frame) > PIECE:  # it goes out alone, for others may hold the same
                large = share(frame)
                del frame
                if parts:
                    await self.write(_take(parts))
                await self.write(large.body)
                size = 0
                continue
            parts.append(frame)
            size += len(frame)
            if size >= PIECE:
                await self.write(_take(parts))
                size = 0
        if parts:
            await self.write(_take(parts))

    def close(self) -> None:
        """Stop watching."""
        self._task = None  # else it has itself, by the traceback of its end, and stays in memory
        self._timer.cancel()
        if self._beat is not None:
            self._beat.cancel()

    def _check(self) -> None:
        """Cut off a client that takes nothing; write a comment after a long silence."""
        now = self._loop.time()
        due = now + self._timeout
        if self._since is not None:
            due = self._since + self._timeout
            if due <= now and self._task is not None:
                logger.warning("Cut off a client that took nothing for %g seconds", self._timeout)
                abort_connection(self._receive)
                self._stalled = True
                self._task.cancel()
                return
        elif self._keep_alive:
            if now - self._last >= self._keep_alive:
                self._last = now
                self._beat = asyncio.ensure_future(self._write_comment())
            due = self._last + self._keep_alive
        self._timer = self._loop.call_at(due, self._check)

    async def _write_comment(self) -> None:
        if self._since is not None:  # within a body that goes out in pieces
            return
        with suppress(OSError):  # a client that left is noticed elsewhere
            await self._send(
                {"type": "http.response.body", "body": self._comment, "more_body": True}
            )


class SharedBody:
    """A body that is in memory once, however many write it."""

    __slots__ = ("__weakref__", "body")

    def __init__(self, body: bytes) -> None:
        self.body = body


_shared: WeakValueDictionary[bytes, SharedBody] = WeakValueDictionary()


def share(body: bytes) -> SharedBody:
    """Return the body with that of others in place of an equal one.

    Forty clients that open a thread with an answer of 12 MB, and read slowly, hold it once.
    """
    return _shared.setdefault(body, SharedBody(body))


def _take(parts: list[bytes]) -> bytes:
    """Join the parts and clear the list, which would keep a large one in memory."""
    body = b"".join(parts)
    parts.clear()
    return body


def abort_connection(receive: Receive) -> None:
    """Close the connection behind `receive` at once, and drop what waits to be sent on it.

    ASGI has no message for that, and the connection of an application that gives up is closed
    only once everything has been sent: to a client that takes nothing, never. So the server's
    transport is looked for behind the middleware. A server that shows none does as it likes.
    """
    cycle = find_cycle(receive)
    if cycle is not None:
        cycle.transport.abort()


def find_cycle(receive: Receive) -> Any:
    """Return what a server has of a request, with the `transport` of its connection; or None.

    It is looked for behind the middleware.
    """
    waiting: list[Any] = [receive]
    for _ in range(_MOST_WRAPPERS):
        if not waiting:
            return None
        found = waiting.pop()
        owner = getattr(found, "__self__", None)
        if callable(getattr(getattr(owner, "transport", None), "abort", None)):
            return owner
        if isinstance(owner, Request):  # as Starlette's middleware hands it on
            waiting.append(owner.receive)
        elif inspect.isfunction(found):
            with suppress(ValueError):  # a variable that has no value yet
                waiting += filter(callable, inspect.getclosurevars(found).nonlocals.values())
    return None


_MOST_WRAPPERS = 100


async def run_until_disconnect(
    work: Coroutine[Any, Any, None], receive: Receive, gone: Callable[[], None] | None
) -> None:
    """Do the work; call `gone` when the client leaves meanwhile, or give the work up.

    Without it nobody notices: `send` to a client that left raises nothing, and the model goes on
    costing tokens. The work has a task of its own, so that what is written for each chunk need
    not pass through all the frames of the server and its middleware.
    """
    task = asyncio.create_task(work)
    left = asyncio.create_task(_wait_for_disconnect(receive))
    try:
        await asyncio.wait((task, left), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            if gone is None:
                return
            gone()
        await task
    finally:
        left.cancel()
        left.add_done_callback(_ignore_exception)
        if not task.done():  # given up, or the server is about to stop
            task.cancel()
            await asyncio.wait((task,))


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _ignore_exception(left: "asyncio.Task[None]") -> None:
    """Take the exception of a server that failed while it waited for the client to leave."""
    if not left.cancelled():
        left.exception()
