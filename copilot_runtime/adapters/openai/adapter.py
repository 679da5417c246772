"""OpenAI, and every server that speaks its chat completions API or its Responses API."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TYPE_CHECKING, Any, Literal

from copilot_runtime.adapters.api_key import ApiKey
from copilot_runtime.adapters.capabilities import Lacks, Unsupported
from copilot_runtime.adapters.context_window import Window
from copilot_runtime.adapters.errors import Service
from copilot_runtime.adapters.json_body import dumped
from copilot_runtime.adapters.openai.auth import Access, Pass
from copilot_runtime.adapters.openai.request import Habits, body_of
from copilot_runtime.adapters.openai.responses.request import response_body_of
from copilot_runtime.adapters.openai.responses.stream import SIGNER, Response
from copilot_runtime.adapters.openai.services import OPENAI, MaxTokensName, Preset
from copilot_runtime.adapters.openai.stream import Completion
from copilot_runtime.adapters.profiles import profile_of
from copilot_runtime.adapters.streaming import Reader, Reply, answered
from copilot_runtime.errors import ConfigurationFailed, Misuse
from copilot_runtime.events import Usage
from copilot_runtime.http.client import Upstream
from copilot_runtime.http.sse import Frames
from copilot_runtime.interfaces import ChatRequest, Events

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Api = Literal["chat", "responses"]

_SPEAKS: Mapping[Api, str] = {
    "chat": "a stream of chat completion chunks",
    "responses": "a stream of response events",
}
_PATHS: Mapping[Api, str] = {"chat": "chat/completions", "responses": "responses"}


class OpenAIAdapter:
    """Asks a model of OpenAI, or of any server with the same API at `base_url`.

    `preset` says what is special about a service; its variables hold the key and the address
    that are not given. A `token`, or what fetches one, goes before the key. `client`, an
    `openai.AsyncOpenAI`, then does addresses, authentication and retries instead of us.

    `context_tokens` overrides what is known of the model; `max_tokens_name="max_tokens"` suits
    older servers; `include_usage=None` asks for token counts where that is known to be understood.
    Times are in seconds: `first_token_timeout` is how long the first word may take, retries
    included, `idle_timeout` how long the model may be silent. `unsupported` says what becomes of
    a wish that the model cannot fulfil.
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
        headers: Mapping[str, str] | None = None,
        client: "AsyncOpenAI | None" = None,
        parallel_tool_calls: bool | None = None,
        keep_system_role: bool = False,
        include_usage: bool | None = None,
        max_tokens_name: MaxTokensName | None = None,
        reasoning_summary: Literal["auto", "concise", "detailed"] | None = "auto",
        context_tokens: int | None = None,
        unsupported: Unsupported = "warn",
        connect_timeout: float = 10.0,
        first_token_timeout: float | None = None,
        idle_timeout: float = 120.0,
        max_retries: int = 2,
        preset: Preset = OPENAI,
    ) -> None:
        if api not in _PATHS:
            raise Misuse(f"api is 'chat' or 'responses', not {api!r}.")
        self.model = model or preset.model
        self.api: Api = api
        self.parallel_tool_calls = parallel_tool_calls
        self.keep_system_role = keep_system_role
        self.include_usage = include_usage
        self.max_tokens_name = max_tokens_name or preset.max_tokens_name
        self.reasoning_summary = reasoning_summary
        self.unsupported: Unsupported = unsupported
        self.first_token_timeout = first_token_timeout
        self.preset = preset
        self._client = client
        self._access = Access(api_key, base_url, preset, token=token, api_version=api_version)
        self._access.url(_PATHS[api])  # raises now rather than at the first question
        self._window = Window(preset.adapter, context_tokens)
        self._headers = _headers(organization, project, headers or {})
        self._upstream = Upstream(
            preset.name,
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
            max_retries=max_retries,
        )

    async def stream(self, request: ChatRequest) -> Events:
        """Ask the model; yield its answer as it comes."""
        preset, model = self.preset, request.parameters.model or self.model
        if not model:
            raise ConfigurationFailed(
                f"No model of {preset.name} is named.", hint="Pass model to the adapter."
            )
        lacks = Lacks(self._name_in_table(), preset.name, model, self.unsupported)
        body = self._body(request, model, lacks, await self._window.of(model, request))
        if self._client is not None:
            granted = Pass({}, self._client.api_key)
        else:
            granted = await self._access.enter()
        for warning in lacks.warnings:
            yield warning
        sent = dumped(body)
        service = Service(
            preset.name,
            model,
            granted.secret,
            _SPEAKS[self.api],
        )
        events = answered(
            self._open(body, sent, model, granted, service),
            lambda: (self._reader(request, service), Frames()),
            service,
            first_token_timeout=self.first_token_timeout,
            retries=0 if self._client else self._upstream.max_retries,
            whole=True,
        )
        async with aclosing(events):
            async for event in events:
                if isinstance(event, Usage):
                    self._window.learn(model, request, sent, event)
                yield event

    async def aclose(self) -> None:
        """Close the connections. A `client` of your own stays open."""
        await self._upstream.aclose()

    def _name_in_table(self) -> str:
        return self.preset.adapter if self.api == "chat" else "openai_responses"

    def _reader(self, request: ChatRequest, service: Service) -> Reader:
        provider = self.preset.adapter
        if self.api == "chat":
            return Completion(request, service, provider=provider, signer=self._signer())
        return Response(request, service, provider=provider)

    def _signer(self) -> str:
        if self.api == "responses":
            return SIGNER
        return self.preset.adapter if self.preset.wants_thoughts else ""

    def _body(
        self, request: ChatRequest, model: str, lacks: Lacks, context_tokens: int
    ) -> dict[str, Any]:
        preset, profile, official = self.preset, profile_of(model), self._is_official()
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
            lacking=profile.lacking,
        )
        make = body_of if self.api == "chat" else response_body_of
        return make(request, model, habits, lacks)

    def _is_official(self) -> bool:
        if self._client is not None:
            return str(self._client.base_url).rstrip("/") == self.preset.base_url
        return self._access.official

    def _open(
        self, body: dict[str, Any], sent: bytes, model: str, granted: Pass, service: Service
    ) -> AbstractAsyncContextManager[Reply, bool | None]:
        if self._client is not None:
            from copilot_runtime.adapters.openai.client import asked_with

            return asked_with(self._client, self.api, body, service)
        url = self._access.url(_PATHS[self.api], model)
        return self._upstream.post(url, sent, {**self._headers, **granted.headers})


def _headers(
    organization: str | None, project: str | None, others: Mapping[str, str]
) -> dict[str, str]:
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream, application/json",
        "accept-encoding": "identity",  # a compressing proxy would hold chunks back
        "user-agent": "copilot-runtime",
    }
    if organization:
        headers["openai-organization"] = organization
    if project:
        headers["openai-project"] = project
    return {**headers, **{name.lower(): value for name, value in others.items()}}
