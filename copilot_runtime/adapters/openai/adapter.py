"""The adapter for OpenAI, and for servers with its chat completions or Responses API."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack
from urllib.parse import parse_qsl

from copilot_runtime.adapters.added_fields import name_origin
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.context_window import ContextWindow
from copilot_runtime.adapters.errors import Service
from copilot_runtime.adapters.http_adapter import ApiKey, HTTPAdapter, HTTPOptions
from copilot_runtime.adapters.json_reader import JSONReader
from copilot_runtime.adapters.openai.auth import OpenAIAuth
from copilot_runtime.adapters.openai.request import (
    OPENAI,
    MaxTokensName,
    Preset,
    ReasoningSummary,
    RequestOptions,
    build_body,
)
from copilot_runtime.adapters.openai.responses import ResponseEventReader, build_response_body
from copilot_runtime.adapters.openai.stream import CompletionReader
from copilot_runtime.adapters.sdk_client import SDKResponse, open_sdk_response
from copilot_runtime.adapters.streaming import ProviderRequest, encode_body
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.base.errors import Misuse
from copilot_runtime.http.pool import FixedHeaders
from copilot_runtime.http.sse import SSEDecoder

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Api = Literal["chat", "responses"]

_PATHS: Mapping[Api, str] = {"chat": "chat/completions", "responses": "responses"}
_FORMATS: Mapping[Api, str] = {
    "chat": "a stream of chat completion chunks",
    "responses": "a stream of response events",
}


@dataclass(frozen=True, slots=True)
class _Route:
    """The URL, the headers and the service for one model, as long as the key is fixed."""

    service: Service
    url: str
    headers: Mapping[str, str] = field(repr=False)


class OpenAIAdapter(HTTPAdapter):
    """Sends chat requests to a model of OpenAI, or of any server with the same API.

    Args:
        model: The model's name, where a request names none; the preset's by default.
        api: `"chat"` for chat completions, `"responses"` for the Responses API.
        api_key: The key, or a function that returns it; by default `OPENAI_API_KEY`, or the
            variable of the preset.
        token: A bearer token, such as Microsoft Entra's, or a function that returns it. It takes
            the place of the key.
        base_url: The address, with its version; by default `OPENAI_BASE_URL`, or the preset's.
        api_version: The version of Azure's older API, which makes the model a part of the address.
        organization: The organization that pays.
        project: The project that pays.
        client: An `openai.AsyncOpenAI`, which then does addresses, authentication and retries.
        parallel_tool_calls: Whether the model may call several actions at once, where a request
            does not say; None leaves it to the model.
        keep_system_role: Whether instructions are `system` also where `developer` is known.
        include_usage: Whether to ask for counts of tokens; None: where that is understood.
        max_tokens_name: The name of the limit of an answer; `"max_tokens"` suits older servers.
        reasoning_summary: The kind of reasoning summaries (Responses API); None: no summaries.
        context_tokens: The context window in tokens; None: looked up by the model's name.
        preset: The peculiarities of a service; see `presets.py`.
        options: Those of `HTTPOptions`.

    Raises:
        ConfigurationFailed: `base_url` is no URL, or is missing where the preset needs one.
        Misuse: `api` is neither of the two.
    """

    def __init__(
        self,
        model: str = "",
        *,
        api: Api = "chat",
        api_key: ApiKey | None = None,
        token: ApiKey | None = None,
        base_url: str | None = None,
        api_version: str | None = None,
        organization: str | None = None,
        project: str | None = None,
        client: "AsyncOpenAI | None" = None,
        parallel_tool_calls: bool | None = None,
        keep_system_role: bool = False,
        include_usage: bool | None = None,
        max_tokens_name: MaxTokensName | None = None,
        reasoning_summary: ReasoningSummary | None = "auto",
        context_tokens: int | None = None,
        preset: Preset = OPENAI,
        **options: Unpack[HTTPOptions],
    ) -> None:
        if api not in _PATHS:
            raise Misuse(f"api is 'chat' or 'responses', not {api!r}.")
        super().__init__(
            model or preset.model,
            adapter=preset.adapter if api == "chat" else "openai_responses",
            service=preset.name,
            **options,
        )
        if organization:
            self._headers.setdefault("openai-organization", organization)
        if project:
            self._headers.setdefault("openai-project", project)
        self.api: Api = api
        self._client = client
        self._auth = OpenAIAuth(api_key, base_url, preset, token=token, api_version=api_version)
        self._auth.url(_PATHS[api])  # raises now rather than at the first request
        self._route: _Route | None = None
        self._window = ContextWindow(preset.adapter, context_tokens)
        is_at_home = preset.is_at(self._auth.base_url if client is None else str(client.base_url))
        if include_usage is None:  # a server that imitates OpenAI may refuse to count
            include_usage = preset.asks_for_usage and (preset is not OPENAI or is_at_home)
        developer_role = preset.developer_role
        if developer_role is None and is_at_home:
            developer_role = True
        self.options = RequestOptions(
            preset=replace(
                preset,
                developer_role=False if keep_system_role else developer_role,
                asks_for_usage=include_usage,
                max_tokens_name=max_tokens_name or preset.max_tokens_name,
            ),
            parallel_tool_calls=parallel_tool_calls,
            reasoning_summary=reasoning_summary,
        )

    @asynccontextmanager
    async def open_client(self, model: str) -> "AsyncGenerator[AsyncOpenAI]":
        """Yield a client of OpenAI's SDK for a model: this adapter's, or one for its server.

        Raises `ConfigurationFailed` if a required key is missing.
        """
        if self._client is not None:
            yield self._client
            return
        route = await self._find_route(model)
        url, _, query = route.url.partition("?")
        headers = {name: text for name, text in route.headers.items() if name != "authorization"}
        async with _import_sdk().AsyncOpenAI(
            api_key=route.service.secret or "none",  # where it is required, the route has one
            base_url=url.removesuffix(f"/{_PATHS[self.api]}"),
            default_headers=headers,
            default_query=dict(parse_qsl(query)),
        ) as client:
            yield client

    async def _prepare(
        self, request: ChatRequest, model: str, capabilities: CapabilityFilter
    ) -> ProviderRequest:
        context_tokens = await self._window.tokens_for(model, request)
        build = build_body if self.api == "chat" else build_response_body
        route = self._route
        if route is None or route.service.model != model:
            route = await self._find_route(model)
        service = route.service
        origin = service.origin
        content = build(request, model, self.options, capabilities, context_tokens, origin)
        body = encode_body(content)
        if self._client is not None:
            exchange = _open_response(self._client, self.api, content, service)
        else:
            exchange = self._upstream.post(route.url, body, route.headers)
        return ProviderRequest(
            exchange=exchange,
            service=service,
            new_reader=lambda: (self._new_reader(request, service), SSEDecoder()),
            max_retries=0 if self._client else self._upstream.max_retries,
            content=content,
            on_usage=partial(self._window.calibrate, model, request, body),
        )

    async def _find_route(self, model: str) -> _Route:
        """Return the route to a model, which is kept for the next request if the key is fixed."""
        if self._client is not None:
            return _Route(self._build_service(model, self._client.api_key), "", {})
        authorization = await self._auth.authorize()
        service = self._build_service(model, authorization.secret)
        url = self._auth.url(_PATHS[self.api], model)
        headers = {**self._headers, **authorization.headers}
        if not self._auth.is_fixed:
            return _Route(service, url, headers)
        self._route = _Route(service, url, FixedHeaders(headers))
        return self._route

    def _build_service(self, model: str, secret: str | None) -> Service:
        origin = name_origin(self.api, self._find_url(model), model)
        return Service(self.options.preset.name, model, secret, _FORMATS[self.api], origin)

    def _name_provider(self) -> str:
        return self.options.preset.adapter

    def _find_url(self, model: str) -> str:
        if self._client is not None:
            return str(self._client.base_url)
        return self._auth.url(_PATHS[self.api], model)

    async def check_key(self) -> None:
        if self._client is None:
            await self._auth.authorize()

    def _new_reader(self, request: ChatRequest, service: Service) -> JSONReader:
        provider = self.options.preset.adapter
        if self.api == "chat":
            return CompletionReader(request, service, provider=provider)
        return ResponseEventReader(request, service, provider=provider)


def _open_response(
    client: "AsyncOpenAI", api: Api, body: dict[str, Any], service: Service
) -> AbstractAsyncContextManager[SDKResponse, bool | None]:
    """Return the request of the client: it sends, and the bytes are read here.

    Building the SDK's objects would cost twenty times what reading the chunks does.
    """
    endpoint: Any = client.chat.completions if api == "chat" else client.responses
    return open_sdk_response(
        endpoint.with_streaming_response.create(**body), _import_sdk(), service
    )


def _import_sdk() -> Any:
    """Import OpenAI's SDK, which only its own clients need, on first use."""
    import openai

    return openai
