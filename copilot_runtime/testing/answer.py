"""The protocol-independent parts of an answer."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from copilot_runtime.agui.outcome import decode_refusal
from copilot_runtime.api.events import Event, Interrupt
from copilot_runtime.api.messages import ActionExecutionMessage, Message, ResultMessage
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import parse_object
from copilot_runtime.testing.connection import Response

if TYPE_CHECKING:
    from copilot_runtime.testing.client import Reply


class ReplyFailed(CopilotError):
    """The application refused a message, or its answer failed.

    `code` is the code of the error; `reply` is the partial reply before it, or `None`.
    """

    def __init__(self, message: str, *, code: str = "UNKNOWN", status: int = 200) -> None:
        super().__init__(message, status_code=status)
        self.code = code
        self.reply: Reply | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of an answer; `result` is `None` while it is unanswered."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    result: str | None = None
    id: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one request."""

    messages: Sequence[Message] = ()
    """The new messages."""
    conversation: Sequence[Message] | None = None
    """All messages, if the answer replaced them, or `None`."""
    state: Any = None
    """The last state of the agent, or `None`."""
    interrupts: Sequence[Interrupt] = ()
    failure: ReplyFailed | None = None
    """The error of a failed answer, or `None`."""
    events: Sequence[Event] = ()
    """All received events, if the protocol has events."""


def pair_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the tool calls of the messages, each with its result."""
    results = {
        message.call_id: message.result
        for message in messages
        if isinstance(message, ResultMessage)
    }
    return [
        ToolCall(message.name, parse_object(message.arguments), results.get(message.id), message.id)
        for message in messages
        if isinstance(message, ActionExecutionMessage)
    ]


def read_refusal(response: Response, path: str) -> ReplyFailed:
    """Return the error for an unsuccessful response, with the server's reason if it has one."""
    code = f"HTTP_{response.status}"
    refusal = decode_refusal(response.body)
    if refusal is not None:
        agents = f". Known: {', '.join(refusal.agents)}." if refusal.agents else ""
        code = refusal.code or code
        return ReplyFailed(f"{refusal.message}{agents}", code=code, status=response.status)
    return ReplyFailed(
        f"HTTP {response.status} at {path!r}, which is no answer of a runtime. "
        "Is it the path of its URL? Client(app, path=...) names another.",
        code=code,
        status=response.status,
    )
