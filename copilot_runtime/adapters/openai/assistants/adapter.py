"""Assistants, threads and runs: an API that OpenAI itself closed on 26 August 2026.

It is for servers that still speak it; what OpenAI offers instead is
`OpenAIAdapter(api="responses")`. https://developers.openai.com/api/docs/deprecations
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Unpack

from copilot_runtime.adapters.api_key import ApiKey
from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.errors import Service
from copilot_runtime.adapters.http_adapter import HTTPAdapter, HTTPOptions
from copilot_runtime.adapters.openai.assistants.request import (
    Place,
    beginning_of,
    continuation_of,
    outputs_for,
)
from copilot_runtime.adapters.openai.assistants.stream import EXTENSION, AssistantRun
from copilot_runtime.adapters.openai.auth import Access
from copilot_runtime.adapters.streaming import ProviderRequest, encode_body
from copilot_runtime.errors import ConfigurationFailed, CopilotError
from copilot_runtime.http.sse import SSEDecoder
from copilot_runtime.interfaces import ChatRequest
from copilot_runtime.jsonvalue import JsonObject

NAME = "OpenAI Assistants"

_OVER = ("completed", "incomplete", "failed", "expired", "cancelled")
_KEPT = 10_000
"""How many conversations are remembered."""

_ID = re.compile(r"[\w-]+", re.ASCII)

_BUILT_IN = ("code_interpreter", "file_search")


class OpenAIAssistantsAdapter(HTTPAdapter):
    """Asks an assistant on a server that speaks the Assistants API, version 2.

    The server keeps the conversation: only what is new is sent. Where it stands is remembered
    here, and by CopilotKit v1 clients in the extension `openaiAssistantAPI`, whose ids are as
    good as a key to the thread. When nobody remembers, or a run was broken off, a new thread
    begins with the whole conversation. `tools` are the assistant's built-in ones, to be named
    where actions are. The application's instructions take the place of the assistant's, as in
    CopilotKit. `options` are those of `HTTPOptions`.
    """

    def __init__(
        self,
        assistant_id: str,
        *,
        base_url: str | None = None,
        api_key: ApiKey | None = None,
        tools: Sequence[str] = _BUILT_IN,
        **options: Unpack[HTTPOptions],
    ) -> None:
        super().__init__("", adapter="openai_assistants", service=NAME, **options)
        self.assistant_id = assistant_id
        self.tools = tuple(tools)
        self._access = Access(api_key, base_url)
        if self._access.official and base_url is None:
            raise ConfigurationFailed(
                "OpenAI closed its Assistants API on 26 August 2026.",
                hint="Use OpenAIAdapter(api='responses'), or pass the base_url of a server "
                "that still speaks it.",
            )
        self._headers.setdefault("openai-beta", "assistants=v2")
        self._places: OrderedDict[tuple[str | None, str], Place] = OrderedDict()
        self._cancelling: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Close the connections."""
        for task in self._cancelling:
            task.cancel()
        await asyncio.gather(*self._cancelling, return_exceptions=True)
        await super().aclose()

    def _choose_model(self, request: ChatRequest) -> str:
        del request  # its model is sent beside the assistant
        return self.assistant_id

    async def _prepare(
        self, request: ChatRequest, model: str, capabilities: CapabilityFilter
    ) -> ProviderRequest:
        granted = await self._access.enter()
        headers = {**self._headers, **granted.headers}
        known = self._take_place(request)
        path, content = self._next(
            request, known or await self._recalled(request, headers), capabilities
        )
        service = Service(NAME, model, granted.secret, "a stream of thread events")
        run = AssistantRun(request, service)

        def on_close() -> None:
            if run.place is None:  # nothing has begun
                self._keep(request, known)
            elif run.finished:
                self._keep(request, run.place)
            elif run.failure is None:
                self._cancel(run.place, headers)

        body = encode_body(content)
        return ProviderRequest(
            exchange=self._upstream.post(self._access.url(path), body, headers),
            service=service,
            new_reader=lambda: (run, SSEDecoder()),
            accepts_json=False,
            on_close=on_close,
        )

    def _next(
        self, request: ChatRequest, place: Place | None, capabilities: CapabilityFilter
    ) -> tuple[str, JsonObject]:
        """Return where to send what."""
        if place is not None:
            if place.waiting:
                if outputs := outputs_for(request, place.waiting):
                    return f"{_path(place)}/submit_tool_outputs", outputs
                # the person went on without the results: that thread waits in vain
            elif body := continuation_of(request, self.assistant_id, self.tools, capabilities):
                return f"threads/{place.thread_id}/runs", body
        return "threads/runs", beginning_of(request, self.assistant_id, self.tools, capabilities)

    def _take_place(self, request: ChatRequest) -> Place | None:
        """Return where the conversation stands; forgotten unless this run ends well."""
        return self._places.pop((request.user, request.thread_id), None)

    def _keep(self, request: ChatRequest, place: Place | None) -> None:
        if request.thread_id and place is not None:
            self._places[request.user, request.thread_id] = place
            if len(self._places) > _KEPT:
                self._places.popitem(last=False)

    async def _recalled(self, request: ChatRequest, headers: Mapping[str, str]) -> Place | None:
        """Return where the client says that the conversation stands, if it can go on there."""
        said = request.extensions.get(EXTENSION) or {}
        thread, run = said.get("threadId") or "", said.get("runId") or ""
        if not _ID.fullmatch(thread) or not _ID.fullmatch(run or "-"):
            return None  # a client's word must not become another path
        if not run:
            return Place(thread)
        url = self._access.url(_path(Place(thread, run)))
        reply = await self._upstream.request_json("GET", url, None, headers)
        found = reply.body if reply.status == 200 and isinstance(reply.body, dict) else {}
        if found.get("status") == "requires_action":
            calls = found["required_action"]["submit_tool_outputs"]["tool_calls"]
            return Place(thread, run, frozenset(call["id"] for call in calls))
        return Place(thread, run) if found.get("status") in _OVER else None

    def _cancel(self, place: Place, headers: Mapping[str, str]) -> None:
        """Stop a run nobody listens to: unlike other APIs, this one goes on without a listener."""

        async def ask() -> None:
            url = self._access.url(f"{_path(place)}/cancel")
            with suppress(CopilotError):
                await self._upstream.request_json("POST", url, {}, headers)

        task = asyncio.create_task(ask(), name=f"cancel:{place.run_id}")
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)


def _path(place: Place) -> str:
    return f"threads/{place.thread_id}/runs/{place.run_id}"
