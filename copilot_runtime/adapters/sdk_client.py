"""Requests through a client of a provider's SDK that the application has created.

The client authenticates, connects and retries. The response, as bytes or as the JSON of its events,
is read by the same readers as the bytes of our own connections.
"""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import orjson

from copilot_runtime.adapters.errors import Service, build_error, read_response_error
from copilot_runtime.adapters.provider_errors import read_error_message
from copilot_runtime.base.errors import CopilotError, NetworkError, RunStalled

_DRAIN_TIME = 1.0


class SDKResponse:
    """A response that a client has opened: a `StreamResponse` with the SDK's errors as ours."""

    def __init__(
        self,
        blocks: AsyncIterator[bytes],
        service: Service,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.headers: Mapping[str, str] = headers or {}
        self.finished = False
        self._blocks = blocks
        self._service = service

    def __aiter__(self) -> "SDKResponse":
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._blocks)
        except (StopAsyncIteration, CopilotError):
            raise
        except Exception as error:  # of the SDK's HTTP library, of which there are several
            raise connection_error(error, self._service) from error

    def check_silence(self, since: float | None) -> float:
        """Return 0: the timeouts are those of the client."""
        return since or 0.0

    async def text(self) -> bytes:
        """Return the rest of the body."""
        return b"".join([block async for block in self])


class JsonEvents:
    """A `FrameDecoder` for clients that yield whole events: each block is the JSON of one."""

    is_event_stream = True
    is_between_events = False  # nothing stands there
    other_text = b""

    def feed(self, block: bytes) -> list[bytes]:
        """Return the block."""
        return [block]

    def finish(self) -> list[bytes]:
        """Return nothing: no event is ever incomplete."""
        return []


Payloads = asyncio.Queue[bytes | CopilotError | None]
"""The queue by which a task or thread passes on a response: payloads, then `None` or an error."""


def encode_event(event: Any) -> bytes:
    """Return the JSON of an SDK's event: bytes in it are base64, as in the provider's own JSON."""
    return orjson.dumps(event, default=_encode_bytes)


def _encode_bytes(value: Any) -> str:
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)


async def wait_for_response(payloads: Payloads, service: Service) -> SDKResponse:
    """Return the response once its first payload has arrived. Raises the error that precedes it."""
    first = await payloads.get()
    if isinstance(first, CopilotError):
        raise first
    return SDKResponse(_read_payloads(first, payloads), service)


async def _read_payloads(
    first: bytes | CopilotError | None, payloads: Payloads
) -> AsyncGenerator[bytes, None]:
    """Yield `first` and the payloads after it. Raises the error that comes in place of one."""
    payload = first
    while payload is not None:
        if isinstance(payload, CopilotError):
            raise payload
        yield payload
        payload = await payloads.get()


@asynccontextmanager
async def open_sdk_response(
    request: AbstractAsyncContextManager[Any], sdk: Any, service: Service
) -> AsyncGenerator[SDKResponse, None]:
    """Enter a request made by `with_streaming_response` of `openai` or `anthropic`.

    `sdk` is that module. Leaving closes the response, not the client.
    """
    try:
        response = await request.__aenter__()
    except sdk.APIStatusError as error:
        raise _status_error(error, service) from error
    except Exception as error:
        raise connection_error(error, service, is_open=False) from error
    reply = SDKResponse(
        response.iter_bytes(), service, status=response.status_code, headers=response.headers
    )
    try:
        yield reply
        if reply.finished:  # the connection can be used again once it is read to its end
            with suppress(TimeoutError, NetworkError):
                async with asyncio.timeout(_DRAIN_TIME):
                    await reply.text()
    finally:
        await request.__aexit__(None, None, None)


def connection_error(error: Exception, service: Service, *, is_open: bool = True) -> CopilotError:
    """Return our error for an exception of the client, other than an error response.

    `is_open` is `True` if the response had started.
    """
    name, kind, hint = service.name, type(error).__name__, repr(error.__cause__ or error)
    if "timeout" in kind.lower():
        result = RunStalled(
            f"{name} API error: {'The model went silent.' if is_open else error}",
            kind="APIConnectionTimeoutError" if is_open else kind,
            hint=f"The timeout of your client has passed: {hint}",
        )
    elif is_open:
        message = f"{name} API error: Premature close"
        result = NetworkError(message, kind=f"{name}Error", hint=hint)
    elif isinstance(error, OSError) or "Connect" in kind:
        result = NetworkError(f"{name} API error: {error}", kind=kind, hint=hint)
    else:  # it could not be sent: without a key, for example
        result = CopilotError(f"{name} API error: {error}", kind=kind)
    result.__cause__ = error
    return result


def _status_error(error: Any, service: Service) -> CopilotError:
    body = error.response.content
    if read_error_message(body):
        return read_response_error(service, error.status_code, body, error.response.headers)
    reason = f"{error.status_code} {error.message}"
    return build_error(service, reason, error.status_code, request_id=error.request_id)
