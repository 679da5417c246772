"""Fold the events of runs into messages."""

from collections.abc import Iterable, Mapping, Sequence

from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Activity,
    AgentState,
    Event,
    MessagesSnapshot,
    ReasoningContent,
    ReasoningSignature,
    ReasoningStart,
    RunStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ActivityMessage,
    AgentStateMessage,
    Message,
    ReasoningMessage,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.base.jsontext import join_pieces

_Start = (
    TextMessageStart
    | ActionExecutionStart
    | ReasoningStart
    | ResultMessage
    | AgentStateMessage
    | ActivityMessage
)


def fold_messages(events: Iterable[Event]) -> list[Message]:
    """Return the messages in the order of their start; an incomplete one has its text so far.

    A text or thought whose id begins again goes on, as on the page: calls stood between its parts.
    """
    begun: list[tuple[_Start, list[str]]] = []
    growing: dict[str, list[str]] = {}
    signatures: dict[str, str] = {}
    parts: dict[tuple[type[Event], str], list[str]] = {}
    for event in events:
        match event:
            case TextMessageStart(message_id=key) | ReasoningStart(message_id=key):
                if (type(event), key) not in parts:
                    parts[type(event), key] = []
                    begun.append((event, parts[type(event), key]))
                growing[key] = parts[type(event), key]
            case ActionExecutionStart(call_id=key):
                growing[key] = []
                begun.append((event, growing[key]))
            case TextMessageContent(message_id=key, content=piece):
                growing.get(key, []).append(piece)
            case ActionExecutionArgs(call_id=key, delta=piece):
                growing.get(key, []).append(piece)
            case ReasoningContent(message_id=key, content=piece):
                growing.get(key, []).append(piece)
            case ReasoningSignature(entity_id=key, value=value):
                signatures[key] = value
            case Activity():
                begun.append((_activity(event), []))
            case ActionExecutionResult():
                begun.append((result_message(event), []))
            case AgentState():
                begun.append((_state(event, len(begun)), []))
            case _:
                pass
    return [_whole(start, join_pieces(pieces), signatures) for start, pieces in begun]


def fold_conversation(events: Sequence[Event]) -> list[Message]:
    """Return the new messages of a run: those of the request, then the answer.

    With a `MessagesSnapshot`, the messages have its order. As on the page, it replaces all texts,
    calls and results that are complete.
    """
    found: dict[tuple[str, str], Message] = {}
    run: list[Event] = []
    for event in events:
        if isinstance(event, RunStarted):
            found |= _by_id(event.messages)
        elif isinstance(event, MessagesSnapshot):
            found = _by_id(event.messages)
            run = _drop_complete(run)
        else:
            run.append(event)
    return [*(found | _by_id(fold_messages(run))).values()]


def _drop_complete(events: Sequence[Event]) -> list[Event]:
    """Return the events that a snapshot does not replace: of open messages, thoughts and states."""
    ended: set[str] = set()
    for event in events:
        match event:
            case TextMessageStart(message_id=id) | ActionExecutionStart(call_id=id):
                ended.discard(id)
            case TextMessageEnd(message_id=id) | ActionExecutionEnd(call_id=id):
                ended.add(id)
            case _:
                pass
    rest: list[Event] = []
    for event in events:
        match event:
            case ActionExecutionResult():
                continue
            case TextMessageStart(message_id=id) | TextMessageContent(message_id=id) if id in ended:
                continue
            case ActionExecutionStart(call_id=id) | ActionExecutionArgs(call_id=id) if id in ended:
                continue
            case _:
                rest.append(event)
    return rest


def fold_thread(logs: Iterable[Sequence[Event]]) -> list[Message]:
    """Return the messages of a thread from the logs of its runs, the oldest first."""
    found: dict[tuple[str, str], Message] = {}
    for events in logs:
        if any(isinstance(event, MessagesSnapshot) for event in events):
            found.clear()  # the snapshot has all earlier messages
        found |= _by_id(fold_conversation(events))
    return [*found.values()]


def _by_id(messages: Iterable[Message]) -> dict[tuple[str, str], Message]:
    # a call may have the id of the message it belongs to
    return {(message.type, message.id): message for message in messages}


def result_message(event: ActionExecutionResult) -> ResultMessage:
    """Convert a result event to a message."""
    return ResultMessage(
        id=event.message_id or f"result-{event.call_id}",
        call_id=event.call_id,
        name=event.name,
        result=event.result,
        parts=event.parts,
    )


def _whole(start: _Start, text: str, signatures: Mapping[str, str]) -> Message:
    match start:
        case TextMessageStart():
            return TextMessage(
                id=start.message_id,
                role=start.role,
                content=text,
                parent_id=start.parent_id,
                extra=_signature(signatures.get(start.message_id)) if signatures else None,
            )
        case ActionExecutionStart():
            return ActionExecutionMessage(
                id=start.call_id,
                name=start.name,
                arguments=text,
                parent_id=start.parent_id,
                extra=_signature(signatures.get(start.call_id)),
            )
        case ReasoningStart(message_id=id):
            return ReasoningMessage(id=id, content=text, signature=signatures.get(id))
        case _:
            return start


def _signature(value: str | None) -> Mapping[str, str] | None:
    return {"encryptedValue": value} if value else None


def _activity(event: Activity) -> ActivityMessage:
    return ActivityMessage(
        id=event.message_id, activity_type=event.activity_type, content=event.content
    )


def _state(event: AgentState, number: int) -> AgentStateMessage:
    return AgentStateMessage(
        id=f"{event.run_id or event.agent}-state-{number}",
        agent=event.agent,
        state=event.state,
        node=event.node,
        thread_id=event.thread_id,
        run_id=event.run_id,
        active=event.active,
        running=event.running,
    )
