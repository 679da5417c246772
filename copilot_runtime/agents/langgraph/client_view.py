"""What a page shows of a conversation, to compare it with what the thread keeps of it."""

from collections.abc import Iterable, Sequence

from copilot_runtime.agents.langgraph.messages import (
    arguments_of,
    calls_of,
    ids_of,
    text_of,
)
from copilot_runtime.events import (
    ActionExecutionArgs,
    ActionExecutionResult,
    ActionExecutionStart,
    Event,
    TextMessageContent,
    TextMessageStart,
)
from copilot_runtime.jsonvalue import JsonObject


class Page:
    """Follows what a run tells a page that showed the messages of `client` before."""

    def __init__(self, client: Sequence[JsonObject]) -> None:
        shown = {message["id"]: message for message in client}
        self._texts = {id: [text_of(shown[id].get("content"))] for id in ids_of(client)}
        self._calls = {
            call["id"]: [call["args"]] for message in client for call in calls_of(message)
        }

    def take(self, told: Iterable[Event]) -> None:
        """Show what is told."""
        for event in told:
            match event:
                case TextMessageStart(message_id=id):
                    self._texts.setdefault(id, [])
                case TextMessageContent(message_id=id, content=piece):
                    self._texts[id].append(piece)
                case ActionExecutionStart(call_id=id, parent_id=parent_id):
                    self._texts.setdefault(parent_id or id, [])
                    self._calls[id] = []
                case ActionExecutionArgs(call_id=id, delta=piece):
                    self._calls[id].append(piece)
                case ActionExecutionResult(message_id=str(id), result=result):
                    self._texts[id] = [result]
                case _:
                    pass

    def shows(self, messages: Sequence[JsonObject]) -> bool:
        """Say whether these are on the page, in this order: a node may rewrite what was said."""
        return ids_of(messages) == [*self._texts] and all(map(self._shows, messages))

    def _shows(self, message: JsonObject) -> bool:
        texts = self._texts.get(message["id"])
        is_same = texts is None or "".join(texts) == text_of(message.get("content"))
        return is_same and all(
            self._arguments(call["id"]) in (None, call["args"]) for call in calls_of(message)
        )

    def _arguments(self, call_id: str) -> JsonObject | None:
        match self._calls.get(call_id):
            case None:
                return None
            case [dict() as arguments]:
                return arguments
            case pieces:
                return arguments_of("".join(pieces))
