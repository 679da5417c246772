"""The conversation as the page shows it, to compare it with the thread's own messages."""

from collections.abc import Iterable, Sequence

from copilot_runtime.agents.langgraph.messages import (
    extract_text,
    list_message_ids,
    parse_arguments,
    parse_tool_calls,
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


class ClientView:
    """A page that showed the messages of `client` before the run, and gets the run's events."""

    def __init__(self, client: Sequence[JsonObject]) -> None:
        messages = {message["id"]: message for message in client}
        self._texts = {
            id: [extract_text(messages[id].get("content"))] for id in list_message_ids(client)
        }
        self._calls = {
            call["id"]: [call["args"]] for message in client for call in parse_tool_calls(message)
        }

    def apply(self, events: Iterable[Event]) -> None:
        """Add the texts, calls and results of events."""
        for event in events:
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

    def matches(self, messages: Sequence[JsonObject]) -> bool:
        """Say whether the page shows these messages in this order: a node may rewrite some."""
        return list_message_ids(messages) == [*self._texts] and all(map(self._matches, messages))

    def _matches(self, message: JsonObject) -> bool:
        texts = self._texts.get(message["id"])
        is_same = texts is None or "".join(texts) == extract_text(message.get("content"))
        return is_same and all(
            self._arguments(call["id"]) in (None, call["args"])
            for call in parse_tool_calls(message)
        )

    def _arguments(self, call_id: str) -> JsonObject | None:
        match self._calls.get(call_id):
            case None:
                return None
            case [dict() as arguments]:
                return arguments
            case pieces:
                return parse_arguments("".join(pieces))
