"""Requests through an `openai.AsyncOpenAI` of the application: it sends them, we read the bytes.

Building the SDK's objects costs twenty times what reading the chunks here does.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from copilot_runtime.adapters.errors import (
    Service,
    build_error,
    read_error_message,
    read_response_error,
)
from copilot_runtime.errors import CopilotError, NetworkError, RunStalled

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_DRAIN_TIME = 1.0


class ClientResponse:
    """The body of the SDK's response: a `StreamResponse`, with our errors."""

    def __init__(self, response: Any, name: str) -> None:
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.finished = False
        self._name = name
        self._blocks: AsyncIterator[bytes] = response.iter_bytes()

    def __aiter__(self) -> "ClientResponse":
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._blocks)
        except StopAsyncIteration:
            raise
        except Exception as error:  # of the SDK's HTTP library, which is not always the same one
            raise _interruption(error, self._name) from error

    async def text(self) -> bytes:
        """Return the rest of the body."""
        return b"".join([block async for block in self])


@asynccontextmanager
async def send_with_client(
    client: "AsyncOpenAI", api: str, body: dict[str, Any], service: Service
) -> AsyncGenerator[ClientResponse, None]:
    """Send the request with the application's client; leaving closes the response.

    Raises `CopilotError` for what the SDK raises.
    """
    import openai

    name = service.name
    endpoint: Any = client.chat.completions if api == "chat" else client.responses
    create = endpoint.with_streaming_response.create
    manager: AbstractAsyncContextManager[Any] = create(**body)
    try:
        response = ClientResponse(await manager.__aenter__(), name)
    except openai.APIError as error:
        raise _read_api_error(error, service) from error
    except openai.OpenAIError as error:
        raise CopilotError(f"{name} API error: {error}", kind=type(error).__name__) from error
    try:
        yield response
        if response.finished:  # the connection can be used again once it is read to its end
            with suppress(TimeoutError, NetworkError):
                async with asyncio.timeout(_DRAIN_TIME):
                    await response.text()
    finally:
        await manager.__aexit__(None, None, None)


def _read_api_error(error: Any, service: Service) -> CopilotError:
    import openai

    name = service.name
    if isinstance(error, openai.APIStatusError):
        body = error.response.content
        if read_error_message(body):
            return read_response_error(service, error.status_code, body, error.response.headers)
        reason = f"{error.status_code} {error.message}"
        return build_error(service, reason, error.status_code, request_id=error.request_id)
    kind = type(error).__name__
    if isinstance(error, openai.APITimeoutError):
        return RunStalled(f"{name} API error: {error.message}", kind=kind, hint="See its timeout.")
    return NetworkError(f"{name} API error: {error.message}", kind=kind, hint=repr(error.__cause__))


def _interruption(error: Exception, name: str) -> NetworkError:
    if "timeout" in type(error).__name__.lower():
        return RunStalled(
            f"{name} API error: The model went silent.",
            kind="APIConnectionTimeoutError",
            hint="The timeout of your openai client has passed.",
        )
    return NetworkError(f"{name} API error: Premature close", kind=f"{name}Error", hint=repr(error))
