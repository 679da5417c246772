"""An HTTP client for streams and JSON, with time limits, retries and errors that explain.

Requests go out by `pool.py`; by `aiohttp_client.py` where the environment names a proxy; by
`httpx_client.py` where the host application gave its own client. The connection of a response that
was read to its end is reused; any other is closed at once, so that no unread tokens are paid for.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import orjson

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, NetworkError, RunStalled
from copilot_runtime.config.checks import mask_credentials
from copilot_runtime.http.connection import (
    INFLATABLE,
    BufferedResponse,
    InflatedResponse,
    ServerDisconnected,
)
from copilot_runtime.http.errors import (
    MAX_WAIT,
    ConnectionFailed,
    InvalidAddress,
    UpstreamErrors,
    backoff,
    is_retryable,
    parse_retry_after,
)
from copilot_runtime.http.pool import ConnectionPool, encode_head, parse_target

if TYPE_CHECKING:
    import httpx

    from copilot_runtime.http.aiohttp_client import AiohttpClient

_KEEP_ALIVES = 5  # idle timeouts that a stream may last without an event
_MAX_BODY = 16 * 1024 * 1024
ERROR_BODY_TIMEOUT = 5.0
"""Seconds to read the body of an error response; its status is known before."""
_IDEMPOTENT = {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"}


class Response(Protocol):
    """A response whose headers have arrived, as returned by each of the clients."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def readany(self) -> bytes:
        """Return the bytes received since the last call; b"" at the end. Raises `OSError`."""
        ...

    def release(self, *, finished: bool) -> None:
        """Return the connection to the pool if the response is complete, else close it.

        With `finished`, only the end of the response is missing.
        """
        ...

    def close(self) -> None:
        """Close the connection. A pending read raises an error."""
        ...


