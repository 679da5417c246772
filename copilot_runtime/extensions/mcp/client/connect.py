"""The transports to an MCP server: stdio, streamable HTTP, and the older SSE."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import httpx2
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from copilot_runtime.extensions.mcp.client.event_stream import (
    EventStream,
    LimitedStream,
    MessageLimit,
)
from copilot_runtime.extensions.mcp.client.messages import LargeResults, MessageStream
from copilot_runtime.extensions.mcp.client.server import McpServer
from copilot_runtime.http.forward import forward_request
from copilot_runtime.security.addresses import resolve_public_addresses
from copilot_runtime.telemetry.span import find_current_span, inject_context

if TYPE_CHECKING:
    import httpx

DEFAULT_LIMIT = MessageLimit(4 * 1024 * 1024)
"""The maximum size of a message over HTTP."""

_UNLIMITED = MessageLimit(inf)
_NO_COMPRESSION = MessageLimit(0, "It is compressed, so its size is unknown")
_SSE_SILENCE = 3600.0
_SESSION_ID = "mcp-session-id"


class TransportStatus:
    """Statuses, limits and the session id of requests, which the package `mcp` does not report."""

    refusal: int | None = None
    """The last status that is not 2xx."""
    excess: str = ""
    """A sentence that names the limit that a response has exceeded."""
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
    limit: MessageLimit,
    report: Callable[[str], None],
    results: LargeResults,
) -> AbstractAsyncContextManager[tuple[Any, Any]]:
    """Return the two streams to a server, to be opened and closed in the same task.

    `over` is set when the transport ends without an error in either stream. A process gets the
    variables in `environment`, overridden by those of the server. `report` gets a sentence about
    each malformed event of a server, which is left out; `results` the large ones of requests.
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
    build = partial(
        _build_client, server, status=status, limit=limit, report=report, results=results
    )
    if server.uses_sse:

        def create_client(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = None,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            del timeout, auth  # set by `_build_client`
            client = build(headers or {}, silence=_SSE_SILENCE)
            client.event_hooks["response"].append(watch)
            return client

        async def watch(response: httpx2.Response) -> None:
            if response.request.method == "POST" and response.status_code >= 300:
                over.set()  # after this, the package sends nothing and raises nothing

        return sse_client(server.url, {**headers}, httpx_client_factory=create_client)
    return _open_streamable(server.url, build(headers, silence=server.max_time))


@asynccontextmanager
async def _open_streamable(
    url: str, client: httpx2.AsyncClient
) -> AsyncGenerator[tuple[Any, Any], None]:
    transport = streamable_http_client(url, http_client=client, max_sse_event_size=None)
    async with client, transport as streams:
        yield streams


def _build_client(
    server: McpServer,
    headers: Mapping[str, str],
    *,
    status: TransportStatus,
    silence: float,
    limit: MessageLimit,
    report: Callable[[str], None],
    results: LargeResults,
) -> httpx2.AsyncClient:
    async def add_context(request: httpx2.Request) -> None:
        # runs in the context of the task that calls a tool, as below
        request.headers.update(inject_context(find_current_span()))

    async def watch(response: httpx2.Response) -> None:
        is_post = response.request.method == "POST"
        # the package sends a message in the context of the task that wrote it
        own_status = _current_status.get() or status
        if is_post and response.status_code >= 300:
            own_status.refusal = response.status_code
        status.session_id = response.headers.get(_SESSION_ID) or status.session_id

        def note_excess(reason: str) -> None:
            own_status.excess = reason

        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        is_compressed = response.headers.get("content-encoding", "identity") != "identity"
        if is_compressed:
            response.stream = LimitedStream(response.stream, _NO_COMPRESSION)
        elif is_stream:
            response.stream = EventStream(
                response.stream,
                limit,
                results,
                is_answer=is_post,
                on_excess=note_excess,
                report=report,
            )
        else:
            body = LimitedStream(response.stream, limit, note_excess)
            response.stream = MessageStream(body, results, note_excess)

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


class _HostTransport(httpx2.AsyncBaseTransport):
    """Sends requests with the application's HTTP client, and leaves it open."""

    def __init__(self, client: "httpx.AsyncClient | httpx2.AsyncClient") -> None:
        self._client = client

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await forward_request(self._client, request)
        # httpx's response stream is no httpx2 stream
        body = LimitedStream(response.stream, _UNLIMITED)
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
