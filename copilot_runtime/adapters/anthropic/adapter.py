"""Anthropic's Claude, and every server that speaks its Messages API."""

import os
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit, urlunsplit

from copilot_runtime.adapters.anthropic.request import PROVIDER, Settings, asking
from copilot_runtime.adapters.anthropic.stream import Answer
from copilot_runtime.adapters.api_key import ApiKey, fetched
from copilot_runtime.adapters.capabilities import Lacks, Unsupported
from copilot_runtime.adapters.context_window import Window
from copilot_runtime.adapters.errors import Service
from copilot_runtime.adapters.json_body import dumped
from copilot_runtime.adapters.streaming import answered
from copilot_runtime.errors import ConfigurationFailed
from copilot_runtime.events import Usage
from copilot_runtime.http.client import Upstream
from copilot_runtime.http.sse import Frames
from copilot_runtime.interfaces import ChatRequest, Events

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

NAME = "Anthropic"
URL = "https://api.anthropic.com"

_SPEAKS = "a stream of the Messages API"
_USUAL_WINDOW = 200_000


class AnthropicAdapter:
    """Asks a Claude model, or any server with the same API at `base_url` (without `/v1`).

    Without `api_key`, `auth_token` and `base_url`, `ANTHROPIC_API_KEY`, `ANTHROPIC_AUTH_TOKEN` and
    `ANTHROPIC_BASE_URL` count; or those of `client`, an `anthropic.AsyncAnthropic`, which is asked
    for nothing else. `thinking` is whether to think (None: as the model does by itself), or for
    models before 4.6 for how many tokens; a client's `reasoning_effort` counts too. `cache` lets
    the provider keep instructions, tools and conversation for the next request, for five minutes
    or `"1h"`. With `eager_arguments`, those of calls arrive while the model writes them, and not
    when each value is whole. `betas` are names for the header `anthropic-beta`. Times are in
    seconds.
    """

    def __init__(
        self,
        model: str = "claude-sonnet-5-5",
        *,
        api_key: ApiKey | None = None,
        auth_token: ApiKey | None = None,
        base_url: str | None = None,
        client: "AsyncAnthropic | None" = None,
        headers: Mapping[str, str] | None = None,
        max_tokens: int | None = None,
        thinking: bool | int | None = None,
        cache: bool | Literal["5m", "1h"] = True,
        eager_arguments: bool = True,
        betas: Sequence[str] = (),
        api_version: str | None = None,
        unsupported: Unsupported = "warn",
        context_tokens: int | None = None,
        connect_timeout: float = 10.0,
        first_token_timeout: float | None = None,
        idle_timeout: float = 120.0,
        max_retries: int = 2,
    ) -> None:
        self.model = model
        self.max_tokens = max_tokens
        self.thinking = thinking
        self.cache: bool | Literal["5m", "1h"] = cache
        self.eager_arguments = eager_arguments
        self.betas = betas
        self.api_version = api_version
        self.unsupported: Unsupported = unsupported
        self._window = Window(PROVIDER, context_tokens, usual=_USUAL_WINDOW)
        self.first_token_timeout = first_token_timeout
        self._client = client
        base_url = base_url or (str(client.base_url) if client else None)
        self._base_url = base_url or os.environ.get("ANTHROPIC_BASE_URL") or URL
        self._url = _messages_at(self._base_url)
        self._key = api_key
        self._token = auth_token
        if not (api_key or auth_token or client):
            self._key = os.environ.get("ANTHROPIC_API_KEY")
            self._token = None if self._key else os.environ.get("ANTHROPIC_AUTH_TOKEN")
        self._headers = {
            "content-type": "application/json",
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",  # a compressing proxy would hold events back
            "user-agent": "copilot-runtime",
            **{name.lower(): value for name, value in (headers or {}).items()},
        }
        self._upstream = Upstream(
            NAME,
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
            max_retries=max_retries,
        )

    async def stream(self, request: ChatRequest) -> Events:
        """Ask the model; yield its answer as it comes."""
        model = request.parameters.model or self.model
        lacks = Lacks(PROVIDER, NAME, model, self.unsupported)
        room = await self._window.of(model, request)
        asked = asking(request, model, self._settings(room), lacks)
        access, secret = await self._access()
        for warning in lacks.warnings:
            yield warning
        service = Service(NAME, model, secret, speaks=_SPEAKS)
        sent = dumped(asked.body)
        headers = {**asked.headers, **self._headers, **access}
        events = answered(
            self._upstream.post(self._url, sent, headers),
            lambda: (Answer(request, service), Frames()),
            service,
            first_token_timeout=self.first_token_timeout,
            retries=self._upstream.max_retries,
            whole=True,
        )
        async with aclosing(events):
            async for event in events:
                if type(event) is Usage:
                    self._window.learn(model, request, sent, event)
                yield event

    async def aclose(self) -> None:
        """Close the connections. A `client` of your own stays open."""
        await self._upstream.aclose()

    def _settings(self, room: int) -> Settings:
        return Settings(
            context_tokens=room,
            max_tokens=self.max_tokens,
            thinking=self.thinking,
            cache=self.cache,
            eager=self.eager_arguments,
            version=self.api_version,
            betas=self.betas,
        )

    async def _access(self) -> tuple[dict[str, str], str | None]:
        """Return the headers that let us in, and the secret in them. Raises if there is none."""
        if self._client is not None and not (self._key or self._token):
            headers = {name.lower(): value for name, value in self._client.auth_headers.items()}
            return headers, self._client.api_key or self._client.auth_token
        secret = await fetched(self._key or self._token, NAME)
        if not secret and self._base_url.rstrip("/") == URL:
            raise ConfigurationFailed(
                "There is no API key for Anthropic.",
                hint="Set ANTHROPIC_API_KEY, or pass api_key or base_url.",
            )
        if not secret:
            return {}, None
        if self._key:
            return {"x-api-key": secret}, secret
        return {"authorization": f"Bearer {secret}"}, secret


def _messages_at(base_url: str) -> str:
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationFailed(
            f"The base URL {base_url!r} is not an address.",
            hint=f"It looks like {URL} (ANTHROPIC_BASE_URL or base_url).",
        )
    path = parts.path.rstrip("/").removesuffix("/v1")
    return urlunsplit(parts._replace(path=f"{path}/v1/messages"))
