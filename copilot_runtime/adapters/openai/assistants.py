"""Assistants, threads and runs: an API that OpenAI itself closed on 26 August 2026.

It is for servers that still have it. OpenAI replaced it by
`OpenAIAdapter(api="responses")`. https://developers.openai.com/api/docs/deprecations
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Unpack, assert_never

from copilot_runtime.adapters.capabilities import CapabilityFilter
from copilot_runtime.adapters.errors import Service, read_stream_error
from copilot_runtime.adapters.history import (
    HistoryItem,
    Thought,
    ToolExchange,
    find_last_turn,
    format_result,
    repair_history,
)
from copilot_runtime.adapters.http_adapter import ApiKey, HTTPAdapter, HTTPOptions
from copilot_runtime.adapters.json_reader import JSONReader
from copilot_runtime.adapters.openai.auth import OpenAIAuth
from copilot_runtime.adapters.openai.content import build_content
from copilot_runtime.adapters.openai.request import (
    OPENAI,
    build_response_format,
    build_tool_choice,
)
from copilot_runtime.adapters.openai.stream import build_usage
from copilot_runtime.adapters.streaming import ProviderRequest, encode_body
from copilot_runtime.adapters.tools import build_tools
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.events import Custom, Event, Usage
from copilot_runtime.api.messages import ImageMessage, ResultMessage, TextMessage
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.base.jsonvalue import JsonObject, get_text
from copilot_runtime.http.sse import SSEDecoder

NAME = "OpenAI Assistants"

_FINAL_STATUSES = ("completed", "incomplete", "failed", "expired", "cancelled")
_MAX_POSITIONS = 10_000
"""Maximum number of conversations whose position is stored."""

_ID = re.compile(r"[\w-]+", re.ASCII)

_BUILT_IN_TOOLS = ("code_interpreter", "file_search")


@dataclass(frozen=True, slots=True)
class ThreadPosition:
    """The position of a conversation on the server: its thread and last run.

    `waiting` are the calls whose results that run waits for.
    """

    thread_id: str
    run_id: str = ""
    waiting: frozenset[str] = frozenset()

    @property
    def path(self) -> str:
        """The path of the last run."""
        return f"threads/{self.thread_id}/runs/{self.run_id}"


class OpenAIAssistantsAdapter(HTTPAdapter):
    """Sends chat requests to an assistant, on a server with the Assistants API, version 2.

    The server stores the conversation in a thread: only new messages are sent. The position in it
    is stored here, and by CopilotKit v1 clients in the extension `openaiAssistantAPI`, whose ids
    are as good as a key to the thread. Without a position, or after a run that was broken off, a
    new thread begins with the whole conversation. The application's instructions take the place of
    the assistant's, as in CopilotKit.

    Args:
        assistant_id: The id of the assistant on the server.
        base_url: The address of the server; by default `OPENAI_BASE_URL`.
        api_key: The key, or a function that returns it; by default `OPENAI_API_KEY`.
        tools: The assistant's built-in tools, which must be named again beside actions.
        options: Those of `HTTPOptions`.

    Raises:
        ConfigurationFailed: There is no address but OpenAI's, which has closed this API.
    """

    def __init__(
        self,
        assistant_id: str,
        *,
        base_url: str | None = None,
        api_key: ApiKey | None = None,
        tools: Sequence[str] = _BUILT_IN_TOOLS,
        **options: Unpack[HTTPOptions],
    ) -> None:
        super().__init__("", adapter="openai_assistants", service=NAME, **options)
        self.assistant_id = assistant_id
        self.tools = tuple(tools)
        self._auth = OpenAIAuth(api_key, base_url)
        if OPENAI.is_at(self._auth.base_url) and base_url is None:
            raise ConfigurationFailed(
                "OpenAI closed its Assistants API on 26 August 2026.",
                hint="Use OpenAIAdapter(api='responses'), or pass the base_url of a server "
                "that still speaks it.",
            )
        self._headers.setdefault("openai-beta", "assistants=v2")
        self._positions: OrderedDict[tuple[str | None, str], ThreadPosition] = OrderedDict()
        self._cancelling: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Close the connections; runs that are being cancelled are left to the server."""
        for task in self._cancelling:
            task.cancel()
        await asyncio.gather(*self._cancelling, return_exceptions=True)
        await super().aclose()

    async def check_key(self) -> None:
        await self._auth.authorize()

    def _choose_model(self, request: ChatRequest) -> str:
        del request  # its model is sent beside the assistant
        return self.assistant_id

    async def _prepare(
        self, request: ChatRequest, model: str, capabilities: CapabilityFilter
    ) -> ProviderRequest:
        authorization = await self._auth.authorize()
        headers = {**self._headers, **authorization.headers}
        # it is saved again when this run ends well
        saved = self._positions.pop((request.user, request.thread_id), None)
        position = saved or await self._restore_position(request, headers)
        path, content = build_request(
            request, position, self.assistant_id, self.tools, capabilities
        )
        service = Service(NAME, model, authorization.secret, "a stream of thread events")
        reader = AssistantRunReader(request, service)

        def on_close() -> None:
            if reader.position is None:  # the run has not begun
                self._save_position(request, saved)
            elif reader.finished:
                self._save_position(request, reader.position)
            elif reader.failure is None:
                self._cancel(reader.position, headers)

        body = encode_body(content)
        return ProviderRequest(
            exchange=self._upstream.post(self._auth.url(path), body, headers),
            service=service,
            new_reader=lambda: (reader, SSEDecoder()),
            content={},
            accepts_json=False,
            on_close=on_close,
        )

    def _save_position(self, request: ChatRequest, position: ThreadPosition | None) -> None:
        if request.thread_id and position is not None:
            self._positions[request.user, request.thread_id] = position
            if len(self._positions) > _MAX_POSITIONS:
                self._positions.popitem(last=False)

    async def _restore_position(
        self, request: ChatRequest, headers: Mapping[str, str]
    ) -> ThreadPosition | None:
        """Return the position stored by the client if the conversation can continue there."""
        extension = request.extensions.get(EXTENSION) or {}
        thread, run = extension.get("threadId") or "", extension.get("runId") or ""
        if not _ID.fullmatch(thread) or not _ID.fullmatch(run or "-"):
            return None  # a client's text must not become another path
        if not run:
            return ThreadPosition(thread)
        url = self._auth.url(ThreadPosition(thread, run).path)
        reply = await self._upstream.request_json("GET", url, None, headers)
        run_body = reply.body if reply.status == 200 and isinstance(reply.body, dict) else {}
        if run_body.get("status") == "requires_action":
            calls = run_body["required_action"]["submit_tool_outputs"]["tool_calls"]
            return ThreadPosition(thread, run, frozenset(call["id"] for call in calls))
        return ThreadPosition(thread, run) if run_body.get("status") in _FINAL_STATUSES else None

    def _cancel(self, position: ThreadPosition, headers: Mapping[str, str]) -> None:
        """Cancel a run that is no longer read, because it would continue on the server."""

        async def send() -> None:
            url = self._auth.url(f"{position.path}/cancel")
            with suppress(CopilotError):
                await self._upstream.request_json("POST", url, {}, headers)

        task = asyncio.create_task(send(), name=f"cancel:{position.run_id}")
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)


