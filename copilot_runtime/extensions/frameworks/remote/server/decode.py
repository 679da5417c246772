"""Decodes a request to a remote endpoint into a run: messages and actions in the JSON of v1.

Missing fields have defaults, and undecodable messages are skipped, as in the Python package
`copilotkit`; a missing required field is an error that names it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from copilot_runtime.api.action import Action
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    AgentStateMessage,
    ImageMessage,
    Message,
    ResultMessage,
    Role,
    TextMessage,
    new_id,
)
from copilot_runtime.api.run_input import AgentInput, Parameters, Resume
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_object,
    as_optional_text,
    as_text,
    require_list,
    require_object,
    require_text,
)
from copilot_runtime.threads.validation import check_thread_id
from copilot_runtime.transports.parameters import (
    apply_forwarded_parameters,
    check_count,
    check_length,
)

_ROLES: Mapping[Any, Role] = {role: role for role in get_args(Role)}


def get_caller(body: JsonObject, caller: Caller) -> Caller:
    """Return the caller with the properties and the page of the request."""
    properties = require_object(body.get("properties") or {}, "properties")
    page = body.get("frontendUrl")
    properties = caller.merge_properties(properties)
    return replace(caller, properties=properties, url=as_optional_text(page))


def action_call(body: JsonObject) -> tuple[str, JsonObject]:
    """Return the name and the arguments of the action to run. Raises `Misuse`."""
    arguments = body.get("arguments")
    return require_text(body, "name", "body"), require_object(arguments or {}, "arguments")


def thread_of(body: JsonObject) -> str:
    """Return the id of the thread; a new one if there is none. Raises `Misuse` for a bad one."""
    if body.get("threadId") is None:
        return new_id()
    thread = require_text(body, "threadId", "body")
    check_thread_id("threadId", thread)
    return thread


def run_fields(body: JsonObject, max_messages: int, max_items: int = 5000) -> JsonObject:
    """Return the fields of the `RunInput` for an agent. Raises `Misuse`, or `LimitExceeded`."""
    name = require_text(body, "name", "body")
    messages = require_list(body.get("messages") or [], "messages")
    actions = require_list(body.get("actions") or [], "actions")
    answers = require_list(body.get("metaEvents") or [], "metaEvents")
    check_length(messages, max_messages)
    check_count(len(actions), max_items, "actions")
    check_count(len(answers), max_items, "answers to interrupts")
    state = require_object(body.get("state") or {}, "state")
    config = require_object(body.get("config") or {}, "config")
    properties = require_object(body.get("properties") or {}, "properties")
    return {
        "agent": name,
        "thread_id": thread_of(body),
        "messages": [m for item in messages if (m := _message(require_object(item, "messages[]")))],
        "node": as_text(body.get("nodeName")) or None,
        "actions": [*_actions(actions)],
        "agents": {name: AgentInput(state=state, config=config)},
        "parameters": apply_forwarded_parameters(Parameters(), properties),
        "resume": [*_answers(answers)],
        "operation": "agents/execute",
    }


def _message(item: JsonObject) -> Message | None:
    id = item.get("id")
    id = id if isinstance(id, str) and id else new_id()
    parent = item.get("parentMessageId")
    parent = parent if isinstance(parent, str) and parent else None
    role = _ROLES.get(str(item.get("role")), "assistant")
    match item:
        case {"type": "TextMessage", "content": str(content)}:
            return TextMessage(id=id, role=role, content=content, parent_id=parent)
        case {"type": "ActionExecutionMessage", "name": str(name)}:
            text = _text(item.get("arguments") or {})
            return ActionExecutionMessage(id=id, name=name, arguments=text, parent_id=parent)
        case {"type": "ResultMessage", "actionExecutionId": str(call)}:
            name = str(item.get("actionName") or "")
            return ResultMessage(id=id, call_id=call, name=name, result=_text(item.get("result")))
        case {"type": "ImageMessage", "format": str(format), "bytes": str(data)}:
            return ImageMessage(id=id, role=role, format=format, bytes=data, parent_id=parent)
        case {"type": "AgentStateMessage", "agentName": str(agent)}:
            return AgentStateMessage(
                id=id,
                agent=agent,
                state=item.get("state") or {},
                node=str(item.get("nodeName") or ""),
                thread_id=str(item.get("threadId") or ""),
                run_id=str(item.get("runId") or ""),
                active=item.get("active") is True,
                running=item.get("running") is True,
            )
        case _:
            return None


def _actions(items: list[Any]) -> list[Action]:
    """Return the actions of the caller or of its frontend."""
    return [
        Action(
            name=item["name"],
            description=str(item.get("description") or ""),
            parameters={"type": "object", "properties": {}, **as_object(item.get("parameters"))},
        )
        for item in items
        if isinstance(item, dict) and isinstance(item.get("name"), str)
    ]


def _answers(items: list[Any]) -> list[Resume]:
    found: list[Resume] = []
    for item in items:
        answer = item.get("response") if isinstance(item, dict) else None
        if isinstance(item, dict) and answer is not None:
            payload = None if isinstance(answer, str) else answer
            found.append(Resume(_text(item.get("value")), _text(answer), payload=payload))
    return found


def _text(value: Any) -> str:
    """Return a string unchanged, and another value as JSON."""
    return value if isinstance(value, str) else "" if value is None else dumps(value).decode()
