"""From the events of a run to the result of a tool."""

from typing import TYPE_CHECKING

from copilot_runtime.actions.execute import parse_failure
from copilot_runtime.api.events import Event, Interrupt, TextMessageContent, TextMessageStart
from copilot_runtime.base.jsonvalue import to_text

if TYPE_CHECKING:
    from mcp_types import CallToolResult


def build_text_result(text: str, *, is_error: bool = False) -> "CallToolResult":
    """Return a result that is a text."""
    from mcp_types import CallToolResult, TextContent

    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)


def build_result(result: str) -> "CallToolResult":
    """Return what an action returned, or why it failed."""
    failure = parse_failure(result)
    return build_text_result(result if failure is None else failure, is_error=failure is not None)


class Answer:
    """The answer of an agent as it comes: its texts, and its questions."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._questions: list[str] = []
        self.length = 0
        """Characters so far."""

    def add(self, event: Event) -> str:
        """Return what an event adds to the answer."""
        match event:
            case TextMessageStart(message_id=id, role="assistant"):
                self._texts[id] = []
            case TextMessageContent(message_id=id, content=piece) if id in self._texts:
                self._texts[id].append(piece)
                self.length += len(piece)
                return piece
            case Interrupt():
                self._questions.append(_question(event))
            case _:
                pass
        return ""

    @property
    def text(self) -> str:
        """All of it."""
        texts = ["".join(pieces) for pieces in self._texts.values()]
        return "\n\n".join(filter(None, [*texts, *self._questions]))


def _question(event: Interrupt) -> str:
    question = event.message or event.value
    text = to_text(question)
    return f"The agent waits for a person, who cannot answer here: {text}"
