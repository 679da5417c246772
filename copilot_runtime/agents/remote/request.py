"""From a run to what a remote endpoint is asked: messages and actions in the words of v1."""

from collections.abc import Sequence
from datetime import UTC, datetime

from copilot_runtime.interfaces import Resume, RunInput, private_thread_id
from copilot_runtime.jsonvalue import JsonObject, parse_object
from copilot_runtime.messages import (
    ActionExecutionMessage,
    AgentStateMessage,
    ImageMessage,
    Message,
    ResultMessage,
    TextMessage,
)


def build_request_body(run: RunInput, name: str) -> JsonObject:
    """Return the body that asks the agent `name` to answer."""
    known = run.agents.get(run.agent or name)
    state = known.state if known is not None and isinstance(known.state, dict) else {}
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "name": name,
        "threadId": private_thread_id(run.user, run.thread_id),
        **({} if run.node is None else {"nodeName": run.node}),
        # a message does not say when it was written; some servers want to read that it was
        "messages": [
            {"id": message.id, "createdAt": now, **said}
            for message in run.messages
            if (said := _message(message)) is not None
        ],
        "state": state,
        "config": {} if known is None else dict(known.config),
        "properties": {**run.properties},
        "actions": [
            {
                "name": action.name,
                "description": action.description,
                "parameters": dict(action.parameters),
            }
            for action in run.actions
            if action.available != "disabled"
        ],
        "metaEvents": _answers(run.resume),
    }


def _message(message: Message) -> JsonObject | None:
    """Return what v1 has a word for; thoughts and activities are left out."""
    match message:
        case TextMessage():
            said = {"type": "TextMessage", "content": message.content, "role": message.role}
            return {**said, **_parent(message.parent_id)}
        case ActionExecutionMessage():
            return {
                "type": "ActionExecutionMessage",
                "name": message.name,
                "arguments": parse_object(message.arguments),
                **_parent(message.parent_id),
            }
        case ResultMessage():
            return {
                "type": "ResultMessage",
                "actionExecutionId": message.call_id,
                "actionName": message.name,
                "result": message.result,
            }
        case ImageMessage():
            image = {"format": message.format, "bytes": message.bytes, "role": message.role}
            return {"type": "ImageMessage", **image, **_parent(message.parent_id)}
        case AgentStateMessage():
            return {
                "type": "AgentStateMessage",
                "threadId": message.thread_id,
                "agentName": message.agent,
                "nodeName": message.node,
                "runId": message.run_id,
                "active": message.active,
                "role": "assistant",
                "state": message.state,
                "running": message.running,
            }
        case _:
            return None


def _parent(id: str | None) -> JsonObject:
    return {} if id is None else {"parentMessageId": id}


def _answers(resumes: Sequence[Resume]) -> list[JsonObject]:
    return [
        {
            "name": "LangGraphInterruptEvent",
            "value": resume.value,
            "response": resume.response if resume.payload is None else resume.payload,
        }
        for resume in resumes
    ]
