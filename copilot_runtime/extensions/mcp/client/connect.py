"""The transports to an MCP server: stdio, streamable HTTP, and the older SSE."""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING, Any

import httpx2
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from copilot_runtime.extensions.mcp.client.characters import WholeCharacterStream
from copilot_runtime.extensions.mcp.client.server import McpServer
from copilot_runtime.http.forward import forward_request
from copilot_runtime.security.addresses import resolve_public_addresses
from copilot_runtime.telemetry.span import find_current_span, inject_context

if TYPE_CHECKING:
    import httpx

MAX_MESSAGE = 4 * 1024 * 1024
"""Maximum size of a message over HTTP, in bytes."""

_SSE_SILENCE = 3600.0
_SESSION_ID = "mcp-session-id"


class TransportStatus:
    """The HTTP statuses of a session's responses, which the package `mcp` does not report."""

    refusal: int | None = None
    """The last status that is not 2xx."""
    session_id: str = ""


_current_status: ContextVar[TransportStatus | None] = ContextVar("asking", default=None)


@contextmanager
def watch_requests() -> Generator[TransportStatus, None, None]:
    """Yield the status of the requests sent in this context: sessions send several concurrently."""
    status = TransportStatus()
    token = _current_status.set(status)
    try:
        yield status
    finally:
        _current_status.reset(token)


def open_transport(
    server: McpServer,
    headers: Mapping[str, str],
    status: TransportStatus,
    over: asyncio.Event,
    *,
    environment: Mapping[str, str],
) -> AbstractAsyncContextManager[tuple[Any, Any]]:
    """Return the two streams to a server, to be opened and closed in the same task.

    `over` is set when the transport ends without an error in either stream. A process gets the
    variables in `environment`, overridden by those of the server.
    """
    if server.command:
        program, *args = server.command
        parameters = StdioServerParameters(
            command=program,
            args=args,
            env={**environment, **server.env},
            cwd=server.cwd,
            encoding_error_handler="replace",
        )
        return stdio_client(parameters, errlog=sys.stderr)
    if server.uses_sse:

        def create_client(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = None,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            del timeout, auth  # set by `_build_client`
            client = _build_client(server, headers or {}, status, silence=_SSE_SILENCE)
            client.event_hooks["response"].append(watch)
            return client

        async def watch(response: httpx2.Response) -> None:
            if response.request.method == "POST" and response.status_code >= 300:
                over.set()  # after this, the package sends nothing and raises nothing

        return sse_client(server.url, {**headers}, httpx_client_factory=create_client)
    return _open_streamable(server, headers, status)


@asynccontextmanager
async def _open_streamable(
    server: McpServer, headers: Mapping[str, str], status: TransportStatus
) -> AsyncGenerator[tuple[Any, Any], None]:
    client = _build_client(server, headers, status, silence=server.max_time)
    transport = streamable_http_client(
        server.url, http_client=client, max_sse_event_size=MAX_MESSAGE
    )
    async with client, transport as streams:
        yield streams


def _build_client(
    server: McpServer, headers: Mapping[str, str], status: TransportStatus, *, silence: float
) -> httpx2.AsyncClient:
    async def add_context(request: httpx2.Request) -> None:
        # runs in the context of the task that calls a tool, as below
        request.headers.update(inject_context(find_current_span()))

    async def watch(response: httpx2.Response) -> None:
        if response.request.method == "POST" and response.status_code >= 300:
            # the package sends a message in the context of the task that wrote it
            (_current_status.get() or status).refusal = response.status_code
        status.session_id = response.headers.get(_SESSION_ID) or status.session_id
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        is_compressed = response.headers.get("content-encoding", "identity") != "identity"
        if is_compressed:  # the decompressed size is unknown
            response.stream = _LimitedStream(response.stream, 0)
        elif not is_stream:  # each event is limited instead
            response.stream = _LimitedStream(response.stream, MAX_MESSAGE)
        if not is_compressed:
            response.stream = WholeCharacterStream(response.stream)

    return httpx2.AsyncClient(
        headers={**headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(server.startup_timeout, read=silence),
        transport=_build_transport(server),
        event_hooks={"request": [add_context], "response": [watch]},
    )


def _build_transport(server: McpServer) -> httpx2.AsyncBaseTransport | None:
    if server.http_client is not None:
        return _HostTransport(server.http_client)
    return _PinnedTransport() if server.public_only else None


class _LimitedStream(httpx2.AsyncByteStream):
    """A body that raises an error when it exceeds the size limit."""

    def __init__(self, body: Any, limit: float) -> None:
        self._body = body
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for block in self._body:
            size += len(block)
            if size > self._limit:
                # for this exception, the package fails only this request
                raise httpx2.StreamError(f"The answer has more than {self._limit} bytes.")
            yield block

    async def aclose(self) -> None:
        await self._body.aclose()


class _HostTransport(httpx2.AsyncBaseTransport):
    """Sends requests with the application's HTTP client, and leaves it open."""

    def __init__(self, client: "httpx.AsyncClient | httpx2.AsyncClient") -> None:
        self._client = client

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await forward_request(self._client, request)
        # httpx's response stream is no httpx2 stream
        body = _LimitedStream(response.stream, inf)
        return httpx2.Response(response.status_code, headers=response.headers.raw, stream=body)


class _PinnedTransport(httpx2.AsyncBaseTransport):
    """Resolves a host once, and connects only to its public addresses."""

    def __init__(self) -> None:
        self._inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        error: Exception | None = None
        for address in await resolve_public_addresses(url.host, port):
            pinned = httpx2.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,  # keeps the host name in the Host header
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": url.host},
            )
            try:
                return await self._inner.handle_async_request(pinned)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as failure:
                error = failure
        raise error or httpx2.ConnectError(f"{url.host} has no address.")

    async def aclose(self) -> None:
        await self._inner.aclose()
