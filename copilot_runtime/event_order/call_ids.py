"""Give each call of a conversation an id of its own.

Some services number the calls of every answer from `call_0`. A client finds a call by its id, and
would append the arguments of the second one to those of the first.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Event,
    Interrupt,
    MessagesSnapshot,
    ReasoningSignature,
)
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ImageMessage,
    Message,
    ReasoningMessage,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.base.jsonvalue import parse_object

CALL_EVENTS = frozenset(
    {
        ActionExecutionStart,
        ActionExecutionArgs,
        ActionExecutionEnd,
        ActionExecutionResult,
        Interrupt,
        MessagesSnapshot,
        ReasoningSignature,
    }
)
"""The types of events that may name a call."""


class CallIds:
    """Renames the calls of a run whose ids are in use: the second `call_0` becomes `call_0-2`.

    `messages` are the conversation before the run. An agent that continues after the result of a
    call may send that call again, to bring its client up to date. Such a call has the same parent
    and arguments, and is left out.
    """

    def __init__(self, messages: Iterable[Message]) -> None:
        self._used: set[str] = set()
        self._before: dict[str, ActionExecutionMessage] = {}
        """The calls since the last question."""
        self._results: dict[str, str] = {}
        """Names of the calls with a result, by the id of the result."""
        for message in messages:
            match message:
                case ActionExecutionMessage(id=id):
                    self._used.add(id)
                    self._before[id] = message
                case ResultMessage(id=id, call_id=call_id):
                    self._results[id] = call_id
                case TextMessage(role="user") | ImageMessage(role="user"):
                    self._before.clear()
                case _:
                    pass
        self._names: dict[str, str] = {}
        """Ids of the agent with the latest names of their calls."""
        self._unanswered: dict[str, list[str]] = {}
        """Ids of the agent with the names of the calls of this run that have no result."""
        self._open: set[str] = set()
        self._repeated: dict[str, tuple[ActionExecutionStart, list[str]]] = {}
        """Calls that may repeat those of the conversation, with their arguments so far."""

    def rename(self, event: Event) -> Sequence[Event]:
        """Return an event of `CALL_EVENTS` with the name of its call."""
        match event:
            case ActionExecutionStart():
                return self._start(event)
            case ActionExecutionArgs(call_id=id, delta=delta) if id in self._repeated:
                self._repeated[id][1].append(delta)
                return ()
            case ActionExecutionEnd(call_id=id):
                self._open.discard(id)
                return self._end_repeat(event) if id in self._repeated else [self._name(event)]
            case ActionExecutionArgs():
                return [self._name(event)]
            case ActionExecutionResult(call_id=id):
                names = self._unanswered.get(id)
                name = names.pop(0) if names else self._names.get(id, id)
                return [self._name_result(event, name)]
            case ReasoningSignature(entity_id=id, of="call") if id in self._names:
                return [replace(event, entity_id=self._names[id])]
            case Interrupt(call_id=str(id)) if id in self._names:
                return [replace(event, call_id=self._names[id])]
            case MessagesSnapshot(messages=messages):
                unique = rename_messages(messages)
                self._used |= {one.id for one in unique if isinstance(one, ActionExecutionMessage)}
                return [event if unique is messages else replace(event, messages=unique)]
            case _:
                return [event]

    def _start(self, event: ActionExecutionStart) -> Sequence[Event]:
        id = event.call_id
        if id in self._open:
            return [event]  # `event_order` refuses it
        self._open.add(id)
        before = self._before.get(id)
        is_first = id not in self._unanswered
        if before is not None and is_first and before.parent_id == event.parent_id is not None:
            self._repeated[id] = event, []
            return ()
        return [self._begin(event)]

    def _begin(self, event: ActionExecutionStart) -> ActionExecutionStart:
        id = event.call_id
        name = find_free(id, self._used)
        self._used.add(name)
        self._names[id] = name
        self._unanswered.setdefault(id, []).append(name)
        return event if name == id else replace(event, call_id=name)

    def _end_repeat(self, end: ActionExecutionEnd) -> Sequence[Event]:
        start, pieces = self._repeated.pop(end.call_id)
        arguments = "".join(pieces)
        if parse_object(arguments) == parse_object(self._before[end.call_id].arguments):
            return ()
        start = self._begin(start)
        args = [ActionExecutionArgs(call_id=start.call_id, delta=arguments)] if arguments else []
        return [start, *args, replace(end, call_id=start.call_id)]

    def _name_result(self, event: ActionExecutionResult, name: str) -> ActionExecutionResult:
        """Return a result with the name of its call, and with an id that no other result has."""
        id = event.message_id
        if id is not None and self._results.setdefault(id, name) != name:
            id = find_free(id, self._results)
            self._results[id] = name
        if (name, id) == (event.call_id, event.message_id):
            return event
        return replace(event, call_id=name, message_id=id)

    def _name(self, event: ActionExecutionArgs | ActionExecutionEnd) -> Event:
        name = self._names.get(event.call_id)
        return event if name in (None, event.call_id) else replace(event, call_id=name)


def rename_messages(messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages in which no two texts, thoughts or calls have the same id.

    It is the same object if none have.
    """
    calls = [message.id for message in messages if isinstance(message, ActionExecutionMessage)]
    texts = [one.id for one in messages if isinstance(one, TextMessage | ReasoningMessage)]
    if len({*calls}) == len(calls) and len({*texts}) == len(texts):
        return messages
    used, results, owners = set[str](), set[str](), set[str]()
    names: dict[str, str] = {}
    parents: dict[str | None, str] = {}
    renamed: list[Message] = []
    for message in messages:
        match message:
            case TextMessage(id=id) | ReasoningMessage(id=id):
                parents[id] = find_free(id, owners)
                owners.add(parents[id])
                renamed.append(replace(message, id=parents[id]))
            case ActionExecutionMessage(id=id, parent_id=parent):
                names[id] = find_free(id, used)
                used.add(names[id])
                renamed.append(
                    replace(message, id=names[id], parent_id=parents.get(parent, parent))
                )
            case ResultMessage(call_id=id) if id in names:
                message_id = find_free(message.id, results)
                results.add(message_id)
                renamed.append(replace(message, id=message_id, call_id=names[id]))
            case _:
                renamed.append(message)
    return renamed


def find_free(id: str, used: Container[str]) -> str:
    """Return an id, with the first number that makes it differ from those in use."""
    name, number = id, 1
    while name in used:
        number += 1
        name = f"{id}-{number}"
    return name