EXTENSION = "openaiAssistantAPI"
"""The extension in which CopilotKit v1 clients store thread and run."""

_STOPS = {"completed": "stop", "requires_action": "tool_calls", "incomplete": "length"}
_FAILURES = {"failed", "expired", "cancelled"}


class AssistantRunReader(JSONReader):
    """Reads one part of a run: up to its end, or until it waits for results."""

    def __init__(self, request: ChatRequest, service: Service) -> None:
        super().__init__(request, service)
        self.position: ThreadPosition | None = None
        """The position of the conversation; `None` before the run has started."""
        self._call_ids: set[str] = set()
        self._refused = False
        self._position_event: Custom | None = None
        self._usage: Usage | None = None

    def read(self, payloads: list[bytes]) -> list[Event]:
        """Return the events of a block of payloads."""
        events = super().read(payloads)
        if events and self._position_event is not None:  # alone it would count as a first word
            events.insert(0, self._position_event)
            self._position_event = None
        return events

    def _conclude(self) -> list[Event]:
        """Return the position of the conversation, and the `Usage` of the run."""
        return [event for event in (self._position_event, self._usage) if event is not None]

    def _take(self, data: dict[str, Any]) -> None:
        match data.get("object"):
            case "thread.message.delta":
                self._take_text(data)
            case "thread.message":
                if data.get("status") in ("completed", "incomplete"):
                    self._assembly.end_block()
            case "thread.run.step.delta":
                self._take_calls(data["delta"].get("step_details") or {})
            case "thread.run":
                self._take_run(data)
            case _:
                self._raise_error(data)

    def _take_text(self, data: dict[str, Any]) -> None:
        if not self._assembly.answer_id:
            self._assembly.begin(data.get("id") or "")
        for part in data["delta"].get("content") or ():
            text = part.get("text") or {}
            if refusal := part.get("refusal"):
                self._refused = True
                self._assembly.text(refusal)
            elif value := text.get("value"):
                self._assembly.text(value)

    def _take_calls(self, details: dict[str, Any]) -> None:
        for call in details.get("tool_calls") or ():
            if call.get("type", "function") != "function":
                continue  # a built-in tool, which the server runs
            function = call.get("function") or {}
            id, name = call.get("id") or "", function.get("name") or ""
            self._call_ids.add(id)
            self._assembly.call(call.get("index"), id, name, function.get("arguments") or "")

    def _take_run(self, run: dict[str, Any]) -> None:
        status = run["status"]
        if self.position is None:
            self.position = ThreadPosition(run["thread_id"], run["id"])
            value = {"threadId": run["thread_id"], "runId": run["id"]}
            self._position_event = Custom(name=EXTENSION, value=value)
        if status in _FAILURES:
            error = run.get("last_error") or {"message": f"The run is {status}."}
            raise read_stream_error(self._service, error)
        if reason := _STOPS.get(status):
            self._finish(run, reason)

    def _finish(self, run: dict[str, Any], reason: str) -> None:
        waiting = frozenset(self._list_waiting(run))
        self._stop = "refusal" if self._refused and reason == "stop" else reason
        self._end_answer()
        self.finished = True
        self.position = ThreadPosition(run["thread_id"], run["id"], waiting)
        self._usage = build_usage(
            get_text(run, "model"), "openai_assistants", run.get("usage"), self._stop
        )

    def _list_waiting(self, run: dict[str, Any]) -> list[str]:
        """Return the ids of the calls that a run waits for; start those without a chunk so far."""
        action = run.get("required_action") or {}
        calls = (action.get("submit_tool_outputs") or {}).get("tool_calls") or ()
        for call in calls:
            if call["id"] not in self._call_ids:
                function = call["function"]
                self._assembly.call(None, call["id"], function["name"], function["arguments"])
        return [call["id"] for call in calls]


