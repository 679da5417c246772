"""Joins characters of which one chunk ends with the first half and the next begins with the second.

Programs in JavaScript cut texts between two UTF-16 code units, and JSON.stringify writes each half
as an escape: https://tc39.es/ecma262/#sec-quotejsonstring. A browser that appends the chunks joins
them again; UTF-8, stores and models need whole characters.
"""

from dataclasses import replace

from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    Event,
    ReasoningContent,
    ReasoningEnd,
    RunFailed,
    RunFinished,
    TextMessageContent,
    TextMessageEnd,
)
from copilot_runtime.base.jsontext import (
    find_surrogate,
    get_raw_text,
    replace_surrogates,
    split_beginning,
)

TEXTS = frozenset(
    {TextMessageContent, ReasoningContent, ActionExecutionArgs, ActionExecutionResult}
)
"""The events with words of a model, an agent or a tool."""

_Chunk = TextMessageContent | ReasoningContent | ActionExecutionArgs


class CharacterJoiner:
    """Holds back the first half of a character until the next chunk of the same text or call.

    A half without its other becomes U+FFFD; the first half at the end of its text or call.
    """

    def __init__(self) -> None:
        self.halves: dict[tuple[type[_Chunk], str], str] = {}
        """The halves that are held back, by the kind of their chunks and the id."""

    def feed(self, event: Event) -> list[Event]:
        """Return the event with whole characters, after a held-back half that it ends."""
        match event:
            case TextMessageContent(message_id=id, content=text):
                return self._join(TextMessageContent, id, text, event)
            case ReasoningContent(message_id=id, content=text):
                return self._join(ReasoningContent, id, text, event)
            case ActionExecutionArgs(call_id=id, delta=text):
                return self._join(ActionExecutionArgs, id, text, event)
            case TextMessageEnd(message_id=id):
                return [*self._release(TextMessageContent, id), event]
            case ReasoningEnd(message_id=id):
                return [*self._release(ReasoningContent, id), event]
            case ActionExecutionEnd(call_id=id):
                return [*self._release(ActionExecutionArgs, id), event]
            case ActionExecutionResult(result=text) if find_surrogate(text):
                return [replace(event, result=replace_surrogates(text))]
            case RunFinished() | RunFailed():
                return [*self.flush(), event]
            case _:
                return [event]

    def flush(self) -> list[Event]:
        """Return a chunk with U+FFFD for each half that is held back: nothing follows it."""
        return [event for key in [*self.halves] for event in self._release(*key)]

    def _join(self, kind: type[_Chunk], id: str, piece: str, event: Event) -> list[Event]:
        is_whole = type(piece) is str and (piece.isascii() or find_surrogate(piece) is None)
        if is_whole and not self.halves:
            return [event]
        text = self.halves.pop((kind, id), "") + get_raw_text(piece)
        text, beginning = split_beginning(text)
        if beginning:
            self.halves[kind, id] = beginning
        return [_build_chunk(kind, id, replace_surrogates(text))] if text or not piece else []

    def _release(self, kind: type[_Chunk], id: str) -> list[Event]:
        is_waiting = self.halves.pop((kind, id), None) is not None
        return [_build_chunk(kind, id, "\ufffd")] if is_waiting else []


def _build_chunk(kind: type[_Chunk], id: str, text: str) -> Event:
    if kind is ActionExecutionArgs:
        return ActionExecutionArgs(call_id=id, delta=text)
    if kind is ReasoningContent:
        return ReasoningContent(message_id=id, content=text)
    return TextMessageContent(message_id=id, content=text)
