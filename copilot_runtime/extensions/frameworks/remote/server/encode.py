"""Write the events of a run as lines of JSON, in the words of CopilotKit's own runtime.

A Node runtime 1.10 passes them on to its browser as they are. It has no words for thoughts, steps
and usage, and none for a failed run: see `endpoint.py`.
"""

from collections.abc import Collection

from copilot_runtime.agents.copilotkit_form import encode_messages
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    AgentState,
    Event,
    Interrupt,
    RunFailed,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject, to_text


class Lines:
    """Writes one run. Calls of the actions `quiet` are left out.

    Those are run here, and the caller has them, too: Node would run each a second time.
    """

    def __init__(self, run: RunInput, *, quiet: Collection[str] = ()) -> None:
        self.failed = False
        self._run = run
        self._quiet = quiet
        self._silent: set[str] = set()
        """The messages and calls that are left out."""

    def feed(self, event: Event) -> bytes:
        """Return the line of an event, if there is a word for it."""
        line = self._line(event)
        return b"" if line is None else dumps(line) + b"\n"

    def _line(self, event: Event) -> JsonObject | None:
        match event:
            case TextMessageStart():
                return self._text_start(event)
            case TextMessageContent(message_id=id, content=content) if id not in self._silent:
                return {"type": "TextMessageContent", "messageId": id, "content": content}
            case TextMessageEnd(message_id=id) if id not in self._silent:
                return {"type": "TextMessageEnd", "messageId": id}
            case ActionExecutionStart():
                return self._call_start(event)
            case ActionExecutionArgs(call_id=id, delta=delta) if id not in self._silent:
                return {"type": "ActionExecutionArgs", "actionExecutionId": id, "args": delta}
            case ActionExecutionEnd(call_id=id) if id not in self._silent:
                return {"type": "ActionExecutionEnd", "actionExecutionId": id}
            case ActionExecutionResult(call_id=id) if id not in self._silent:
                result = {"actionName": event.name, "result": event.result}
                return {"type": "ActionExecutionResult", "actionExecutionId": id, **result}
            case AgentState():
                return self._state(event)
            case Interrupt():
                return _interrupt(event)
            case RunFailed(error=error):
                self.failed = True
                details = {"error": error.message, "message": error.message, "code": error.code}
                return {"type": "RunError", **details}
            case _:
                return None

    def _text_start(self, event: TextMessageStart) -> JsonObject | None:
        if event.role != "assistant":  # whatever begins here is the assistant's for Node
            self._silent.add(event.message_id)
            return None
        self._silent.discard(event.message_id)
        item = {"type": "TextMessageStart", "messageId": event.message_id}
        return {**item, **_parent(event.parent_id)}

    def _call_start(self, event: ActionExecutionStart) -> JsonObject | None:
        if event.name in self._quiet:
            self._silent.add(event.call_id)
            return None
        item = {"actionExecutionId": event.call_id, "actionName": event.name}
        return {"type": "ActionExecutionStart", **item, **_parent(event.parent_id)}

    def _state(self, event: AgentState) -> JsonObject:
        return {
            "type": "AgentStateMessage",
            "threadId": self._run.thread_id,
            "agentName": event.agent,
            "nodeName": event.node,
            "runId": event.run_id or self._run.run_id,
            "active": event.active,
            "role": "assistant",
            "state": dumps(event.state).decode(),
            "running": event.running,
        }


def _interrupt(event: Interrupt) -> JsonObject:
    value = to_text(event.value)
    messages = encode_messages(event.messages)
    if not messages:
        return {"type": "MetaEvent", "name": "LangGraphInterruptEvent", "value": value}
    data = {"value": value, "messages": messages}
    return {"type": "MetaEvent", "name": "CopilotKitLangGraphInterruptEvent", "data": data}


def _parent(id: str | None) -> JsonObject:
    return {} if id is None else {"parentMessageId": id}
