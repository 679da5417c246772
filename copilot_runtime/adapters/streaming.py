"""From a request that is sent to the events of its answer, shared by all who ask over HTTP.

An adapter brings a `Reader`, which knows its provider's events; what is here knows time limits,
refusals, answers that break off, and that a connection is closed when nobody listens any more.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress
from itertools import count
from typing import Protocol, TypeVar

from copilot_runtime.adapters.errors import Service, failure, request_id_in
from copilot_runtime.errors import CopilotError, NetworkError, RunStalled
from copilot_runtime.events import Event
from copilot_runtime.http.retries import backoff
from copilot_runtime.interfaces import Events

_T = TypeVar("_T")

FAILURE_TIME = 5.0
"""Seconds to read what an error says; its status is known before."""

DONE = b"[DONE]"
"""What OpenAI says last, and many a gateway whoever is asked behind it."""

_WHOLE = (b"{", b"[", b"<")
"""How what is no event begins: the answer of a proxy that does not stream, or an error that
Google throws between two events; and the page that a wrong base URL has."""


class Reply(Protocol):
    """An answer under way. `finished` says that nothing of interest follows."""

    status: int
    headers: Mapping[str, str]
    finished: bool

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def text(self) -> bytes: ...


class Splitter(Protocol):
    """Finds the payloads in a stream of bytes, as `sse.Frames` does."""

    understood: bool
    """True once the stream has shown that it is of the expected kind."""

    @property
    def between(self) -> bool:
        """True when no payload has begun that lacks its end."""
        ...

    def feed(self, block: bytes) -> list[bytes]: ...

    def finish(self) -> list[bytes]: ...


class Reader(Protocol):
    """Makes our events of a provider's payloads; knows how far its answer has come."""

    finished: bool
    """True when the model has said why it stopped."""
    done: bool
    """True when nothing follows."""
    failure: CopilotError | None
    """What the provider reported; to be raised after the events that came before it."""

    def read(self, payloads: list[bytes]) -> list[Event]:
        """Return the events of a block of payloads."""
        ...

    def end(self) -> list[Event]:
        """Return what is left to say once the answer is over, such as its `Usage`."""
        ...


async def answered(
    exchange: AbstractAsyncContextManager[Reply, bool | None],
    begin: Callable[[], tuple[Reader, Splitter]],
    service: Service,
    *,
    first_token_timeout: float | None = None,
    retries: int = 0,
    whole: bool = False,
) -> Events:
    """Enter the exchange and yield the events of its answer.

    `begin` makes what reads it. An answer that fails before its first event is asked for again,
    up to `retries` times, if that may help; the exchange must then let itself be entered again.
    `first_token_timeout` limits, in seconds, the time to the first event, retries included.
    `whole` says that the reader can take an answer that is no stream but one JSON text. Raises
    what `service` makes of refusals, and `NetworkError` for an answer that ended too early.
    """
    limit = _FirstToken(service.name, first_token_timeout)
    for attempt in count():
        events = _once(exchange, *begin(), service, limit, whole=whole)
        try:
            async with aclosing(events):
                async for event in events:
                    yield event
        except _BrokeOff as broken:
            if limit.begun or attempt >= retries:
                raise broken.error from broken.__cause__
        else:
            return
        await limit.held(asyncio.sleep(backoff(attempt)))


async def _once(
    exchange: AbstractAsyncContextManager[Reply, bool | None],
    reader: Reader,
    frames: Splitter,
    service: Service,
    limit: "_FirstToken",
    *,
    whole: bool,
) -> Events:
    """Yield the events of one answer. Raises `_BrokeOff` for one that might not break off again."""
    async with AsyncExitStack() as stack:
        reply = await limit.held(stack.enter_async_context(exchange))
        if not 200 <= reply.status < 300:
            body = await _text_of_failure(reply)
            raise failure(service, reply.status, body, reply.headers)
        blocks = aiter(reply)
        try:
            while (block := await limit.held(anext(blocks, None))) is not None:
                if whole and frames.between and block.lstrip()[:1] in _WHOLE:
                    payloads = [block + await reply.text()]
                    frames.understood = True
                else:
                    payloads = frames.feed(block)
                for event in reader.read(payloads):
                    limit.begun = True
                    yield event
                if reader.done or reader.failure:
                    break
            else:
                for event in reader.read(frames.finish()):
                    yield event
        except RunStalled:
            if not reader.finished:
                raise
        except NetworkError as error:
            if not reader.finished:  # else the answer is whole, whatever follows
                raise _BrokeOff(error) from error.__cause__
        reply.finished = reader.done
    if reader.failure:
        error = _told(reader.failure, reply.headers)
        understood = error.kind != f"{service.name}Error"  # else it is `service.unreadable`
        if isinstance(error, NetworkError) and understood:
            raise _BrokeOff(error) from error.__cause__
        raise error
    if not reader.finished:
        if not frames.understood:
            raise service.not_understood("It answered with something else.")
        raise _BrokeOff(_unfinished(service))
    for event in reader.end():
        yield event


class _BrokeOff(Exception):
    """An answer began and came to nothing, which says little about the next one."""

    def __init__(self, error: NetworkError) -> None:
        super().__init__(error)
        self.error = error


class _FirstToken:
    """The time limit that passes away with the first event. `begun` says that it has come."""

    def __init__(self, name: str, seconds: float | None) -> None:
        self.begun = False
        self._name = name
        self._seconds = seconds
        self._deadline = asyncio.get_running_loop().time() + (seconds or 0.0)

    async def held(self, waiting: Awaitable[_T]) -> _T:
        """Wait, but no longer than until the deadline."""
        if self.begun or self._seconds is None:
            return await waiting
        try:
            async with asyncio.timeout_at(self._deadline):
                return await waiting
        except TimeoutError:
            raise self._error() from None

    def _error(self) -> RunStalled:
        return RunStalled(
            f"{self._name} API error: No first word for {self._seconds:g} seconds.",
            kind="APIConnectionTimeoutError",
            hint="Raise first_token_timeout if the model may think that long.",
        )


def _told(error: CopilotError, headers: Mapping[str, str]) -> CopilotError:
    """Return the error with the id of the request in its hint, for the provider's support."""
    if request_id := request_id_in(headers):
        error.hint = " ".join(filter(None, [error.hint, f"Request id: {request_id}."]))
    return error


async def _text_of_failure(reply: Reply) -> bytes:
    with suppress(CopilotError, TimeoutError):  # the status says enough without the text
        async with asyncio.timeout(FAILURE_TIME):
            return await reply.text()
    return b""


def _unfinished(service: Service) -> NetworkError:
    return NetworkError(
        f"{service.name} API error: Premature close",
        kind=f"{service.name}Error",
        hint="The answer ended before the model had finished.",
    )
