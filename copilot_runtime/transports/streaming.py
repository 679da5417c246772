"""Write responses to slow clients, and detect clients that disconnect."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from types import MethodType
from typing import Any, Self
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.types import Message, Receive, Send

from copilot_runtime.api.bus import LogReader
from copilot_runtime.api.events import LAST, Event, TextMessageContent
from copilot_runtime.runtime.run import Log
from copilot_runtime.security.cors import RawHeaders

logger = logging.getLogger(__name__)

UNBUFFERED: RawHeaders = [
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx buffers responses unless this header marks a stream
    (b"content-encoding", b"identity"),  # compressing middleware does as well
]
"""Headers of a response that must not be buffered on its way."""


PIECE = 64 * 1024
"""Size of a write, in bytes: servers buffer everything they get, however slow the client is."""


_LONG_CHUNK = 10_000
"""Characters of a chunk that is not written before the client has room for it."""

Encode = Callable[[Sequence[Event]], bytes]
"""Returns what to write for a batch of events, perhaps nothing."""


class WriteTimeout(Exception):
    """The client accepted no data for too long."""


class Stream:
    """A response: entering it sends its `head`, the first write opens its body, the last closes it.

    Writes use the server's backpressure. If a client accepts no data for `timeout` seconds, its
    connection is aborted and `write` raises `WriteTimeout`. After `keep_alive` seconds of silence
    the `comment` is written, because proxies close idle connections; 0 disables that. One timer
    watches a whole response; a timer per chunk would cost more than the chunk.
    """

    _since: float | None = None
    """When the active write began, or `None`."""
    _stalled = False
    _flow: Any = None
    """uvicorn's state of a connection, whose `write_paused` says whether its `send` would wait."""
    _beat: asyncio.Task[None] | None = None

    def __init__(
        self,
        receive: Receive,
        send: Send,
        head: Message,
        timeout: float,
        *,
        keep_alive: float = 0.0,
        comment: bytes = b"",
    ) -> None:
        self._receive = receive
        self._send = send
        method: Any = send
        match method:  # uvicorn's does not suspend while the client has room
            case MethodType(__self__=object(flow=object(write_paused=bool()) as flow)):
                self._flow = flow
            case _:
                pass
        self._head = head
        self._timeout = timeout
        self._keep_alive = keep_alive
        self._comment = comment

    async def __aenter__(self) -> Self:
        await self._send(self._head)
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._last = self._loop.time()
        wait = min(self._keep_alive or self._timeout, self._timeout)
        self._timer = self._loop.call_later(wait, self._check)
        return self

    async def __aexit__(self, *failure: object) -> None:
        """Stop the timers."""
        self._task = None  # otherwise it keeps itself in memory by its last traceback
        self._timer.cancel()
        if self._beat is not None:
            self._beat.cancel()

    async def write(self, body: bytes, *, last: bool = False) -> None:
        """Write bytes. With `last`, the body ends after them."""
        if len(body) > PIECE:
            shared = share(body)
            body = shared.body
            for start in range(0, len(body), PIECE):
                await self.write(body[start : start + PIECE])
            if not last:
                return
            body = b""  # not written before the client has received most of the rest
        self._since = self._last = self._loop.time()
        try:
            await self._send({"type": "http.response.body", "body": body, "more_body": not last})
        except asyncio.CancelledError:
            if self._stalled and self._task is not None:
                self._task.uncancel()
                raise WriteTimeout from None
            raise
        self._since = None

    async def write_log(self, log: Log, encode: Encode) -> None:
        """Write a log to its end.

        A chunk of text is written when it is added to the log, without a task, if there is room.
        """
        if isinstance(log, LogReader) and self._flow is not None:
            log.sink = partial(self._write_chunk, encode)
        async with aclosing(log) as batches:
            async for _, events in batches:
                if body := encode(events):
                    await self.write(body, last=isinstance(events[-1], LAST))

    def _write_chunk(self, encode: Encode, event: Event) -> bool:
        """Write a chunk without a task, unless its write might wait. Returns whether it did."""
        if type(event) is not TextMessageContent or len(event.content) > _LONG_CHUNK:
            return False
        now = self._loop.time()
        if self._flow.write_paused or now < self._last + 0.001:  # a flood is written in batches
            return False
        if body := encode((event,)):
            self._last = now
            message = {"type": "http.response.body", "body": body, "more_body": True}
            sending: Any = self._send(message)
            try:
                sending.send(None)
            except StopIteration:  # it has returned without a wait
                return True
        return True

    async def write_each(self, frames: Iterable[bytes]) -> None:
        """Write many frames in few chunks.

        The next frame is only requested when the client has room.
        """
        parts: list[bytes] = []
        size = 0
        for frame in frames:
            if len(frame) > PIECE:  # written separately, as other responses may share it
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

    def _check(self) -> None:
        """Abort the connection of a stalled client; write a comment after a long silence."""
        now = self._loop.time()
        due = now + self._timeout
        if self._since is not None:
            due = self._since + self._timeout
            if due <= now and self._task is not None:
                logger.warning("Disconnected a client that was stalled for %g s", self._timeout)
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
        if self._since is not None:  # a body is being written in chunks
            return
        with suppress(OSError):  # a disconnect is detected elsewhere
            await self._send(
                {"type": "http.response.body", "body": self._comment, "more_body": True}
            )


