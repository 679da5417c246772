"""The adapter for Google's Gemini, at Google AI (an API key) and Vertex AI (a project)."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import orjson

from copilot_runtime.adapters.added_fields import name_origin
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.context_window import find_profile
from copilot_runtime.adapters.errors import Service, read_response_error
from copilot_runtime.adapters.google.auth import Authentication
from copilot_runtime.adapters.google.request import build_body
from copilot_runtime.adapters.google.stream import GenerationReader
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
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.http.sse import SSEDecoder

if TYPE_CHECKING:
    from google.genai import Client
    from google.genai.client import AsyncClient

NAME = "Google"

_FORMAT = "a stream of Gemini's chunks"
_LONGEST_EVENT = 64 * 1024 * 1024
"""The largest event, in bytes: a generated image is one event."""


class GoogleAdapter(HTTPAdapter):
    """Sends chat requests to a model of Google: at Google AI, or with a `project` at Vertex AI.

    Generated images are `Activity` events of the type `image`.

    Args:
        model: The model's name, where a request names none.
        api_key: The key, or a function that returns it; by default `GOOGLE_API_KEY` or
            `GEMINI_API_KEY`.
        base_url: The address; by default the one of Google AI, or of the location at Vertex AI.
        vertex: True with a key alone is Vertex AI's express mode.
        project: The project at Vertex AI.
        location: The location at Vertex AI; by default `GOOGLE_CLOUD_LOCATION`, or `global`.
        token: A token for Vertex AI, or a function that returns it.
        credentials: Credentials of `google-auth`; by default the application default ones.
        client: A `google.genai.Client` or its `aio` (the extra `google-genai`), which then does
            address, authentication, transport, timeout and retries; it stays open.
        include_thoughts: Whether to request summaries of the model's reasoning.
        extra: Merged into the body of each request, for fields without a parameter here:
            `safetySettings`, `cachedContent`, `tools`.
        context_tokens: The context window in tokens; None: by the family of the model.
        options: Those of `HTTPOptions`.

    Raises:
        ConfigurationFailed: The base URL is not an address.
    """

    def __init__(
        self,
        model: str = "gemini-flash-latest",
        *,
        api_key: ApiKey | None = None,
        base_url: str | None = None,
        vertex: bool = False,
        project: str | None = None,
        location: str | None = None,
        token: ApiKey | None = None,
        credentials: Any = None,
        client: "Client | AsyncClient | None" = None,
        include_thoughts: bool = False,
        extra: Mapping[str, Any] | None = None,
        context_tokens: int | None = None,
        **options: Unpack[HTTPOptions],
    ) -> None:
        super().__init__(
            model, adapter="google", service=NAME, accept="text/event-stream", **options
        )
        self.include_thoughts = include_thoughts
        self.extra = extra
        self.context_tokens = context_tokens
        self._client = client
        self._authentication = Authentication(
            api_key,
            base_url,
            vertex=vertex,
            project=project,
            location=location,
            token=token,
            credentials=credentials,
        )

    async def _prepare(
        self, request: ChatRequest, model: str, capabilities: CapabilityFilter
    ) -> ProviderRequest:
        origin = name_origin("gemini", self._find_url(model), model)
        body = build_body(
            request,
            model,
            capabilities,
            context_tokens=self.context_tokens or find_profile(model).context_tokens,
            include_thoughts=self.include_thoughts,
            extra=self.extra,
            origin=origin,
        )
        if self._client is not None:
            service = Service(NAME, model, format=_FORMAT, origin=origin)
            exchange = open_client_response(self._client, model, body, service)
            new_decoder = JsonEvents
        else:
            headers, secret = await self._authentication.authenticate()
            service = Service(NAME, model, secret, _FORMAT, origin)
            url = self._authentication.build_url(model)
            exchange = self._upstream.post(url, encode_body(body), {**self._headers, **headers})
            new_decoder = partial(SSEDecoder, limit=_LONGEST_EVENT)
        return ProviderRequest(
            exchange=exchange,
            service=service,
            new_reader=lambda: (GenerationReader(request, service), new_decoder()),
            max_retries=0 if self._client else self._upstream.max_retries,
            content=body,
        )

    def _name_provider(self) -> str:
        if self._client is not None:
            client = getattr(self._client, "_api_client", None)  # the same for both kinds
            return "vertex" if getattr(client, "vertexai", False) else self._adapter
        return "vertex" if self._authentication.vertex else self._adapter

    def _find_url(self, model: str) -> str:
        if self._client is None:
            return self._authentication.build_url(model)
        client: Any = self._client
        with suppress(AttributeError):  # of another version of the package
            return str(client._api_client._http_options.base_url or "")
        return ""

    async def check_key(self) -> None:
        if self._client is None:
            await self._authentication.check_key()


_ADDED = {"automatic_function_calling_history", "parsed", "sdk_http_response"}
"""Fields that the package adds to Gemini's response."""


@asynccontextmanager
async def open_client_response(
    client: Any, model: str, body: JsonObject, service: Service
) -> AsyncGenerator[SDKResponse, None]:
    """Send the body with the client; on exit, close the response and not the client.

    `client` is a `google.genai.Client`, or its `aio`. It yields objects, whose JSON is read by the
    same reader as the bytes of our own connections.
    """
    payloads: Payloads = asyncio.Queue()
    # the package closes its response when a read is cancelled, not when its generator is closed
    task = asyncio.create_task(_receive(client, model, body, service, payloads))
    try:
        yield await wait_for_response(payloads, service)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)  # only a cancellation of ours is raised


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
    """Return our error, or the payload of an error inside Gemini's response."""
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
