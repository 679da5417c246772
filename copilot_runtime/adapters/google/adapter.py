"""Google's Gemini, at Google AI (an API key) and at Vertex AI (a project)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from copilot_runtime.adapters.api_key import ApiKey
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.errors import Service
from copilot_runtime.adapters.google.auth import Authentication
from copilot_runtime.adapters.google.client import open_client_response
from copilot_runtime.adapters.google.request import build_body
from copilot_runtime.adapters.google.stream import GenerationReader
from copilot_runtime.adapters.http_adapter import HTTPAdapter, HTTPOptions
from copilot_runtime.adapters.profiles import find_profile
from copilot_runtime.adapters.sdk_client import JsonEvents
from copilot_runtime.adapters.streaming import ProviderRequest, encode_body
from copilot_runtime.http.sse import SSEDecoder
from copilot_runtime.interfaces import ChatRequest

if TYPE_CHECKING:
    from google.genai import Client
    from google.genai.client import AsyncClient

NAME = "Google"

_FORMAT = "a stream of Gemini's chunks"
_LONGEST_EVENT = 64 * 1024 * 1024
"""An image that the model made comes in one piece."""


class GoogleAdapter(HTTPAdapter):
    """Asks a model of Google.

    By default at Google AI, with `api_key`, `GOOGLE_API_KEY` or `GEMINI_API_KEY`. With `project`
    at Vertex AI, in `location` (`global`), with a `token`, or what fetches one, with `credentials`
    of `google-auth`, or with the application default ones; `vertex=True` with a key alone is its
    express mode. With `client`, a `google.genai.Client` or its `aio` (the extra `google-genai`),
    its authentication, address, transport, timeout and retries are used in place of these; it stays
    open:

        GoogleAdapter(client=genai.Client(vertexai=True, project="my-project"))

    `include_thoughts` asks for summaries of what the model thinks. `extra` is laid over the body
    of each request, for what has no parameter here: `safetySettings`, `cachedContent`, `tools`.
    Images that the model makes are `Activity` events of the type `image`. `options` are those of
    `HTTPOptions`.
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
        body = build_body(
            request,
            model,
            capabilities,
            context_tokens=self.context_tokens or find_profile(model).context_tokens,
            include_thoughts=self.include_thoughts,
            extra=self.extra,
        )
        if self._client is not None:
            service = Service(NAME, model, speaks=_FORMAT)
            return ProviderRequest(
                exchange=open_client_response(self._client, model, body, service),
                service=service,
                new_reader=lambda: (GenerationReader(request, service), JsonEvents()),
                accepts_json=False,
            )
        headers, secret = await self._authentication.authenticate()
        service = Service(NAME, model, secret, _FORMAT)
        return ProviderRequest(
            exchange=self._upstream.post(
                self._authentication.build_url(model),
                encode_body(body),
                {**self._headers, **headers},
            ),
            service=service,
            new_reader=lambda: (
                GenerationReader(request, service),
                SSEDecoder(limit=_LONGEST_EVENT),
            ),
            max_retries=self._upstream.max_retries,
        )
