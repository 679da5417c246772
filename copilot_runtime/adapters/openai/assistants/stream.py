"""From the events of the Assistants API to ours.

https://developers.openai.com/api/reference/resources/beta/subresources/assistants/streaming-events.
The `object` of an event says what it is, and the `status` of a run how it goes.
"""

from typing import Any

from copilot_runtime.adapters.errors import Service, read_stream_error
from copilot_runtime.adapters.openai.assistants.request import ThreadPosition
from copilot_runtime.adapters.openai.stream import build_usage
from copilot_runtime.adapters.reader import JSONReader
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.events import Custom, Event, Usage

EXTENSION = "openaiAssistantAPI"
"""The extension by which CopilotKit v1 clients remember thread and run."""

_STOPS = {"completed": "stop", "requires_action": "tool_calls", "incomplete": "length"}
_FAILURES = {"failed", "expired", "cancelled"}


class AssistantRunReader(JSONReader):
    """Reads one part of a run: up to its end, or until it waits for results."""

    def __init__(self, request: ChatRequest, service: Service) -> None:
        super().__init__(request, service)
        self.position: ThreadPosition | None = None
        """Where the conversation stands; None before the run has begun."""
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

    def end(self) -> list[Event]:
        """Return where the conversation stands, and the counts of tokens of the run."""
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
            case None if data.get("error") or data.get("message"):
                raise read_stream_error(self._service, data.get("error") or data)
            case _:
                pass

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
                continue  # what the server runs itself
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
        self._assembly.end()
        self.finished = True
        self.position = ThreadPosition(run["thread_id"], run["id"], waiting)
        reason = "refusal" if self._refused and reason == "stop" else reason
        self._usage = build_usage(
            run.get("model") or "", "openai_assistants", run.get("usage"), reason
        )

    def _list_waiting(self, run: dict[str, Any]) -> list[str]:
        """Return the calls a run waits for; begin those of which no piece has come."""
        action = run.get("required_action") or {}
        calls = (action.get("submit_tool_outputs") or {}).get("tool_calls") or ()
        for call in calls:
            if call["id"] not in self._call_ids:
                function = call["function"]
                self._assembly.call(None, call["id"], function["name"], function["arguments"])
        return [call["id"] for call in calls]
