"""Builds the request to an agent of a remote endpoint: messages and actions in JSON of v1."""

from collections.abc import Sequence
from datetime import UTC, datetime

from copilot_runtime.agents.forwarding import describe_actions
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    AgentStateMessage,
    ImageMessage,
    Message,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.api.run_input import AgentInput, Resume, RunInput
from copilot_runtime.base.jsonvalue import JsonObject, as_object, parse_object


def build_request_body(run: RunInput, name: str) -> JsonObject:
    """Return the body of a request to the agent `name`."""
    agent = run.agents.get(run.agent or name, AgentInput())
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "name": name,
        "threadId": run.private_thread_id,
        **({} if run.node is None else {"nodeName": run.node}),
        # our messages have no time; some servers require one
        "messages": [
            {"id": message.id, "createdAt": now, **fields}
            for message in run.messages
            if (fields := _encode_message(message)) is not None
        ],
        "state": as_object(agent.state),
        "config": dict(agent.config),
        "properties": {**run.properties},
        "actions": describe_actions(a for a in run.actions if a.available != "disabled"),
        "metaEvents": _encode_resumes(run.resume),
    }


def _encode_message(message: Message) -> JsonObject | None:
    """Return the JSON of a message, None for reasoning and activities: v1 has none."""
    match message:
        case TextMessage():
            text = {"type": "TextMessage", "content": message.content, "role": message.role}
            return {**text, **_encode_parent(message.parent_id)}
        case ActionExecutionMessage():
            return {
                "type": "ActionExecutionMessage",
                "name": message.name,
                "arguments": parse_object(message.arguments),
                **_encode_parent(message.parent_id),
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
            return {"type": "ImageMessage", **image, **_encode_parent(message.parent_id)}
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


def _encode_parent(id: str | None) -> JsonObject:
    return {} if id is None else {"parentMessageId": id}


def _encode_resumes(resumes: Sequence[Resume]) -> list[JsonObject]:
    return [
        {
            "name": "LangGraphInterruptEvent",
            "value": resume.value,
            "response": resume.response if resume.payload is None else resume.payload,
        }
        for resume in resumes
    ]