class Upstream:
    """One service and its connections. `name` is its name in errors; times are in seconds.

    `idle_timeout` limits every silence: before the response starts, and between its chunks. A
    stream without any event, which only keeps its connection alive, ends after five times as long.
    `find_delay` decides by the status and the body of an error response whether its request is
    repeated: it returns the seconds to wait, 0 if the body names none, and None for a final one.
    With `http_client`, requests are sent by that client of the host application, with the same
    timeouts, retries and errors, and each response is read completely before it is returned: this
    is not for streams. Such a client is never closed here, and is only used on the event loop that
    it was created on. It decides about proxies and the resolution of addresses.
    """

    def __init__(
        self,
        name: str,
        *,
        connect_timeout: float = 10.0,
        idle_timeout: float = 120.0,
        max_retries: int = 2,
        http_client: "httpx.AsyncClient | None" = None,
        find_delay: Callable[[int, bytes], float | None] | None = None,
    ) -> None:
        self.name = name
        self.connect_timeout = connect_timeout
        self.idle_timeout = idle_timeout
        self.max_retries = max_retries
        self.errors = UpstreamErrors(name, connect_timeout, idle_timeout)
        self._pools: dict[asyncio.AbstractEventLoop, ConnectionPool] = {}
        self._aiohttp_clients: dict[asyncio.AbstractEventLoop, AiohttpClient] = {}
        self._proxies: dict[str, str | None] = {}
        self._http_client = http_client
        self._find_delay = find_delay

    async def open(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> "StreamResponse":
        """Send a request and return the response, which the caller releases."""
        return StreamResponse(await self.send(method, url, body, headers), self)

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> "Exchange":
        """Return the exchange to enter: `async with upstream.post(...) as reply`."""
        return Exchange(self, "POST", url, body, headers)

    def get(self, url: str, headers: Mapping[str, str]) -> "Exchange":
        """Return the exchange to enter, as `post` does."""
        return Exchange(self, "GET", url, None, headers)

    async def request_json(
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> "JsonResponse":
        """Send a request, retries included, and read the whole response, whatever its status."""
        data = None if body is None else orjson.dumps(body)
        sent = {"content-type": "application/json", "accept": "application/json", **(headers or {})}
        async with Exchange(self, method, url, data, sent) as reply:
            text = await reply.text()
        try:
            return JsonResponse(reply.status, reply.headers, orjson.loads(text))
        except orjson.JSONDecodeError:
            return JsonResponse(reply.status, reply.headers, None)

    async def aclose(self) -> None:
        """Close the connections of this event loop. The next request opens new ones."""
        running = asyncio.get_running_loop()
        for clients in (self._pools, self._aiohttp_clients):
            if (client := clients.pop(running, None)) is not None:
                await client.aclose()
        await self._drop_closed_loops()

    async def _drop_closed_loops(self) -> None:
        """Drop connections of closed event loops; their sockets are closed with the loops."""
        for clients in (self._pools, self._aiohttp_clients):
            for loop in [loop for loop in clients if loop.is_closed()]:
                await clients.pop(loop).aclose()

    async def send(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Response:
        """Return the response once its headers have arrived. Retries transient errors."""
        attempt, waited = 0, 0.0
        while True:
            wait: float | None = None
            try:
                response = await self._send_once(method, url, body, headers)
            except NetworkError as error:
                # the user has waited for the whole timeout already
                if attempt >= self.max_retries or isinstance(error, RunStalled):
                    raise
                # the server may have closed a pooled connection meanwhile: no reason to wait
                is_disconnect = isinstance(error.__cause__, ServerDisconnected)
                wait = 0.0 if attempt == 0 and is_disconnect else backoff(attempt)
            else:
                if response.status < 400:
                    return response
                if attempt < self.max_retries:
                    if self._find_delay is not None:
                        response = await _buffer_error(response)
                    wait = self._plan_retry(response, attempt)
                if wait is None or waited + wait > MAX_WAIT:
                    return response
                response.close()
            await asyncio.sleep(wait)
            attempt, waited = attempt + 1, waited + wait

    def _plan_retry(self, response: Response, attempt: int) -> float | None:
        """Return the seconds until a request is repeated, None if its response is final."""
        status, headers = response.status, response.headers
        delay = 0.0 if is_retryable(status, headers) else None
        if self._find_delay is not None and "x-should-retry" not in headers:
            body = response.body if isinstance(response, BufferedResponse) else b""
            delay = self._find_delay(status, body)
        if delay is None:
            return None
        named = parse_retry_after(headers)
        return (delay or backoff(attempt)) if named is None else named

    async def _send_once(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Response:
        if self._http_client is not None:
            from copilot_runtime.http.httpx_client import send_request

            return await send_request(
                *(self._http_client, method, url, body, headers),
                errors=self.errors,
                max_body=_MAX_BODY,
            )
        try:
            target = parse_target(url)
            proxy = self._proxy(url)
            if target is None or proxy is not None or method == "HEAD":
                return await self._send_by_aiohttp(method, url, body, headers, proxy)
            head = encode_head(method, target, headers, None if body is None else len(body))
            pool = self._pools.get(asyncio.get_running_loop()) or await self._open_pool()
            response = await pool.send(
                target.origin,
                head,
                body or b"",
                timeout=self.idle_timeout,
                is_idempotent=method in _IDEMPOTENT,
            )
        except InvalidAddress as error:
            raise ConfigurationFailed(
                f"{self.name} API error: {mask_credentials(url)!r} is not an address.",
                hint="A base URL looks like https://api.example.com/v1.",
            ) from error
        except ValueError as error:  # of headers, or of a password in the address beside them
            raise ConfigurationFailed(
                f"{self.name} API error: The request cannot be sent.", hint=f"{error}."
            ) from error
        except ConnectionFailed as error:
            raise self.errors.build_connection_error(error, url, error.failure) from error
        except TimeoutError as error:
            raise self.errors.build_timeout() from error
        except OSError as error:
            raise self.errors.build_connection_error(error, url, "closed") from error
        if response.headers.get("content-encoding") in INFLATABLE:
            return InflatedResponse(response)
        return response

    async def _open_pool(self) -> ConnectionPool:
        pool = self._pools[asyncio.get_running_loop()] = ConnectionPool(self.connect_timeout)
        await self._drop_closed_loops()
        return pool

    async def _send_by_aiohttp(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        proxy: str | None,
    ) -> Response:
        from copilot_runtime.http.aiohttp_client import AiohttpClient

        loop = asyncio.get_running_loop()
        client = self._aiohttp_clients.get(loop)
        if client is None:
            client = self._aiohttp_clients[loop] = AiohttpClient(self.connect_timeout)
            await self._drop_closed_loops()
        timeout = self.connect_timeout + self.idle_timeout
        return await client.send(method, url, body, headers, proxy=proxy, timeout=timeout)

    def _proxy(self, url: str) -> str | None:
        """Return the proxy the environment names for this address.

        aiohttp's `trust_env` looks it up in a thread on each request, and fails when `.netrc` has
        an entry beside our own Authorization header.
        """
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in self._proxies:
            from urllib.request import getproxies, proxy_bypass

            bypassed = proxy_bypass(parts.hostname or "")
            self._proxies[origin] = None if bypassed else getproxies().get(parts.scheme)
        return self._proxies[origin]


async def _buffer_error(response: Response) -> BufferedResponse:
    """Read the body of an error response, or as much of it as comes in time."""
    body = b""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(ERROR_BODY_TIMEOUT):
            while len(body) < _MAX_BODY and (block := await response.readany()):
                body += block
    response.release(finished=False)
    return BufferedResponse(response.status, response.headers, body)


@dataclass(frozen=True, slots=True)
class JsonResponse:
    """A complete response. `body` is None if it was empty or not JSON."""

    status: int
    headers: Mapping[str, str]
    body: Any


@dataclass(slots=True)
class Exchange:
    """A request and its connection: enter it to send the request, leave it to let go.

    Entered again, it sends the request again.
    """

    upstream: Upstream
    method: str
    url: str
    body: bytes | None
    headers: Mapping[str, str]
    _response: "StreamResponse | None" = field(init=False, default=None)

    async def __aenter__(self) -> "StreamResponse":
        response = await self.upstream.open(self.method, self.url, self.body, self.headers)
        self._response = response
        return response

    async def __aexit__(self, *_: object) -> None:
        if self._response is not None:
            self._response.release()


class StreamResponse:
    """A streamed response. Iterate over its bytes, in blocks as they arrive.

    Set `finished` if the rest is irrelevant: the connection then returns to the pool.
    """

    def __init__(self, response: Response, upstream: Upstream) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.finished = False
        self._response = response
        self._upstream = upstream
        self._read = response.readany
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        """When the reader began to wait for its last block."""
        self._waiting = False
        self._has_timed_out = False
        # one timer per response that checks a timestamp, not one per read
        self._timer = self._loop.call_later(upstream.idle_timeout, self._watch)

    def __aiter__(self) -> "StreamResponse":
        return self

    async def __anext__(self) -> bytes:
        self._since = self._loop.time()
        self._waiting = True
        try:
            block = await self._read()
        except OSError as error:
            if self._has_timed_out:
                raise self._upstream.errors.build_timeout() from None
            raise self._upstream.errors.build_premature_close(
                f"The connection broke off before the end of the answer ({type(error).__name__})."
            ) from error
        if not block:
            raise StopAsyncIteration
        self._waiting = False
        return block

    def check_silence(self, since: float | None) -> float:
        """Return since when no block has completed an event; call it after each such block.

        `since` is the result of the last call, or `None` after an event. Raises `RunStalled` when
        that is too long: providers and proxies send comments while an answer waits in a queue.
        """
        now = self._loop.time()
        if now - (since := since or now) > _KEEP_ALIVES * self._upstream.idle_timeout:
            raise self._upstream.errors.build_timeout(_KEEP_ALIVES)
        return since

    async def text(self, limit: int = _MAX_BODY) -> bytes:
        """Return the whole response body."""
        blocks: list[bytes] = []
        size = 0
        async for block in self:
            blocks.append(block)
            size += len(block)
            if size > limit:
                raise CopilotError(
                    f"{self._upstream.name} API error: The answer is larger than {limit} bytes.",
                    status_code=502,
                    hint="Is the base URL right? No such answer was expected.",
                )
        return b"".join(blocks)

    def release(self) -> None:
        """Return the connection to the pool if the response is complete, else close it at once."""
        self._timer.cancel()
        self._response.release(finished=self.finished)

    def _watch(self) -> None:
        now = self._loop.time()
        if not self._waiting:  # a slow reader is not a silent server
            self._since = now
        left = self._since + self._upstream.idle_timeout - now
        if left > 0:
            self._timer = self._loop.call_later(left, self._watch)
        else:
            self._has_timed_out = True
            self._response.close()
