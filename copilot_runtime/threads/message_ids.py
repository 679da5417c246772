"""The names by which a thread finds the messages that it has, so that each is stored once."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from copilot_runtime.api.events import (
    ActionExecutionResult,
    ActionExecutionStart,
    Activity,
    Event,
    MessagesSnapshot,
    ReasoningStart,
    RunStarted,
    TextMessageStart,
)
from copilot_runtime.api.messages import Message, ResultMessage

_LONGEST = 200
"""Characters of a name; a longer one is stored as its digest, for the sake of the index."""


def get_message_name(message: Message) -> str:
    """Return the name of a message.

    Results have names of their own: there are agents that give a result the id of its call.
    """
    if isinstance(message, ResultMessage):
        return _shorten(f"result:{message.id}")
    return _shorten(message.id)


def index_by_name(messages: Iterable[Message]) -> dict[str, Message]:
    """Return messages by their names, in order; of two with one name the first."""
    named: dict[str, Message] = {}
    for message in messages:
        named.setdefault(get_message_name(message), message)
    return named


def collect_names(events: Iterable[Event]) -> set[str]:
    """Return the names of all messages that these events make."""
    names: set[str] = set()
    for event in events:
        if read := _NAMES.get(type(event)):
            names.update(read(event))
    return names


def _shorten(name: str) -> str:
    # neither database takes half a character, and PostgreSQL no NUL
    if len(name) > _LONGEST or "\0" in name or not name.isascii():
        return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return name


def _read_text(event: TextMessageStart | ReasoningStart | Activity) -> Sequence[str]:
    return (_shorten(event.message_id),)


def _read_call(event: ActionExecutionStart) -> Sequence[str]:
    """Return the call and the message that holds it, which may hold nothing else."""
    call = _shorten(event.call_id)
    return (call, _shorten(event.parent_id)) if event.parent_id else (call,)


def _read_result(event: ActionExecutionResult) -> Sequence[str]:
    return (_shorten(f"result:{event.message_id or f'result-{event.call_id}'}"),)


def _read_messages(event: MessagesSnapshot | RunStarted) -> Iterator[str]:
    return map(get_message_name, event.messages)


_NAMES: Mapping[type, Callable[[Any], Iterable[str]]] = {
    TextMessageStart: _read_text,
    ReasoningStart: _read_text,
    Activity: _read_text,
    ActionExecutionStart: _read_call,
    ActionExecutionResult: _read_result,
    MessagesSnapshot: _read_messages,
    RunStarted: _read_messages,
}
