"""Send a request with aiohttp: through a proxy, or to an address that needs quoting or a login.

This module imports aiohttp: `client.py` imports it only for such requests.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO

from aiohttp import (
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientError,
    ClientHttpProxyError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    InvalidURL,
    ServerDisconnectedError,
    TCPConnector,
)
from yarl import URL

from copilot_runtime.http.connection import MAX_HEAD, ClientPayloadError, ServerDisconnected
from copilot_runtime.http.errors import ConnectionFailed, Failure, InvalidAddress, find_failure

_DRAIN_TIME = 1.0
_MAX_INLINE_BODY = 512 * 1024


class AiohttpClient:
    """The connections of one event loop, with the methods of `ConnectionPool`."""

    def __init__(self, connect_timeout: float) -> None:
        self._draining: set[asyncio.Task[None]] = set()
        self._session = ClientSession(
            connector=TCPConnector(limit=0),
            cookie_jar=DummyCookieJar(),  # users must not share cookies
            timeout=ClientTimeout(total=None, connect=connect_timeout),
            max_line_size=MAX_HEAD,
            max_field_size=MAX_HEAD,
        )

    async def send(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        proxy: str | None,
        timeout: float,
    ) -> "AiohttpResponse":
        """Send a request; return its response once the headers have arrived.

        Raises `InvalidAddress`, `ConnectionFailed`, and `OSError`.
        """
        try:
            async with asyncio.timeout(timeout):
                response = await self._session.request(
                    method,
                    # keep escapes as they are: a signature may cover them
                    URL(url, encoded=True) if "%" in url else url,
                    # aiohttp warns that a large body in one piece would block the event loop
                    data=BytesIO(body) if body and len(body) > _MAX_INLINE_BODY else body,
                    headers=headers,
                    proxy=proxy,
                    allow_redirects=False,
                )
        except InvalidURL as error:
            raise InvalidAddress from error
        except ServerDisconnectedError as error:
            raise ServerDisconnected(str(error)) from error
        except ClientError as error:
            raise ConnectionFailed(_classify(error), error) from error
        return AiohttpResponse(response, self._draining)

    async def aclose(self) -> None:
        """Close all connections, also active ones."""
        loop = asyncio.get_running_loop()
        draining = [task for task in self._draining if task.get_loop() is loop]
        for task in draining:
            task.cancel()
        await asyncio.gather(*draining, return_exceptions=True)
        await self._session.close()


class AiohttpResponse:
    """A response of aiohttp, with the methods of `connection.Response`."""

    def __init__(self, response: ClientResponse, draining: set[asyncio.Task[None]]) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._draining = draining

    async def readany(self) -> bytes:
        try:
            return await self._response.content.readany()
        except ClientError as error:
            raise ClientPayloadError(str(error)) from error

    def release(self, *, finished: bool) -> None:
        if self._response.content.at_eof():
            self._response.release()
        elif finished:
            self._drain()
        else:
            self.close()

    def close(self) -> None:
        self._response.close()

    def _drain(self) -> None:
        """Read the last bytes of a finished response, so that its connection can be used again."""
        task = asyncio.create_task(self._read_rest())
        self._draining.add(task)

        def release(task: asyncio.Task[None]) -> None:
            self._draining.discard(task)
            # not in the task: cancelled before its first step, it runs nothing
            self.release(finished=False)

        task.add_done_callback(release)

    async def _read_rest(self) -> None:
        with suppress(ClientError, OSError, TimeoutError):
            async with asyncio.timeout(_DRAIN_TIME):
                while await self._response.content.readany():
                    pass


def _classify(error: ClientError) -> Failure:
    match error:
        case ConnectionTimeoutError():
            return "connect timeout"
        case ClientConnectorDNSError():
            return "dns"
        case ClientConnectorError() | ClientHttpProxyError():
            return find_failure(error)
        case _:
            return "closed"
