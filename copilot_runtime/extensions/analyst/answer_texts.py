"""The texts of an answer, as the output guard lets them pass while they stream."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from time import time_ns

from copilot_runtime.api.events import (
    Event,
    Events,
    ReasoningContent,
    ReasoningEnd,
    TextMessageContent,
    TextMessageEnd,
)
from copilot_runtime.extensions.analyst.output_guard import OutputGuard


@dataclass(slots=True)
class _Text:
    guard: OutputGuard
    pieces: list[str]


class AnswerTexts:
    """Takes credentials and tracebacks out of the texts of one answer."""

    def __init__(self) -> None:
        self.last = ""
        """The last whole text."""
        self.start_time = 0
        """When the first text began, in nanoseconds since 1970; 0 before that."""
        self.redactions = 0
        """How much was taken out."""
        self._open: dict[str, _Text] = {}

    async def guard(self, events: Events) -> Events:
        """Yield events whose texts are safe. A text may come a little later than it was written."""
        async with aclosing(events):
            async for event in events:
                for one in self._feed(event):
                    yield one

    def _feed(self, event: Event) -> Sequence[Event]:
        match event:
            case TextMessageContent(message_id=id, content=content):
                self.start_time = self.start_time or time_ns()
                return self._write(id, self._find(id).guard.feed(content))
            case TextMessageEnd(message_id=id):
                last = self._write(id, self._find(id).guard.finish())
                self.last = "".join(self._close(id).pieces)
                return [*last, event]
            case ReasoningContent(message_id=id, content=content):
                text = self._find(id).guard.feed(content)
                return [ReasoningContent(message_id=id, content=text)] if text else []
            case ReasoningEnd(message_id=id):
                text = self._find(id).guard.finish()
                self._close(id)
                last = [ReasoningContent(message_id=id, content=text)] if text else []
                return [*last, event]
            case _:
                return [event]

    def _find(self, id: str) -> _Text:
        if id not in self._open:
            self._open[id] = _Text(OutputGuard(), [])
        return self._open[id]

    def _close(self, id: str) -> _Text:
        text = self._open.pop(id)
        self.redactions += text.guard.redactions
        return text

    def _write(self, id: str, text: str) -> list[Event]:
        if not text:
            return []
        self._find(id).pieces.append(text)
        return [TextMessageContent(message_id=id, content=text)]
