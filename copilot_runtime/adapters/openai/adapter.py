"""OpenAI, and every server that speaks its chat completions API or its Responses API."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack

from copilot_runtime.adapters.api_key import ApiKey
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.context_window import ContextWindow
from copilot_runtime.adapters.errors import Service
from copilot_runtime.adapters.http_adapter import HTTPAdapter, HTTPOptions
from copilot_runtime.adapters.openai.auth import Access, Pass
from copilot_runtime.adapters.openai.request import Habits, body_of
from copilot_runtime.adapters.openai.responses.request import response_body_of
from copilot_runtime.adapters.openai.responses.stream import SIGNER, Response
from copilot_runtime.adapters.openai.services import OPENAI, MaxTokensName, Preset
from copilot_runtime.adapters.openai.stream import Completion
from copilot_runtime.adapters.profiles import find_profile
from copilot_runtime.adapters.streaming import (
    ProviderRequest,
    ResponseReader,
    StreamResponse,
    encode_body,
)
from copilot_runtime.errors import Misuse
from copilot_runtime.http.sse import SSEDecoder
from copilot_runtime.interfaces import ChatRequest

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Api = Literal["chat", "responses"]

_SPEAKS: Mapping[Api, str] = {
    "chat": "a stream of chat completion chunks",
    "responses": "a stream of response events",
}
_PATHS: Mapping[Api, str] = {"chat": "chat/completions", "responses": "responses"}


class OpenAIAdapter(HTTPAdapter):
    """Asks a model of OpenAI, or of any server with the same API at `base_url`.

    `preset` says what is special about a service; its variables hold the key and the address
    that are not given. A `token`, or what fetches one, goes before the key. `client`, an
    `openai.AsyncOpenAI`, then does addresses, authentication and retries instead of us.

    `context_tokens` overrides what is known of the model; `max_tokens_name="max_tokens"` suits
    older servers; `include_usage=None` asks for token counts where that is known to be understood.
    `options` are those of `HTTPOptions`.
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
        reasoning_summary: Literal["auto", "concise", "detailed"] | None = "auto",
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
        self.parallel_tool_calls = parallel_tool_calls
        self.keep_system_role = keep_system_role
        self.include_usage = include_usage
        self.max_tokens_name = max_tokens_name or preset.max_tokens_name
        self.reasoning_summary = reasoning_summary
        self.preset = preset
        self._client = client
        self._access = Access(api_key, base_url, preset, token=token, api_version=api_version)
        self._access.url(_PATHS[api])  # raises now rather than at the first question
        self._window = ContextWindow(preset.adapter, context_tokens)

    async def _prepare(
        self, request: ChatRequest, model: str, capabilities: CapabilityFilter
    ) -> ProviderRequest:
        body = self._body(
            request, model, capabilities, await self._window.tokens_for(model, request)
        )
        if self._client is not None:
            granted = Pass({}, self._client.api_key)
        else:
            granted = await self._access.enter()
        sent = encode_body(body)
        service = Service(self.preset.name, model, granted.secret, _SPEAKS[self.api])
        return ProviderRequest(
            exchange=self._open(body, sent, model, granted, service),
            service=service,
            on_usage=partial(self._window.calibrate, model, request, sent),
            new_reader=lambda: (self._reader(request, service), SSEDecoder()),
            max_retries=0 if self._client else self._upstream.max_retries,
        )

    def _reader(self, request: ChatRequest, service: Service) -> ResponseReader:
        provider = self.preset.adapter
        if self.api == "chat":
            return Completion(request, service, provider=provider, signer=self._signer())
        return Response(request, service, provider=provider)

    def _signer(self) -> str:
        if self.api == "responses":
            return SIGNER
        return self.preset.adapter if self.preset.wants_thoughts else ""

    def _body(
        self, request: ChatRequest, model: str, capabilities: CapabilityFilter, context_tokens: int
    ) -> dict[str, Any]:
        preset, profile, official = self.preset, find_profile(model), self._is_official()
        knows_developer = preset.developer_role
        if knows_developer is None:
            knows_developer = official or profile.developer_role
        include_usage = self.include_usage
        if include_usage is None:
            include_usage = preset.asks_for_usage and (preset is not OPENAI or official)
        habits = Habits(
            context_tokens=context_tokens,
            developer_role=knows_developer and not self.keep_system_role,
            max_tokens_name=self.max_tokens_name,
            parallel_tool_calls=self.parallel_tool_calls,
            include_usage=include_usage,
            seed_name=preset.seed_name,
            required=preset.required,
            takes_no_choice=preset.takes_no_choice,
            strict_order=preset.strict_order,
            call_id_length=preset.call_id_length,
            reasoning_summary=self.reasoning_summary if profile.reasons else None,
            thoughts_of=self._signer(),
            unsupported=profile.unsupported,
        )
        make = body_of if self.api == "chat" else response_body_of
        return make(request, model, habits, capabilities)

    def _is_official(self) -> bool:
        if self._client is not None:
            return str(self._client.base_url).rstrip("/") == self.preset.base_url
        return self._access.official

    def _open(
        self, body: dict[str, Any], sent: bytes, model: str, granted: Pass, service: Service
    ) -> AbstractAsyncContextManager[StreamResponse, bool | None]:
        if self._client is not None:
            from copilot_runtime.adapters.openai.client import asked_with

            return asked_with(self._client, self.api, body, service)
        url = self._access.url(_PATHS[self.api], model)
        return self._upstream.post(url, sent, {**self._headers, **granted.headers})
