"""Send a request with the `httpx.AsyncClient` of a host application, and buffer its response.

This module imports httpx: `client.py` imports it only when such a client was given.
"""

from collections.abc import Mapping
from contextlib import aclosing

import httpx

from copilot_runtime.base.errors import ConfigurationFailed, NetworkError
from copilot_runtime.config.checks import mask_credentials
from copilot_runtime.http.connection import BufferedResponse
from copilot_runtime.http.errors import Failure, UpstreamErrors, find_failure
from copilot_runtime.http.forward import forward_request


class HostTransport(httpx.AsyncBaseTransport):
    """An httpx transport that sends through the client of the host application.

    Closing this transport does not close that client.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await forward_request(self._client, request)


async def send_request(
    client: httpx.AsyncClient,
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    *,
    errors: UpstreamErrors,
    max_body: int,
) -> BufferedResponse:
    """Send one request, follow no redirect, and read the response. The client stays open.

    The client's headers, cookies, authentication, proxies, hooks and transport are used, but its
    timeouts are replaced by those of `errors`. Raises `ConfigurationFailed` for an invalid URL,
    `RunStalled` at a timeout, and `NetworkError` for all other failures.
    """
    timeout = httpx.Timeout(errors.idle_timeout, connect=errors.connect_timeout)
    started = False
    try:
        request = client.build_request(
            method, url, content=body, headers={**headers}, timeout=timeout
        )
        response = await client.send(request, stream=True, follow_redirects=False)
        started = True
        async with aclosing(response):
            return await _buffer(response, max_body)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise ConfigurationFailed(
            f"{errors.name} API error: {mask_credentials(url)!r} is not an address.",
            hint="A base URL looks like https://api.example.com/v1.",
        ) from error
    except (httpx.HTTPError, OSError) as error:
        raise _convert(error, url, errors, started=started) from error


async def _buffer(response: httpx.Response, max_body: int) -> BufferedResponse:
    blocks: list[bytes] = []
    size = 0
    async for block in response.aiter_bytes():
        blocks.append(block)
        size += len(block)
        if size > max_body:
            break
    return BufferedResponse(response.status_code, response.headers, b"".join(blocks))


def _convert(error: Exception, url: str, errors: UpstreamErrors, *, started: bool) -> NetworkError:
    failure = _classify(error)
    if started and failure == "closed":
        return errors.build_premature_close(f"The connection broke off: {error}.")
    return errors.build_connection_error(error, url, failure)


def _classify(error: Exception) -> Failure:
    match error:
        case httpx.ConnectTimeout() | httpx.PoolTimeout():
            return "connect timeout"
        case httpx.TimeoutException():
            return "timeout"
        case httpx.ConnectError():
            return find_failure(error)
        case httpx.ProxyError():
            return "unreachable"
        case _:
            return "closed"