class SharedBody:
    """A response body that is in memory once for all responses that write it."""

    __slots__ = ("__weakref__", "body")

    def __init__(self, body: bytes) -> None:
        self.body = body


_shared: WeakValueDictionary[bytes, SharedBody] = WeakValueDictionary()


def share(body: bytes) -> SharedBody:
    """Return an existing equal body, or register this one.

    Forty clients that open a thread with an answer of 12 MB, and read slowly, share one copy.
    """
    return _shared.setdefault(body, SharedBody(body))


def _take(parts: list[bytes]) -> bytes:
    """Join the parts and clear the list, so that a large list does not stay in memory."""
    body = b"".join(parts)
    parts.clear()
    return body


def abort_connection(receive: Receive) -> None:
    """Close the connection behind `receive` at once, and discard its unsent data.

    ASGI has no message for that, and the connection of an application that fails is closed only
    once everything has been sent: to a stalled client, never. So the server's transport is searched
    behind the middleware. If the server does not expose it, nothing happens.
    """
    cycle = find_cycle(receive)
    if cycle is not None:
        cycle.transport.abort()


def find_cycle(receive: Receive) -> Any:
    """Return a server's object for a request, with the `transport` of its connection, or `None`.

    The object is searched behind the middleware.
    """
    waiting: list[Any] = [receive]
    for _ in range(_MOST_WRAPPERS):
        if not waiting:
            return None
        found = waiting.pop()
        owner = getattr(found, "__self__", None)
        if callable(getattr(getattr(owner, "transport", None), "abort", None)):
            return owner
        if isinstance(owner, Request):  # Starlette's middleware passes on its own `receive`
            waiting.append(owner.receive)
        elif inspect.isfunction(found):
            with suppress(ValueError):  # an unbound closure variable
                waiting += filter(callable, inspect.getclosurevars(found).nonlocals.values())
    return None


_MOST_WRAPPERS = 100


async def run_until_disconnect(
    work: Coroutine[Any, Any, None], receive: Receive, gone: Callable[[], None] | None
) -> None:
    """Run `work`; when the client disconnects, call `gone`, or cancel the work if it is `None`.

    Without this a disconnect is not detected: `send` raises nothing then, and the model would go on
    costing tokens. The work has its own task, so that a chunk's write does not pass through all the
    frames of the server and its middleware.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.sleep(0)  # the work begins first: what ends it must find what it has begun
        await _wait_for_disconnect(receive, task)
        if not task.done():
            if gone is None:
                return
            gone()
        await task
    finally:
        if not task.done():  # cancelled, or the server is stopping
            task.cancel()
            await asyncio.wait((task,))


async def _wait_for_disconnect(receive: Receive, work: "asyncio.Task[None]") -> None:
    """Wait until the client disconnects, the server fails, or the work is done.

    Most servers report a disconnect after a complete response. For all others, the end of the work
    cancels `receive`, in the way of `asyncio.timeout`.
    """
    task = asyncio.current_task()
    assert task is not None, "a server calls its application in a task"
    cancellations = task.cancelling()
    is_waiting, is_interrupted = True, False

    def interrupt(_: "asyncio.Task[None]") -> None:
        nonlocal is_interrupted
        if is_waiting:
            is_interrupted = task.cancel()

    work.add_done_callback(interrupt)
    try:
        with suppress(Exception):  # a server that fails has lost its client
            while (await receive())["type"] != "http.disconnect":
                pass
    except asyncio.CancelledError:
        if not is_interrupted or task.cancelling() > cancellations + 1:
            raise
    finally:
        is_waiting = False
        if is_interrupted:
            task.uncancel()
