"""The adapter for models of Amazon Bedrock with the Converse API."""

import asyncio
from base64 import b64decode
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from threading import Thread
from typing import Any, Unpack, cast

import orjson

from copilot_runtime.adapters.added_fields import name_origin
from copilot_runtime.adapters.bedrock.auth import Authentication
from copilot_runtime.adapters.bedrock.request import build_body, find_traits
from copilot_runtime.adapters.bedrock.stream import ConverseReader, Frames
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.context_window import find_profile
from copilot_runtime.adapters.errors import Service, read_response_error
from copilot_runtime.adapters.http_adapter import ApiKey, HTTPAdapter, HTTPOptions
from copilot_runtime.adapters.sdk_client import (
    JsonEvents,
    Payloads,
    SDKResponse,
    connection_error,
    encode_event,
    wait_for_response,
)
from copilot_runtime.adapters.streaming import ProviderRequest, encode_body
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.base.jsonvalue import JsonObject

NAME = "Bedrock"

_FORMAT = "an event stream of Bedrock's"
_ACCEPT = "application/vnd.amazon.eventstream"


class BedrockAdapter(HTTPAdapter):
    """Sends chat requests to a model of Amazon Bedrock. Needs `botocore`, the extra `bedrock`.

    If a guardrail intervenes, its message is the answer, with the `stop_reason` `content_filter`.
    Generated images are `Activity` events of the type `image`. Without a key and a session, the
    credentials are those that `botocore` finds: environment, profiles, single sign-on, roles.

    Args:
        model: The id of a model or of an inference profile, or an ARN, where a request names none.
        region: The region; by default the session's, `AWS_REGION` or `AWS_DEFAULT_REGION`.
        api_key: A Bedrock API key, or a function that returns it; by default
            `AWS_BEARER_TOKEN_BEDROCK`.
        access_key: The id of an access key, together with `secret_key`.
        secret_key: The secret of that access key.
        session_token: The token of an access key that is temporary.
        session: A session of `boto3` or `botocore` that has credentials.
        client: A `bedrock-runtime` client of `boto3`, which then handles region, address,
            authentication, transport, timeouts and retries; it is not closed.
        base_url: The address; by default the one of the region.
        cache: Whether to add cache points, for models that support prompt caching.
        extra: Merged into the body of each request: `guardrailConfig`,
            `additionalModelRequestFields`, `performanceConfig`, `serviceTier`.
        context_tokens: The context window in tokens; None: by the family of the model.
        options: Those of `HTTPOptions`.

    Raises:
        ConfigurationFailed: One of `access_key` and `secret_key` is missing, or the base URL is
            not an address.
        MissingPackage: `botocore` is not installed.
    """

    def __init__(
        self,
        model: str = "amazon.nova-lite-v1:0",
        *,
        region: str | None = None,
        api_key: ApiKey | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        session_token: str | None = None,
        session: Any = None,
        client: Any = None,
        base_url: str | None = None,
        cache: bool = False,
        extra: Mapping[str, Any] | None = None,
        context_tokens: int | None = None,
        **options: Unpack[HTTPOptions],
    ) -> None:
        super().__init__(model, adapter="bedrock", service=NAME, accept=_ACCEPT, **options)
        self.cache = cache
        self.extra = extra
        self.context_tokens = context_tokens
        self._client = client
        self._authentication = Authentication(
            region=region,
            api_key=api_key,
            access_key=access_key,
            secret_key=secret_key,
            session_token=session_token,
            session=session,
            base_url=base_url,
        )

    async def _prepare(
        self, request: ChatRequest, model: str, capabilities: CapabilityFilter
    ) -> ProviderRequest:
        traits = find_traits(model)
        profile = find_profile(traits.name)
        origin = name_origin("converse", self._find_url(model), traits.vendor)
        body = build_body(
            request,
            model,
            capabilities,
            context_tokens=self.context_tokens or profile.context_tokens,
            cache=self.cache,
            extra=self.extra,
            origin=origin,
        )
        if self._client is not None:
            service = Service(NAME, model, format=_FORMAT, origin=origin)
            exchange = open_client_response(self._client, model, body, service)
        else:
            url, content = self._authentication.build_url(model), encode_body(body)
            headers, secret = await self._authentication.authenticate(url, content, model)
            service = Service(NAME, model, secret, _FORMAT, origin)
            exchange = self._upstream.post(url, content, {**self._headers, **headers})
        new_decoder = JsonEvents if self._client else Frames
        return ProviderRequest(
            exchange=exchange,
            service=service,
            new_reader=lambda: (ConverseReader(request, service), new_decoder()),
            max_retries=0 if self._client else self._upstream.max_retries,
            content=body,
        )

    def _find_url(self, model: str) -> str:
        if self._client is not None:
            return str(self._client.meta.endpoint_url)
        return self._authentication.build_url(model)


_BLOBS = ("bytes", "redactedContent")
_DOCUMENTS = ("additionalModelRequestFields", "input", "json")
"""Members with arbitrary JSON, in which no value is decoded as base64."""


@asynccontextmanager
async def open_client_response(
    client: Any, model: str, body: JsonObject, service: Service
) -> AsyncGenerator[SDKResponse, None]:
    """Send the body with the `boto3` client; on exit, close the response and not the client.

    The client blocks, so a thread reads the response. It yields objects; their JSON is read by the
    same reader as the frames of our own connections.
    """
    receiver = _Receiver(client, {"modelId": model, **_decode_blobs(body)}, service)
    receiver.start()
    try:
        yield await wait_for_response(receiver.payloads, service)
    finally:
        receiver.close()


class _Receiver(Thread):
    """A thread that puts the JSON of each event into `payloads`, then `None` or an error."""

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
        """Interrupt the blocking read of the thread, so that it closes the response."""
        self._is_closed = True
        # `close` of the stream would wait for that read, and the stream shows no other way
        with suppress(AttributeError, RuntimeError, ValueError, OSError):
            self._stream._raw_stream.shutdown()

    def _put(self, payload: bytes | CopilotError | None) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self.payloads.put_nowait, payload)


def _read_error(error: Any, service: Service, *, is_open: bool) -> bytes | CopilotError:
    """Return our error, or the payload of an error inside Bedrock's response."""
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
    """Return the body as `boto3` expects it: base64 texts decoded to bytes."""
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
