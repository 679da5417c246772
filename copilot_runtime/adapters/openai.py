"""OpenAI, and every server that speaks its chat completions API."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol

from copilot_runtime.adapters._failures import failure
from copilot_runtime.adapters._openai_access import Access, ApiKey
from copilot_runtime.adapters._openai_chunks import Completion
from copilot_runtime.adapters._openai_request import body_of, dumped
from copilot_runtime.adapters._profiles import profile_of
from copilot_runtime.errors import CopilotError, NetworkError
from copilot_runtime.interfaces import ChatRequest, Events
from copilot_runtime.sse import Frames
from copilot_runtime.upstream import Upstream

if TYPE_CHECKING:
    from openai import AsyncOpenAI

NAME = "OpenAI"

_FAILURE_TIME = 5.0
"""Seconds to read what an error says; its status is known before."""


class Reply(Protocol):
    """An answer under way. `finished` says that nothing of interest follows."""

    status: int
    headers: Mapping[str, str]
    finished: bool

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def text(self) -> bytes: ...


class OpenAIAdapter:
    """Asks a model of OpenAI, or of any server with the same API at `base_url`.

    Without `api_key` and `base_url`, `OPENAI_API_KEY` and `OPENAI_BASE_URL` count. `client`, an
    `openai.AsyncOpenAI`, then does addresses, authentication and retries instead of us.
    `context_tokens` overrides what is known of the model; `max_tokens_name="max_tokens"` suits
    older servers. Times are in seconds; `idle_timeout` is how long the model may be silent.
    """

    def __init__(
        self,
        model: str = "gpt-4o",
        *,
        api_key: ApiKey | None = None,
        base_url: str | None = None,
        organization: str | None = None,
        project: str | None = None,
        headers: Mapping[str, str] | None = None,
        client: "AsyncOpenAI | None" = None,
        parallel_tool_calls: bool | None = None,
        keep_system_role: bool = False,
        include_usage: bool = False,
        max_tokens_name: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens",
        context_tokens: int | None = None,
        connect_timeout: float = 10.0,
        idle_timeout: float = 120.0,
        max_retries: int = 2,
    ) -> None:
        self.model = model
        self.parallel_tool_calls = parallel_tool_calls
        self.keep_system_role = keep_system_role
        self.include_usage = include_usage
        self.max_tokens_name = max_tokens_name
        self.context_tokens = context_tokens
        self._client = client
        self._access = Access(api_key, base_url)
        self._url = self._access.url("chat/completions")
        self._headers = _headers(organization, project, headers or {})
        self._upstream = Upstream(
            NAME,
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
            max_retries=max_retries,
        )

    async def stream(self, request: ChatRequest) -> Events:
        """Ask the model; yield its answer as it comes."""
        secret = self._client.api_key if self._client else await self._access.key()
        completion = Completion(request, NAME, secret=secret)
        frames = Frames()
        async with self._open(self._body(request), secret) as reply:
            if not 200 <= reply.status < 300:
                body = await _text_of_failure(reply)
                raise failure(NAME, reply.status, body, reply.headers, secret=secret)
            first = True
            try:
                async for block in reply:
                    if first:
                        first = False
                        # no stream: some proxies answer whole, and a wrong base URL with HTML
                        if block.lstrip()[:1] in (b"{", b"[", b"<"):
                            for event in completion.read([block + await reply.text()]):
                                yield event
                            break
                    for event in completion.read(frames.feed(block)):
                        yield event
                    if completion.done or completion.failure:
                        break
                else:
                    for event in completion.read(frames.finish()):
                        yield event
            except NetworkError:
                if not completion.finished:  # then the answer is whole, whatever follows
                    raise
            reply.finished = completion.done
        if error := completion.failure or _unfinished(completion, frames):
            raise error

    async def aclose(self) -> None:
        """Close the connections. A `client` of your own stays open."""
        await self._upstream.aclose()

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        model = request.parameters.model or self.model
        profile = profile_of(model)
        return body_of(
            request,
            model,
            context_tokens=self.context_tokens or profile.context_tokens,
            developer_role=not self.keep_system_role
            and (self._access.official or profile.developer_role),
            max_tokens_name=self.max_tokens_name,
            parallel_tool_calls=self.parallel_tool_calls,
            include_usage=self.include_usage,
        )

    def _open(
        self, body: dict[str, Any], secret: str | None
    ) -> AbstractAsyncContextManager[Reply, bool | None]:
        if self._client is not None:
            from copilot_runtime.adapters._openai_client import asked_with

            return asked_with(self._client, body, NAME)
        headers = self._headers
        if secret:
            headers = {**headers, "authorization": f"Bearer {secret}"}
        return self._upstream.post(self._url, dumped(body), headers)


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


async def _text_of_failure(reply: Reply) -> bytes:
    with suppress(CopilotError, TimeoutError):  # the status says enough without the text
        async with asyncio.timeout(_FAILURE_TIME):
            return await reply.text()
    return b""


def _unfinished(completion: Completion, frames: Frames) -> CopilotError | None:
    """Return the error of an answer that ended too early, if it did."""
    if completion.finished:
        return None
    if not frames.understood:
        return NetworkError(
            f"{NAME} API error: The answer is not a stream of chat completion chunks.",
            kind=f"{NAME}Error",
            hint="Is the base URL right? It answered with something else.",
        )
    return NetworkError(
        f"{NAME} API error: Premature close",
        kind=f"{NAME}Error",
        hint="The answer ended before the model had finished.",
    )
