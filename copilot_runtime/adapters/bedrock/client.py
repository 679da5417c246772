"""Requests through a `bedrock-runtime` client of `boto3`, which the application has made.

Such a client blocks, so a response is read in a thread of its own. It yields objects; their JSON
goes to the same reader as the frames of our own connections.
"""

import asyncio
from base64 import b64decode
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from threading import Thread
from typing import Any, cast

import orjson

from copilot_runtime.adapters.errors import Service, read_response_error
from copilot_runtime.adapters.sdk_client import (
    Payloads,
    SDKResponse,
    connection_error,
    encode_event,
    wait_for_response,
)
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.base.jsonvalue import JsonObject

_BLOBS = ("bytes", "redactedContent")
_DOCUMENTS = ("additionalModelRequestFields", "input", "json")
"""Members whose value is any JSON, in which nothing is base64."""


@asynccontextmanager
async def open_client_response(
    client: Any, model: str, body: JsonObject, service: Service
) -> AsyncGenerator[SDKResponse, None]:
    """Send the body with the client; leaving closes the response, not the client."""
    receiver = _Receiver(client, {"modelId": model, **_decode_blobs(body)}, service)
    receiver.start()
    try:
        yield await wait_for_response(receiver.payloads, service)
    finally:
        receiver.close()


class _Receiver(Thread):
    """Puts the JSON of each event into `payloads`, then None or an error."""

    def __init__(self, client: Any, arguments: JsonObject, service: Service) -> None:
        super().__init__(name="bedrock-client", daemon=True)
        self.payloads: Payloads = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._client = client
        self._arguments = arguments
        self._service = service
        self._stream: Any = None
        self._is_closed = False

    def run(self) -> None:
        is_open = False
        try:
            self._stream = self._client.converse_stream(**self._arguments)["stream"]
            for event in () if self._is_closed else self._stream:
                self._put(encode_event(event))
                is_open = True
        except Exception as error:  # of botocore, and of its HTTP library
            self._put(_read_error(error, self._service, is_open=is_open))
        finally:
            self._put(None)
            if self._stream is not None:
                self._stream.close()

    def close(self) -> None:
        """Make the read that the thread waits in end, so that it closes the response."""
        self._is_closed = True
        # `close` of the stream would wait for that read, and the stream shows no other way
        with suppress(AttributeError, RuntimeError, ValueError, OSError):
            self._stream._raw_stream.shutdown()

    def _put(self, payload: bytes | CopilotError | None) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self.payloads.put_nowait, payload)


def _read_error(error: Any, service: Service, *, is_open: bool) -> bytes | CopilotError:
    """Return our error, or the payload of an error that Bedrock sent within its response."""
    exceptions = import_module("botocore.exceptions")
    if isinstance(error, exceptions.EventStreamError):
        details = error.response["Error"]
        return orjson.dumps({details["Code"]: {"message": details["Message"]}})
    if isinstance(error, exceptions.ClientError):
        details, metadata = error.response["Error"], error.response["ResponseMetadata"]
        body = orjson.dumps({"message": details["Message"], "__type": details["Code"]})
        headers = metadata.get("HTTPHeaders") or {}
        return read_response_error(service, metadata["HTTPStatusCode"], body, headers)
    if isinstance(error, exceptions.NoCredentialsError | exceptions.ParamValidationError):
        return ConfigurationFailed(f"{service.name} API error: {error}", kind=type(error).__name__)
    return connection_error(error, service, is_open=is_open)


def _decode_blobs(value: Any) -> Any:
    """Return the body as `boto3` takes it: with bytes for what is base64 in JSON."""
    if isinstance(value, list):
        return [_decode_blobs(each) for each in cast("list[Any]", value)]
    if not isinstance(value, Mapping):
        return value
    members = cast("Mapping[str, Any]", value).items()
    return {
        name: each
        if name in _DOCUMENTS
        else b64decode(each)
        if name in _BLOBS and isinstance(each, str)
        else _decode_blobs(each)
        for name, each in members
    }
