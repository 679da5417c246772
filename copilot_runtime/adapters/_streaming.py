"""From a request that is sent to the events of its answer, shared by all who ask over HTTP.

An adapter brings a `Reader`, which knows its provider's events; what is here knows time limits,
refusals, answers that break off, and that a connection is closed when nobody listens any more.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Protocol

from copilot_runtime.adapters._failures import Service, failure
from copilot_runtime.errors import CopilotError, NetworkError, RunStalled
from copilot_runtime.events import Event
from copilot_runtime.interfaces import Events

FAILURE_TIME = 5.0
"""Seconds to read what an error says; its status is known before."""


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
    reader: Reader,
    frames: Splitter,
    service: Service,
    *,
    first_token_timeout: float | None = None,
    whole: bool = False,
) -> Events:
    """Enter the exchange and yield the events of its answer.

    `first_token_timeout` limits, in seconds, the time to the first event, retries included.
    `whole` says that the reader can take an answer that is no stream but one JSON text. Raises
    what `service` makes of refusals, and `NetworkError` for an answer that ended too early.
    """
    limit = _FirstToken(service.name, first_token_timeout)
    async with AsyncExitStack() as stack:
        reply = await limit.entered(stack, exchange)
        if not 200 <= reply.status < 300:
            body = await _text_of_failure(reply)
            raise failure(service, reply.status, body, reply.headers)
        blocks = aiter(reply)
        first = True
        try:
            while (block := await limit.next(blocks)) is not None:
                if first and whole and block.lstrip()[:1] in (b"{", b"[", b"<"):
                    # some proxies answer whole, and a wrong base URL with HTML
                    payloads = [block + await reply.text()]
                    frames.understood = True
                else:
                    payloads = frames.feed(block)
                first = False
                for event in reader.read(payloads):
                    limit.passed = True
                    yield event
                if reader.done or reader.failure:
                    break
            else:
                for event in reader.read(frames.finish()):
                    yield event
        except NetworkError:
            if not reader.finished:  # then the answer is whole, whatever follows
                raise
        reply.finished = reader.done
    if reader.failure:
        raise reader.failure
    if not reader.finished:
        raise _unfinished(service, frames)
    for event in reader.end():
        yield event


class _FirstToken:
    """The time limit that passes away with the first event."""

    def __init__(self, name: str, seconds: float | None) -> None:
        self.passed = seconds is None
        self._name = name
        self._seconds = seconds or 0.0
        self._deadline = asyncio.get_running_loop().time() + self._seconds

    async def entered(
        self, stack: AsyncExitStack, exchange: AbstractAsyncContextManager[Reply, bool | None]
    ) -> Reply:
        if self.passed:
            return await stack.enter_async_context(exchange)
        try:
            async with asyncio.timeout_at(self._deadline):
                return await stack.enter_async_context(exchange)
        except TimeoutError:
            raise self._error() from None

    async def next(self, blocks: AsyncIterator[bytes]) -> bytes | None:
        """Return the next block, or None after the last."""
        if self.passed:
            return await anext(blocks, None)
        try:
            async with asyncio.timeout_at(self._deadline):
                return await anext(blocks, None)
        except TimeoutError:
            raise self._error() from None

    def _error(self) -> RunStalled:
        return RunStalled(
            f"{self._name} API error: No first word for {self._seconds:g} seconds.",
            kind="APIConnectionTimeoutError",
            hint="Raise first_token_timeout if the model may think that long.",
        )


async def _text_of_failure(reply: Reply) -> bytes:
    with suppress(CopilotError, TimeoutError):  # the status says enough without the text
        async with asyncio.timeout(FAILURE_TIME):
            return await reply.text()
    return b""


def _unfinished(service: Service, frames: Splitter) -> NetworkError:
    if not frames.understood:
        return service.not_understood("It answered with something else.")
    return NetworkError(
        f"{service.name} API error: Premature close",
        kind=f"{service.name}Error",
        hint="The answer ended before the model had finished.",
    )
