"""What an answer is made of, whichever protocol brought it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from copilot_runtime.errors import CopilotError
from copilot_runtime.events import Interrupt
from copilot_runtime.jsontext import loads
from copilot_runtime.jsonvalue import as_list, as_text, get_text, parse_object
from copilot_runtime.messages import ActionExecutionMessage, Message, ResultMessage
from copilot_runtime.testing.connection import Response

if TYPE_CHECKING:
    from copilot_runtime.testing.client import Reply


class ReplyFailed(CopilotError):
    """The application refused a message, or its answer failed.

    `code` is that of the error, `reply` what came before it, if anything did.
    """

    def __init__(self, message: str, *, code: str = "UNKNOWN", status: int = 200) -> None:
        super().__init__(message, status_code=status)
        self.code = code
        self.reply: Reply | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that an answer contains; `result` is None for one that nobody has answered."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    result: str | None = None
    id: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one request."""

    messages: Sequence[Message] = ()
    """Those that are new."""
    conversation: Sequence[Message] | None = None
    """All messages, if the answer replaced them."""
    state: Any = None
    """The last state of the agent; None if there was none."""
    interrupts: Sequence[Interrupt] = ()
    failure: ReplyFailed | None = None
    """Why it did not end well."""


def pair_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the calls among messages, each with its result."""
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
    """Return the error for a response that is no answer: its own reason, if it gives one."""
    try:
        fields = loads(response.body)
    except ValueError:
        fields = None
    if isinstance(fields, dict):
        for key in ("message", "details", "error", "detail"):  # FastAPI says detail
            reason = get_text(fields, key)
            if reason and reason.lower() != "not found":
                code = get_text(fields, "code") or f"HTTP_{response.status}"
                if agents := [as_text(name) for name in as_list(fields.get("known"))]:
                    reason += f". Known: {', '.join(agents)}."
                return ReplyFailed(reason, code=code, status=response.status)
    return ReplyFailed(
        f"HTTP {response.status} at {path!r}, which is no answer of a runtime. "
        "Is it the path of its URL? Client(app, path=...) names another.",
        code=f"HTTP_{response.status}",
        status=response.status,
    )
