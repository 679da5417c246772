"""What a conversation is made of: texts, images, action calls, action results, agent states."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

Role = Literal["user", "assistant", "system", "tool", "developer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMessage:
    id: str
    role: Role
    content: str
    parent_id: str | None = None
    type: Literal["text"] = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageMessage:
    """An image; `bytes` is base64 text, `format` a file extension such as `png`."""

    id: str
    role: Role
    format: str
    bytes: str
    parent_id: str | None = None
    type: Literal["image"] = "image"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionExecutionMessage:
    """A call the model made; `id` is the call's id, `arguments` JSON text of an object."""

    id: str
    name: str
    arguments: str
    parent_id: str | None = None
    type: Literal["action_execution"] = "action_execution"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultMessage:
    """What came of the call `call_id`."""

    id: str
    call_id: str
    name: str
    result: str
    type: Literal["result"] = "result"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStateMessage:
    """The state of an agent, as the client remembers or shows it."""

    id: str
    agent: str
    state: Mapping[str, Any]
    node: str = ""
    thread_id: str = ""
    run_id: str = ""
    active: bool = False
    running: bool = False
    type: Literal["agent_state"] = "agent_state"


Message = TextMessage | ImageMessage | ActionExecutionMessage | ResultMessage | AgentStateMessage


def new_id() -> str:
    """Return an id that looks like those of CopilotKit's clients (`randomId`)."""
    return f"ck-{uuid4()}"
