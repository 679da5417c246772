"""Anthropic's Claude, and every server with the same Messages API."""

import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Unpack
from urllib.parse import urlunsplit

from copilot_runtime.adapters.added_fields import name_origin
from copilot_runtime.adapters.anthropic.request import PROVIDER, Settings, build_request
from copilot_runtime.adapters.anthropic.stream import MessageReader
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.context_window import ContextWindow
from copilot_runtime.adapters.errors import Service
from copilot_runtime.adapters.http_adapter import ApiKey, HTTPAdapter, HTTPOptions, resolve_api_key
from copilot_runtime.adapters.sdk_client import SDKResponse, open_sdk_response
from copilot_runtime.adapters.streaming import ProviderRequest, encode_body
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.http.errors import parse_url
from copilot_runtime.http.sse import SSEDecoder

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

NAME = "Anthropic"
URL = "https://api.anthropic.com"

_FORMAT = "a stream of the Messages API"
_USUAL_WINDOW = 200_000


class AnthropicAdapter(HTTPAdapter):
    """Sends chat requests to a Claude model, or to any server with the same API.

    Args:
        model: The model's name, where a request names none.
        api_key: The key, or a function that returns it; without `auth_token`, `ANTHROPIC_API_KEY`.
        auth_token: A bearer token, or a function that returns it; without any key,
            `ANTHROPIC_AUTH_TOKEN`.
        base_url: The address, without `/v1`; by default `ANTHROPIC_BASE_URL`, or Anthropic's.
        client: An `anthropic.AsyncAnthropic` (the extra `anthropic`), which then does address,
            authentication, transport, timeout and retries; it stays open.
        max_tokens: Maximum answer length, reasoning included; None: 32,000, or the model's limit.
        thinking: Whether to think (None: as the model does by itself), or for models before 4.6
            for how many tokens; a client's `reasoning_effort` counts too.
        cache: Whether the provider keeps instructions, tools and conversation for the next
            request: for five minutes, or `"1h"`.
        eager_arguments: Arguments of calls arrive while the model writes them, and not when each
            value is whole.
        betas: Names for the header `anthropic-beta`.
        api_version: The version of the API; None: the newest that takes the parameters.
        context_tokens: The context window in tokens; None: looked up by the model's name.
        options: Those of `HTTPOptions`.

    Raises:
        ConfigurationFailed: The base URL is not an address.
    """

    def __init__(
        self,
        model: str = "claude-sonnet-5-5",
        *,
        api_key: ApiKey | None = None,
        auth_token: ApiKey | None = None,
        base_url: str | None = None,
        client: "AsyncAnthropic | None" = None,
        max_tokens: int | None = None,
        thinking: bool | int | None = None,
        cache: bool | Literal["5m", "1h"] = True,
        eager_arguments: bool = True,
        betas: Sequence[str] = (),
        api_version: str | None = None,
        context_tokens: int | None = None,
        **options: Unpack[HTTPOptions],
    ) -> None:
        super().__init__(model, adapter=PROVIDER, service=NAME, **options)
        self.settings = Settings(
            max_tokens=max_tokens,
            thinking=thinking,
            cache=cache,
            eager=eager_arguments,
            version=api_version,
            betas=betas,
        )
        self._window = ContextWindow(PROVIDER, context_tokens, usual=_USUAL_WINDOW)
        self._client = client
        self._base_url = base_url or os.environ.get("ANTHROPIC_BASE_URL") or URL
        self._key = api_key
        self._token = auth_token
        if not (api_key or auth_token):
            self._key = os.environ.get("ANTHROPIC_API_KEY")
            self._token = None if self._key else os.environ.get("ANTHROPIC_AUTH_TOKEN")
        has_bearer = bool(self._token) and not self._key
        self._url = _build_url(self._base_url, has_authorization=has_bearer)

    async def _prepare(
        self, request: ChatRequest, model: str, capabilities: CapabilityFilter
    ) -> ProviderRequest:
        context_tokens = await self._window.tokens_for(model, request)
        settings = replace(self.settings, context_tokens=context_tokens)
        origin = name_origin("messages", self._find_url(model), model)
        content, headers = build_request(request, model, settings, capabilities, origin)
        body = encode_body(content)
        if self._client is not None:
            secret = self._client.api_key or self._client.auth_token
            service = Service(NAME, model, secret, _FORMAT, origin)
            exchange = _open_response(self._client, content, headers, service)
        else:
            access, secret = await self._access()
            service = Service(NAME, model, secret, _FORMAT, origin)
            headers = {**headers, **self._headers, **access}
            exchange = self._upstream.post(self._url, body, headers)
        return ProviderRequest(
            exchange=exchange,
            service=service,
            on_usage=partial(self._window.calibrate, model, request, body),
            new_reader=lambda: (MessageReader(request, service), SSEDecoder()),
            max_retries=0 if self._client else self._upstream.max_retries,
            content=content,
        )

    def _find_url(self, model: str) -> str:
        del model
        return self._url if self._client is None else str(self._client.base_url)

    async def check_key(self) -> None:
        if self._client is None:
            await self._access()

    async def _access(self) -> tuple[dict[str, str], str | None]:
        """Return the headers that authenticate, and the secret in them. Raises if there is none."""
        secret = await resolve_api_key(self._key or self._token, NAME)
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


def _open_response(
    client: "AsyncAnthropic", body: JsonObject, headers: dict[str, str], service: Service
) -> AbstractAsyncContextManager[SDKResponse, bool | None]:
    import anthropic

    body = {**body}
    named = {name: body.pop(name) for name in ("model", "max_tokens", "messages", "stream")}
    create = client.messages.with_streaming_response.create
    response = create(**named, extra_body=body, extra_headers=headers)
    return open_sdk_response(response, anthropic, service)


def _build_url(base_url: str, *, has_authorization: bool) -> str:
    hint = f"It looks like {URL} (ANTHROPIC_BASE_URL or base_url)."
    parts = parse_url(base_url, "base URL", hint, has_authorization=has_authorization)
    path = parts.path.rstrip("/").removesuffix("/v1")
    return urlunsplit(parts._replace(path=f"{path}/v1/messages"))
