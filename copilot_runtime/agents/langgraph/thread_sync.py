"""What a client's conversation means for the thread on the server.

The thread keeps its messages, so only what is new is sent. Somebody who edits a message, or asks
for another answer, goes back to before that message. What the client does not show stays: it may
never have been shown it, and nobody could bring it back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from copilot_runtime.agents.langgraph.messages import (
    calls_of,
    interrupted,
    is_interrupted,
    kind_of,
    text_of,
)
from copilot_runtime.jsontext import dumps
from copilot_runtime.jsonvalue import JsonObject


@dataclass(frozen=True, slots=True)
class Sync:
    """Messages to send; with `back_to`, from the state before that message."""

    messages: Sequence[JsonObject]
    back_to: str | None = None


def edited(client: Sequence[JsonObject], thread: Sequence[JsonObject]) -> Sync | None:
    """Return how to go back to the client's last question, if it has changed it.

    Other differences are the graph's: a node may rewrite what somebody has asked.
    """
    questions = [at for at, message in enumerate(client) if kind_of(message) == "human"]
    if not questions:
        return None
    last = client[questions[-1]]
    known = _Known(thread, client)
    if any(known.news(message) is not None for message in client[questions[-1] + 1 :]):
        return None  # it goes on from there
    for message in thread:
        if message["id"] == last["id"] and _said(message) != _said(last):
            return Sync([last], back_to=last["id"])
    return None


def synced(client: Sequence[JsonObject], thread: Sequence[JsonObject]) -> Sync:
    """Return what to send, so that the thread holds all that the client shows."""
    asked_again = _asked_again(client, thread)
    if asked_again is not None:
        return Sync([asked_again], back_to=asked_again["id"])
    known = _Known(thread, client)
    new = [news for message in client if (news := known.news(message)) is not None]
    return Sync(new)


def left_open(thread: Sequence[JsonObject], new: Sequence[JsonObject]) -> list[JsonObject]:
    """Return results for the calls at the thread's end that get none: a model refuses such calls.

    A run that was stopped, or failed, leaves them behind. The page may still replace them.
    """
    known = {message.get("tool_call_id") or message["id"] for message in (*thread, *new)}
    last = next((said for said in reversed(thread) if kind_of(said) != "tool"), None)
    if last is None or not new or any(one["id"] == last["id"] for one in new):
        return []
    return [interrupted(call) for call in calls_of(last) if call["id"] not in known]


def without_instructions(client: Sequence[JsonObject]) -> Sequence[JsonObject]:
    """Leave out what CopilotKit tells a model without an agent, as its own runtime does."""
    return client[1:] if client and kind_of(client[0]) == "system" else client


def _asked_again(client: Sequence[JsonObject], thread: Sequence[JsonObject]) -> JsonObject | None:
    """Return the question the client ends with, if the thread has an answer to it."""
    last = client[-1] if client else None
    if last is None or kind_of(last) != "human":
        return None
    for at, message in enumerate(thread):
        if message["id"] == last["id"]:
            return last if at + 1 < len(thread) else None
    return None


class _Known:
    """What the thread has of a client's message, under whatever id."""

    def __init__(self, thread: Sequence[JsonObject], client: Sequence[JsonObject]) -> None:
        self._ids = {message["id"] for message in thread}
        self._calls = {call["id"] for message in thread for call in calls_of(message)}
        self._texts = {
            text_of(message.get("content"))
            for message in thread
            if kind_of(message) == "ai" and not calls_of(message)
        }
        self._results = {
            message.get("tool_call_id"): message for message in thread if kind_of(message) == "tool"
        }
        self._answered = {message.get("tool_call_id") for message in client}

    def news(self, message: JsonObject) -> JsonObject | None:
        """Return what the thread lacks of a message."""
        match kind_of(message):
            case "tool":
                known = self._results.get(message["tool_call_id"])
                if known is None:
                    return message
                if is_interrupted(known):
                    return {**message, "id": known["id"]}
                return None
            case "ai" if message["id"] not in self._ids:
                return self._new_answer(message)
            case _:
                return None if message["id"] in self._ids else message

    def _new_answer(self, message: JsonObject) -> JsonObject | None:
        """Return an answer with those of its calls that have a result: the others broke off."""
        calls = [call for call in calls_of(message) if call["id"] not in self._calls]
        if not calls and calls_of(message):
            return None
        calls = [call for call in calls if call["id"] in self._answered]
        # what was emitted by hand is there under an id of its own
        is_known = not message["content"] or message["content"] in self._texts
        return None if is_known and not calls else {**message, "tool_calls": calls}


def _said(message: JsonObject) -> Any:
    content = message.get("content")
    return content if isinstance(content, str) else dumps(_sorted(content))


def _sorted(value: Any) -> Any:
    """Return a value of which equal ones are written alike."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
