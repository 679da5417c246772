"""The HTTP client for the package `a2a-sdk`, with the limits of all upstream requests."""

import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx

from copilot_runtime.base.errors import NetworkError
from copilot_runtime.http.client import Exchange, StreamResponse, Upstream
from copilot_runtime.http.connection import INFLATABLE

MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Maximum size of a stream's event, or of a response without a stream, in bytes."""

MAX_EVENT_VALUES = 50_000
"""Maximum number of JSON values in an event, counted by commas: so many take the package up to a
second."""

_HOP_BY_HOP = frozenset({"host", "connection", "content-length", "transfer-encoding"})
_BETWEEN_EVENTS = re.compile(rb"\r?\n\r?\n|\r\r")


class AnswerTooLarge(NetworkError):
    """An event or a response exceeds the size limit."""


@asynccontextmanager
async def open_client(upstream: Upstream) -> AsyncGenerator[httpx.AsyncClient]:
    """Yield a client for one task; when it closes, all its responses are closed.

    If the server is unreachable, silent or sends too much, requests raise the errors of `Upstream`.
    Redirects are not followed.
    """
    transport = _UpstreamTransport(upstream)
    # without `trust_env`, httpx builds no TLS context of its own; Upstream knows of proxies
    client = httpx.AsyncClient(transport=transport, trust_env=False, timeout=None)  # noqa: S113  # of Upstream
    async with client:
        yield client


class _UpstreamTransport(httpx.AsyncBaseTransport):
    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._exchanges = AsyncExitStack()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return the response once its headers have arrived."""
        body = await request.aread()
        headers = {k.lower(): v for k, v in request.headers.items()}
        headers = {name: value for name, value in headers.items() if name not in _HOP_BY_HOP}
        headers["accept-encoding"] = "identity"  # a compressing proxy would delay events
        exchange = Exchange(self._upstream, request.method, str(request.url), body or None, headers)
        reply = await self._exchanges.enter_async_context(exchange)
        names = reply.headers.items()
        if reply.headers.get("content-encoding") in INFLATABLE:
            names = [pair for pair in names if pair[0] != "content-encoding"]
        return httpx.Response(reply.status, headers=[*names], stream=_Body(reply))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._exchanges.aclose()


class _Body(httpx.AsyncByteStream):
    """The body of a response. Raises `AnswerTooLarge` if an event is too large."""

    def __init__(self, reply: StreamResponse) -> None:
        self._reply = reply

    async def __aiter__(self) -> AsyncIterator[bytes]:
        is_stream = "event-stream" in self._reply.headers.get("content-type", "")
        size = values = 0
        async for block in self._reply:
            event = block
            if is_stream and (ends := [*_BETWEEN_EVENTS.finditer(block)]):
                _check(size + ends[0].start(), values + block.count(b",", 0, ends[0].start()))
                size = values = 0
                event = block[ends[-1].end() :]
            size += len(event)
            values += event.count(b",")
            _check(size, values)
            yield block

    async def aclose(self) -> None:
        """Return the connection to the pool, or close it if the body was not read to its end."""
        self._reply.release()


def _check(size: int, values: int) -> None:
    if size > MAX_EVENT_BYTES or values > MAX_EVENT_VALUES:
        raise AnswerTooLarge(
            "The agent sent more at once than is read.",
            hint=f"An answer, or an event of a stream, may have {MAX_EVENT_BYTES} bytes and "
            f"{MAX_EVENT_VALUES} values.",
        )
