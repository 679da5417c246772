"""Requests through a `google.genai.Client` of the application's own.

The package yields objects, not bytes; their JSON goes to the same reader as the bytes of our own
connections.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson

from copilot_runtime.adapters.errors import Service, read_response_error
from copilot_runtime.adapters.sdk_client import (
    Payloads,
    SDKResponse,
    connection_error,
    encode_event,
    wait_for_response,
)
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import JsonObject

_ADDED = {"automatic_function_calling_history", "parsed", "sdk_http_response"}
"""Fields that the package adds to what Gemini sends."""


@asynccontextmanager
async def open_client_response(
    client: Any, model: str, body: JsonObject, service: Service
) -> AsyncGenerator[SDKResponse, None]:
    """Send the body with the client; leaving closes the response, not the client.

    `client` is a `google.genai.Client`, or its `aio`.
    """
    payloads: Payloads = asyncio.Queue()
    # the package closes its response when a read is cancelled, not when its generator is closed
    task = asyncio.create_task(_receive(client, model, body, service, payloads))
    try:
        yield await wait_for_response(payloads, service)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _receive(
    client: Any, model: str, body: JsonObject, service: Service, payloads: Payloads
) -> None:
    """Put the JSON of each chunk, then None or an error."""
    config: JsonObject = {
        "automatic_function_calling": {"disable": True},
        "automatic_continuation": False,
        "http_options": {"extra_body": body},  # its contents replace those of the call
    }
    models = getattr(client, "aio", client).models
    is_open = False
    try:
        stream = await models.generate_content_stream(model=model, contents="-", config=config)
        async for chunk in stream:
            sent = chunk.model_dump(by_alias=True, exclude_none=True, exclude=_ADDED)
            payloads.put_nowait(encode_event(sent))
            is_open = True
    except Exception as error:  # of the package, and of the HTTP library that it has found
        payloads.put_nowait(_read_error(error, service, is_open=is_open))
    payloads.put_nowait(None)


def _read_error(error: Any, service: Service, *, is_open: bool) -> bytes | CopilotError:
    """Return our error, or the payload of an error that Gemini sent within its response."""
    from google.genai.errors import APIError, UnknownApiResponseError

    if isinstance(error, APIError):
        details = orjson.dumps(error.details, default=str)
        if is_open or not error.code:
            return details
        headers = getattr(error.response, "headers", None)
        return read_response_error(service, error.code, details, headers or {})
    if isinstance(error, UnknownApiResponseError):
        return service.format_error(str(error)[:200])
    return connection_error(error, service, is_open=is_open)
