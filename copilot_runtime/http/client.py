"""An HTTP client for streams and JSON, with time limits, retries and errors that explain.

Only this file and `errors.py` use aiohttp, and only `httpx_client.py` uses httpx. A response that
was read to its end gives its connection back to the pool; any other is closed at once, so that no
tokens are paid for that are not read.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from copilot_runtime.errors import ConfigurationFailed, CopilotError, NetworkError, RunStalled
from copilot_runtime.http.errors import UpstreamErrors, classify_error, is_disconnect
from copilot_runtime.http.retries import backoff, is_retryable, parse_retry_after

if TYPE_CHECKING:
    import httpx
    from aiohttp import ClientResponse, ClientSession

    from copilot_runtime.http.httpx_client import BufferedResponse

    Response = ClientResponse | BufferedResponse

_MAX_WAIT = 30.0
_MAX_BODY = 16 * 1024 * 1024
_DRAIN_TIME = 1.0
_MAX_INLINE_BODY = 512 * 1024
_MAX_HEADER = 64 * 1024  # security policies of gateways are longer than aiohttp's 8 kB


class Upstream:
    """One service and its connections. `name` is its name in errors; times are in seconds.

    `idle_timeout` limits every silence: before the answer starts, and between two pieces of it.
    With `http_client`, requests go out by that client of the host application, within the same
    limits, retries and errors, and each answer is read whole before it is returned: it is for
    requests whose answers are not streams. Such a client is never closed here, and serves the event
    loop it was made in. What it connects to, by which proxy and address, is its own decision.
    """

    def __init__(
        self,
        name: str,
        *,
        connect_timeout: float = 10.0,
        idle_timeout: float = 120.0,
        max_retries: int = 2,
        http_client: "httpx.AsyncClient | None" = None,
    ) -> None:
        self.name = name
        self.connect_timeout = connect_timeout
        self.idle_timeout = idle_timeout
        self.max_retries = max_retries
        self.errors = UpstreamErrors(name, connect_timeout, idle_timeout)
        self._sessions: dict[asyncio.AbstractEventLoop, ClientSession] = {}
        self._proxies: dict[str, str | None] = {}
        self._draining: set[asyncio.Task[None]] = set()
        self._http_client = http_client

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> "Exchange":
        """Return the exchange to enter: `async with upstream.post(...) as reply`."""
        return Exchange(self, "POST", url, body, headers)

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
        loop = asyncio.get_running_loop()
        draining = [task for task in self._draining if task.get_loop() is loop]
        for task in draining:
            task.cancel()
        await asyncio.gather(*draining, return_exceptions=True)
        if session := self._sessions.pop(loop, None):
            await session.close()
        await self._close_dead_loops()

    async def send(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> "Response":
        """Return the response once its headers are here. Retries what may pass by itself."""
        attempt = 0
        while True:
            wait: float | None = None
            try:
                response = await self._send_once(method, url, body, headers)
            except NetworkError as error:
                # a time limit has cost the person enough already
                if attempt >= self.max_retries or isinstance(error, RunStalled):
                    raise
                # the server may have closed a pooled connection meanwhile: no reason to wait
                wait = 0.0 if attempt == 0 and is_disconnect(error) else backoff(attempt)
            else:
                if attempt < self.max_retries and is_retryable(response.status, response.headers):
                    wait = parse_retry_after(response.headers)
                    wait = backoff(attempt) if wait is None else wait
                if wait is None or wait > _MAX_WAIT:
                    return response
                response.close()
            await asyncio.sleep(wait)
            attempt += 1

    def drain(self, response: "Response") -> None:
        """Read the last bytes of a finished answer, so that its connection can be used again."""
        task = asyncio.create_task(_drain(response))
        self._draining.add(task)

        def release(task: asyncio.Task[None]) -> None:
            self._draining.discard(task)
            _release(response)  # not in the task: cancelled before its first step, it runs nothing

        task.add_done_callback(release)

    async def _send_once(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> "Response":
        if self._http_client is not None:
            from copilot_runtime.http.httpx_client import send_request

            return await send_request(
                *(self._http_client, method, url, body, headers),
                errors=self.errors,
                max_body=_MAX_BODY,
            )
        from aiohttp import ClientError, InvalidURL
        from yarl import URL

        session = await self._get_session()
        try:
            async with asyncio.timeout(self.connect_timeout + self.idle_timeout):
                return await session.request(
                    method,
                    # escapes stay as they are written: a signature may be of them
                    URL(url, encoded=True) if "%" in url else url,
                    # in one piece, aiohttp warns, a large body would hold up the event loop
                    data=BytesIO(body) if body and len(body) > _MAX_INLINE_BODY else body,
                    headers=headers,
                    proxy=self._proxy(url),
                    allow_redirects=False,
                )
        except InvalidURL as error:
            raise ConfigurationFailed(
                f"{self.name} API error: {url!r} is not an address.",
                hint="A base URL looks like https://api.example.com/v1.",
            ) from error
        except ValueError as error:  # of headers, or of a password in the address beside them
            raise ConfigurationFailed(
                f"{self.name} API error: The request cannot be sent.", hint=f"{error}."
            ) from error
        except (ClientError, OSError, TimeoutError) as error:
            raise self.errors.build_connection_error(error, url, classify_error(error)) from error

    async def _get_session(self) -> "ClientSession":
        """Return the connections of this event loop: those of another one are of no use here."""
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None or session.closed:
            from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

            session = self._sessions[loop] = ClientSession(
                connector=TCPConnector(limit=0),
                cookie_jar=DummyCookieJar(),  # what one person's answer sets is not for another's
                timeout=ClientTimeout(total=None, connect=self.connect_timeout),
                max_line_size=_MAX_HEADER,
                max_field_size=_MAX_HEADER,
            )
            await self._close_dead_loops()
        return session

    async def _close_dead_loops(self) -> None:
        """Close the sessions of event loops that have been closed."""
        for loop in [loop for loop in [*self._sessions] if loop.is_closed()]:
            if session := self._sessions.pop(loop, None):
                await session.close()

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


@dataclass(frozen=True, slots=True)
class JsonResponse:
    """A whole answer. `body` is None when it was empty or no JSON."""

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
        response = await self.upstream.send(self.method, self.url, self.body, self.headers)
        self._response = StreamResponse(response, self.upstream)
        return self._response

    async def __aexit__(self, *_: object) -> None:
        if self._response is not None:
            self._response.release()


class StreamResponse:
    """An answer as it arrives. Iterate for its bytes, in blocks as the network gives them.

    Set `finished` when nothing of interest follows: the connection is then kept for others.
    """

    def __init__(self, response: "Response", upstream: Upstream) -> None:
        from aiohttp import ClientError

        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.finished = False
        self._response = response
        self._upstream = upstream
        self._read = response.content.readany
        self._read_errors = (ClientError, OSError)
        self._loop = asyncio.get_running_loop()
        self._last_read_at = self._loop.time()
        self._waiting = False
        self._has_timed_out = False
        # one timer per answer that looks at a clock: aiohttp would set a new one for every read
        self._timer = self._loop.call_later(upstream.idle_timeout, self._watch)

    def __aiter__(self) -> "StreamResponse":
        return self

    async def __anext__(self) -> bytes:
        self._waiting = True
        try:
            block = await self._read()
        except self._read_errors as error:
            if self._has_timed_out:
                raise self._upstream.errors.build_timeout() from None
            raise self._upstream.errors.build_premature_close(
                f"The connection broke off before the end of the answer ({type(error).__name__})."
            ) from error
        if not block:
            raise StopAsyncIteration
        self._waiting = False
        self._last_read_at = self._loop.time()
        return block

    async def text(self, limit: int = _MAX_BODY) -> bytes:
        """Return the whole answer."""
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
        """Give the connection back if the answer is at its end, else close it at once."""
        self._timer.cancel()
        if self.finished and not self._response.content.at_eof():
            self._upstream.drain(self._response)
        else:
            _release(self._response)

    def _watch(self) -> None:
        now = self._loop.time()
        if not self._waiting:  # a slow reader is not a silent server
            self._last_read_at = now
        left = self._last_read_at + self._upstream.idle_timeout - now
        if left > 0:
            self._timer = self._loop.call_later(left, self._watch)
        else:
            self._has_timed_out = True
            self._response.close()


async def _drain(response: "Response") -> None:
    from aiohttp import ClientError

    with suppress(ClientError, OSError, TimeoutError):
        async with asyncio.timeout(_DRAIN_TIME):
            while await response.content.readany():
                pass


def _release(response: "Response") -> None:
    """Keep the connection for others if the answer was read to its end, else close it."""
    if response.content.at_eof():
        response.release()
    else:
        response.close()