def build_request(
    request: ChatRequest,
    position: ThreadPosition | None,
    assistant: str,
    tools: Sequence[str],
    capabilities: CapabilityFilter,
) -> tuple[str, JsonObject]:
    """Return the path and the body that continue at `position`, or create a thread."""
    items = repair_history(capabilities.filter_media(request.messages, shows_results=False))
    if position is not None and position.waiting:
        if outputs := _build_tool_outputs(request, items, position.waiting):
            return f"{position.path}/submit_tool_outputs", outputs
        position = None  # the user continued without the results: abandon that thread
    run = _build_run(request, items, assistant, tools, capabilities)
    texts = [item for item in items if _find_role(item) in ("user", "assistant")]
    latest = [*takewhile(lambda item: _find_role(item) == "user", reversed(texts))]
    if position is not None and latest:
        messages = _encode_messages(latest[::-1], capabilities)
        return f"threads/{position.thread_id}/runs", {**run, "additional_messages": messages}
    messages = _encode_messages(texts, capabilities)
    return "threads/runs", {**run, "thread": {"messages": messages}}


def _build_tool_outputs(
    request: ChatRequest, items: Sequence[HistoryItem], waiting: frozenset[str]
) -> JsonObject | None:
    """Return the body that submits the results of these calls, or `None` if one is missing."""
    returned = waiting & {one.call_id for one in request.messages if isinstance(one, ResultMessage)}
    outputs = [
        {"tool_call_id": item.call.id, "output": format_result(item.result)}
        for item in items
        if isinstance(item, ToolExchange) and item.call.id in returned
    ]
    return {"stream": True, "tool_outputs": outputs} if len(outputs) == len(waiting) else None


def _build_run(
    request: ChatRequest,
    items: Sequence[HistoryItem],
    assistant: str,
    built_ins: Sequence[str],
    capabilities: CapabilityFilter,
) -> JsonObject:
    """Return the fields of every run. A thread has no instructions, so they are among them."""
    texts = [item for item in items if isinstance(item, TextMessage)]
    instructions = [one.content for one in texts if one.role in ("system", "developer")]
    parameters = capabilities.apply(request.parameters)
    tools = build_tools(request.actions)
    body: JsonObject = {
        "assistant_id": assistant,
        "stream": True,
        "instructions": "\n\n".join(instructions) or None,
        "model": parameters.model or None,
        # these replace the assistant's own tools, so its built-in ones are listed again
        "tools": [*tools, *({"type": name} for name in built_ins)] if tools else None,
        "tool_choice": build_tool_choice(parameters) if tools else None,
        "parallel_tool_calls": parameters.parallel_tool_calls if tools else None,
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
        "max_completion_tokens": parameters.max_tokens,
        "response_format": build_response_format(parameters),
    }
    return {name: value for name, value in body.items() if value is not None}


def _find_role(item: HistoryItem) -> str:
    return item.role if isinstance(item, TextMessage | ImageMessage) else "assistant"


def _encode_messages(
    items: Sequence[HistoryItem], capabilities: CapabilityFilter
) -> list[JsonObject]:
    """Return items as messages of a thread, which are only texts and addresses of images."""
    messages: list[JsonObject] = []
    turn = find_last_turn(items)
    for at, item in enumerate(items):
        role, content = _find_role(item), _encode_content(item, capabilities, new=at >= turn)
        if content:
            messages.append({"role": role, "content": content})
    return messages


def _encode_content(
    item: HistoryItem, capabilities: CapabilityFilter, *, new: bool
) -> str | list[Any]:
    match item:
        case ToolExchange():
            # a new thread cannot contain calls; as text, the model sees its earlier calls
            return f"{item.call.name}({item.call.arguments}) → {format_result(item.result)}"
        case ImageMessage(bytes=url) if url.startswith(("http://", "https://")):
            return [{"type": "image_url", "image_url": {"url": url}}]
        case ImageMessage():
            if new and (why := capabilities.reason("images")):
                capabilities.omit("images", why)
            return ""
        case TextMessage():
            return build_content(item, capabilities, new=new)
        case Thought():
            return ""
        case _:
            assert_never(item)
