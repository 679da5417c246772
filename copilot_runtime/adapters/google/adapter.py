"""Google's Gemini, at Google AI (an API key) and at Vertex AI (a project)."""

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from copilot_runtime.adapters.api_key import ApiKey
from copilot_runtime.adapters.capabilities import Lacks, Unsupported
from copilot_runtime.adapters.errors import Service
from copilot_runtime.adapters.google.auth import Access
from copilot_runtime.adapters.google.request import body_of
from copilot_runtime.adapters.google.stream import Generation
from copilot_runtime.adapters.json_body import dumped
from copilot_runtime.adapters.profiles import profile_of
from copilot_runtime.adapters.streaming import answered
from copilot_runtime.http.client import Upstream
from copilot_runtime.http.sse import Frames
from copilot_runtime.interfaces import ChatRequest, Events

NAME = "Google"

_LONGEST_EVENT = 64 * 1024 * 1024
"""An image that the model made comes in one piece."""


class GoogleAdapter:
    """Asks a model of Google.

    By default at Google AI, with `api_key`, `GOOGLE_API_KEY` or `GEMINI_API_KEY`. With `project`
    at Vertex AI, in `location` (`global`), with a `token`, or what fetches one, with `credentials`
    of `google-auth`, or with the application default ones; `vertex=True` with a key alone is its
    express mode.

    `include_thoughts` asks for summaries of what the model thinks. `extra` is laid over the body
    of each request, for what has no parameter here: `safetySettings`, `cachedContent`, `tools`.
    Images that the model makes are `Activity` events of the type `image`. Times are in seconds:
    `first_token_timeout` is how long the first word may take, retries included, `idle_timeout`
    how long the model may be silent. `unsupported` says what becomes of a wish that the model
    cannot fulfil.
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
        headers: Mapping[str, str] | None = None,
        include_thoughts: bool = False,
        extra: Mapping[str, Any] | None = None,
        context_tokens: int | None = None,
        unsupported: Unsupported = "warn",
        connect_timeout: float = 10.0,
        first_token_timeout: float | None = None,
        idle_timeout: float = 120.0,
        max_retries: int = 2,
    ) -> None:
        self.model = model
        self.include_thoughts = include_thoughts
        self.extra = extra
        self.context_tokens = context_tokens
        self.unsupported: Unsupported = unsupported
        self.first_token_timeout = first_token_timeout
        self._access = Access(
            api_key,
            base_url,
            vertex=vertex,
            project=project,
            location=location,
            token=token,
            credentials=credentials,
        )
        self._headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "accept-encoding": "identity",  # a compressing proxy would hold chunks back
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
        lacks = Lacks("google", NAME, model, self.unsupported)
        body = body_of(
            request,
            model,
            lacks,
            context_tokens=self.context_tokens or profile_of(model).context_tokens,
            include_thoughts=self.include_thoughts,
            extra=self.extra,
        )
        granted, secret = await self._access.enter()
        for warning in lacks.warnings:
            yield warning
        service = Service(NAME, model, secret, "a stream of Gemini's chunks")
        events = answered(
            self._upstream.post(
                self._access.url(model), dumped(body), {**self._headers, **granted}
            ),
            lambda: (Generation(request, service), Frames(limit=_LONGEST_EVENT)),
            service,
            first_token_timeout=self.first_token_timeout,
            retries=self._upstream.max_retries,
            whole=True,
        )
        async with aclosing(events):
            async for event in events:
                yield event

    async def aclose(self) -> None:
        """Close the connections."""
        await self._upstream.aclose()
