"""Converts messages to and from the JSON of CopilotKit v1 in the state of an agent.

A text has `content`, a call `arguments`, a result `result`; by these the client distinguishes
them (`loadMessagesFromJsonRepresentation` of @copilotkit/runtime-client-gql 1.10).
"""

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from copilot_runtime.api.events import Interrupt
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    Message,
    ResultMessage,
    Role,
    TextMessage,
    new_id,
)
from copilot_runtime.base.jsonvalue import as_objects, as_optional_text, parse_object, to_text

_ROLES: Mapping[Any, Role] = {role: role for role in get_args(Role)}


def encode_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the JSON of texts that are not empty, calls and results; v1 has no other messages."""
    return [item for message in messages if (item := _encode_message(message)) is not None]


def decode_messages(items: Any) -> list[Message]:
    """Return the messages in such a list; other items are left out."""
    return [m for item in as_objects(items) if (m := _decode_message(item)) is not None]


def decode_interrupt(data: Mapping[str, Any]) -> Interrupt:
    """Return the interrupt in an event `CopilotKitLangGraphInterruptEvent`."""
    messages = decode_messages(data.get("messages"))
    return Interrupt(interrupt_id=new_id(), value=data.get("value"), messages=messages)


def _encode_message(message: Message) -> dict[str, Any] | None:
    match message:
        case TextMessage() if message.content:
            return {"id": message.id, "role": message.role, "content": message.content}
        case ActionExecutionMessage():
            return {
                "id": message.id,
                "name": message.name,
                "arguments": parse_object(message.arguments),
                "parentMessageId": message.parent_id,
            }
        case ResultMessage():
            return {
                "id": message.id,
                "result": message.result,
                "actionExecutionId": message.call_id,
                "actionName": message.name,
            }
        case _:
            return None


def _decode_message(item: Mapping[str, Any]) -> Message | None:
    id = item.get("id")
    id = id if isinstance(id, str) and id else new_id()
    parent = as_optional_text(item.get("parentMessageId"))
    match item:
        case {"content": str(content)}:
            role = _ROLES.get(str(item.get("role")), "assistant")
            return TextMessage(id=id, role=role, content=content, parent_id=parent)
        case {"name": str(name), "arguments": arguments}:
            text = to_text(arguments)
            return ActionExecutionMessage(id=id, name=name, arguments=text, parent_id=parent)
        case {"actionExecutionId": str(call_id), "result": result}:
            text = to_text(result)
            name = str(item.get("actionName") or "")
            return ResultMessage(id=id, call_id=call_id, name=name, result=text)
        case _:
            return None
