"""HTTP to services we ask: streams and JSON, with time limits, retries and errors that explain.

Only this file knows aiohttp. A reply that was read to its end gives its connection back to the
pool; any other is closed at once, so that nobody pays for tokens nobody reads.
"""

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from copilot_runtime.errors import ConfigurationFailed, CopilotError, NetworkError, RunStalled

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

RETRIED = frozenset({408, 409, 429})
"""Statuses that may be different next time, besides everything from 500 on."""

_LONGEST_WAIT = 30.0
_LONGEST_BODY = 16 * 1024 * 1024
_DRAIN_TIME = 1.0


class Upstream:
    """One service and its connections. `name` is how errors call it; times are in seconds.

    `idle_timeout` limits every silence: before the answer starts, and between two pieces of it.
    """

    def __init__(
        self,
        name: str,
        *,
        connect_timeout: float = 10.0,
        idle_timeout: float = 120.0,
        max_retries: int = 2,
    ) -> None:
        self.name = name
        self.connect_timeout = connect_timeout
        self.idle_timeout = idle_timeout
        self.max_retries = max_retries
        self._session: ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._proxies: dict[str, str | None] = {}
        self._draining: set[asyncio.Task[None]] = set()

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> "Exchange":
        """Return the exchange to enter: `async with upstream.post(...) as reply`."""
        return Exchange(self, "POST", url, body, headers)

    async def request_json(
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> "JsonReply":
        """Ask once, retries included, and read the whole answer. Any status is an answer."""
        data = None if body is None else orjson.dumps(body)
        sent = {"content-type": "application/json", "accept": "application/json", **(headers or {})}
        async with Exchange(self, method, url, data, sent) as reply:
            text = await reply.text()
        try:
            return JsonReply(reply.status, reply.headers, orjson.loads(text))
        except orjson.JSONDecodeError:
            return JsonReply(reply.status, reply.headers, None)

    async def aclose(self) -> None:
        """Close all connections. The next request opens new ones."""
        session, self._session = self._session, None
        for task in self._draining:
            task.cancel()
        await asyncio.gather(*self._draining, return_exceptions=True)
        if session is not None:
            await session.close()

    async def send(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> "ClientResponse":
        """Return the response once its headers are here. Retries what may pass by itself."""
        attempt = 0
        while True:
            wait: float | None = None
            try:
                response = await self._attempt(method, url, body, headers)
            except NetworkError as error:
                # a time limit has cost the person enough already
                if attempt >= self.max_retries or isinstance(error, RunStalled):
                    raise
                # a pooled connection the server had closed meanwhile says nothing about the server
                wait = 0.0 if attempt == 0 and _was_closed(error) else _backoff(attempt)
            else:
                if attempt < self.max_retries and _may_pass(response):
                    wait = asked_wait(response.headers)
                    wait = _backoff(attempt) if wait is None else wait
                if wait is None or wait > _LONGEST_WAIT:
                    return response
                response.close()
            await asyncio.sleep(wait)
            attempt += 1

    def drain(self, response: "ClientResponse") -> None:
        """Read the last bytes of a finished answer, so that its connection can be used again."""
        task = asyncio.create_task(_drain(response))
        self._draining.add(task)

        def let_go(task: asyncio.Task[None]) -> None:
            self._draining.discard(task)
            _let_go(response)  # here, because a task cancelled before its first step has no finally

        task.add_done_callback(let_go)

    async def _attempt(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> "ClientResponse":
        from aiohttp import ClientError, InvalidURL

        session = self._open()
        try:
            async with asyncio.timeout(self.connect_timeout + self.idle_timeout):
                return await session.request(
                    method,
                    url,
                    data=body,
                    headers=headers,
                    proxy=self._proxy(url),
                    allow_redirects=False,
                )
        except InvalidURL as error:
            raise ConfigurationFailed(
                f"{self.name} API error: {url!r} is not an address.",
                hint="A base URL looks like https://api.example.com/v1.",
            ) from error
        except (ClientError, OSError, TimeoutError) as error:
            raise self._fault(error, url) from error

    def _open(self) -> "ClientSession":
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._loop is not loop:
            from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

            self._loop = loop
            self._session = ClientSession(
                connector=TCPConnector(limit=0),
                cookie_jar=DummyCookieJar(),  # what one person's answer sets is not for another's
                timeout=ClientTimeout(total=None, connect=self.connect_timeout),
            )
        return self._session

    def _proxy(self, url: str) -> str | None:
        """Return the proxy the environment names for this address.

        aiohttp's `trust_env` asks in a thread on each request, and fails when `.netrc` has
        an entry beside our own Authorization header.
        """
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in self._proxies:
            from urllib.request import getproxies, proxy_bypass

            bypassed = proxy_bypass(parts.hostname or "")
            self._proxies[origin] = None if bypassed else getproxies().get(parts.scheme)
        return self._proxies[origin]

    def _fault(self, error: Exception, url: str) -> NetworkError:
        """Say what went wrong before the answer, without telling clients where we asked."""
        import aiohttp

        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        match error:
            case aiohttp.ConnectionTimeoutError():
                return NetworkError(
                    f"{self.name} API error: Connection timed out.",
                    status_code=504,
                    kind="APIConnectionTimeoutError",
                    hint=f"{origin} took longer than {self.connect_timeout:g} s to accept a "
                    "connection. Check the base URL, the firewall and the proxy settings.",
                )
            case TimeoutError():
                return self.stalled()
            case aiohttp.ClientConnectorDNSError():
                reason = "Its host name was not found."
                hint = f"No address is known for {origin}. Check the base URL and the DNS."
            case aiohttp.ClientSSLError():
                reason = "No secure connection could be made."
                hint = (
                    f"TLS with {origin} failed: {error}. Check the certificate and the date, and "
                    "that https is right; SSL_CERT_FILE names a file with further authorities."
                )
            case aiohttp.ClientConnectorError() if isinstance(
                error.os_error, ConnectionRefusedError
            ):
                reason = "The connection was refused."
                hint = f"Nothing listens at {origin}. Check the base URL and that the server runs."
            case aiohttp.ClientConnectorError() | aiohttp.ClientHttpProxyError():
                reason = "It could not be reached."
                hint = f"Connecting to {origin} failed: {error}."
            case _:
                reason = "The server hung up without an answer."
                hint = f"{origin} closed the connection: {error}."
        return NetworkError(
            f"{self.name} API error: Connection error. {reason}",
            kind="APIConnectionError",
            hint=hint,
        )

    def stalled(self) -> RunStalled:
        """Return the error for a silence that took too long."""
        return RunStalled(
            f"{self.name} API error: No answer for {self.idle_timeout:g} seconds.",
            kind="APIConnectionTimeoutError",
            hint="The upstream went silent. Raise idle_timeout if the model may think that long.",
        )

    def cut(self, hint: str) -> NetworkError:
        """Return the error for an answer that ended before its end."""
        return NetworkError(
            f"{self.name} API error: Premature close", kind=f"{self.name}Error", hint=hint
        )


@dataclass(frozen=True, slots=True)
class JsonReply:
    """A whole answer. `body` is None when it was empty or no JSON."""

    status: int
    headers: Mapping[str, str]
    body: Any


class Exchange:
    """A request under way, and its connection: enter it for the reply, leave it to let go."""

    def __init__(
        self,
        upstream: Upstream,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> None:
        self._upstream = upstream
        self._request = (method, url, body, headers)
        self._reply: Reply | None = None

    async def __aenter__(self) -> "Reply":
        response = await self._upstream.send(*self._request)
        self._reply = Reply(response, self._upstream)
        return self._reply

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._reply is not None:
            self._reply.let_go()


class Reply:
    """An answer as it arrives. Iterate for its bytes, in blocks as the network gives them.

    Set `finished` when nothing of interest follows: the connection is then kept for others.
    """

    def __init__(self, response: "ClientResponse", upstream: Upstream) -> None:
        from aiohttp import ClientError

        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.finished = False
        self._response = response
        self._upstream = upstream
        self._read = response.content.readany
        self._faults = (ClientError, OSError)
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._waiting = False
        self._stalled = False
        # one timer per answer that looks at a clock: aiohttp would set a new one for every read
        self._timer = self._loop.call_later(upstream.idle_timeout, self._watch)

    def __aiter__(self) -> "Reply":
        return self

    async def __anext__(self) -> bytes:
        self._waiting = True
        try:
            block = await self._read()
        except self._faults as error:
            if self._stalled:
                raise self._upstream.stalled() from None
            raise self._upstream.cut(f"The connection broke off: {error}.") from error
        if not block:
            raise StopAsyncIteration
        self._waiting = False
        self._heard = self._loop.time()
        return block

    async def text(self, limit: int = _LONGEST_BODY) -> bytes:
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
                )
        return b"".join(blocks)

    def let_go(self) -> None:
        """Give the connection back if the answer is at its end, else close it at once."""
        self._timer.cancel()
        if self.finished and not self._response.content.at_eof():
            self._upstream.drain(self._response)
        else:
            _let_go(self._response)

    def _watch(self) -> None:
        now = self._loop.time()
        if not self._waiting:  # a slow reader is not a silent server
            self._heard = now
        left = self._heard + self._upstream.idle_timeout - now
        if left > 0:
            self._timer = self._loop.call_later(left, self._watch)
        else:
            self._stalled = True
            self._response.close()


async def _drain(response: "ClientResponse") -> None:
    from aiohttp import ClientError

    with suppress(ClientError, OSError, TimeoutError):
        async with asyncio.timeout(_DRAIN_TIME):
            while await response.content.readany():
                pass


def _let_go(response: "ClientResponse") -> None:
    """Keep the connection for others if the answer was read to its end, else close it."""
    if response.content.at_eof():
        response.release()
    else:
        response.close()


def _was_closed(error: NetworkError) -> bool:
    from aiohttp import ServerDisconnectedError

    return isinstance(error.__cause__, ServerDisconnectedError)


def _may_pass(response: "ClientResponse") -> bool:
    wish = response.headers.get("x-should-retry")
    if wish in ("true", "false"):
        return wish == "true"
    return response.status in RETRIED or response.status >= 500


def _backoff(attempt: int) -> float:
    longest = min(0.5 * 2**attempt, 8.0)
    return longest * random.uniform(0.75, 1.0)  # noqa: S311 - spreads retries, guards nothing


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds the server asks us to wait, if it does."""
    if milliseconds := _number(headers.get("retry-after-ms")):
        return milliseconds / 1000
    asked = headers.get("retry-after", "")
    seconds = _number(asked)
    if seconds is None and asked:
        with suppress(ValueError, TypeError):
            seconds = parsedate_to_datetime(asked).timestamp() - time()
    return None if seconds is None or not seconds >= 0 else seconds


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
