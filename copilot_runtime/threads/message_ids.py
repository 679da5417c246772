"""By which names a thread remembers its messages, so that each is kept once."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from copilot_runtime.events import (
    ActionExecutionResult,
    ActionExecutionStart,
    Activity,
    Event,
    MessagesSnapshot,
    ReasoningStart,
    RunStarted,
    TextMessageStart,
)
from copilot_runtime.messages import Message, ResultMessage

_LONGEST = 200
"""Characters of a name; a longer one is kept as its digest, for the sake of the index."""


def name_of(message: Message) -> str:
    """Return the name a message is remembered by.

    Results have names of their own: there are agents that give a result the id of its call.
    """
    if isinstance(message, ResultMessage):
        return _short(f"result:{message.id}")
    return _short(message.id)


def by_name(messages: Iterable[Message]) -> dict[str, Message]:
    """Return messages by their names, in order; of two with one name the first."""
    named: dict[str, Message] = {}
    for message in messages:
        named.setdefault(name_of(message), message)
    return named


def names_in(events: Iterable[Event]) -> set[str]:
    """Return the names of all messages that these events make."""
    names: set[str] = set()
    for event in events:
        if read := _NAMES.get(type(event)):
            names.update(read(event))
    return names


def _short(name: str) -> str:
    # neither database takes half a character, and PostgreSQL no NUL
    if len(name) > _LONGEST or "\0" in name or not name.isascii():
        return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return name


def _of_text(event: TextMessageStart) -> Sequence[str]:
    return (_short(event.message_id),)


def _of_thought(event: ReasoningStart | Activity) -> Sequence[str]:
    return (_short(event.message_id),)


def _of_call(event: ActionExecutionStart) -> Sequence[str]:
    """Return the call and the message that holds it, which may hold nothing else."""
    call = _short(event.call_id)
    return (call, _short(event.parent_id)) if event.parent_id else (call,)


def _of_result(event: ActionExecutionResult) -> Sequence[str]:
    return (_short(f"result:{event.message_id or f'result-{event.call_id}'}"),)


def _of_messages(event: MessagesSnapshot | RunStarted) -> Iterator[str]:
    return map(name_of, event.messages)


_NAMES: Mapping[type, Callable[[Any], Iterable[str]]] = {
    TextMessageStart: _of_text,
    ReasoningStart: _of_thought,
    Activity: _of_thought,
    ActionExecutionStart: _of_call,
    ActionExecutionResult: _of_result,
    MessagesSnapshot: _of_messages,
    RunStarted: _of_messages,
}
