"""Fold the events of a run into the messages they make."""

from collections.abc import Iterable

from copilot_runtime.events import (
    ActionExecutionArgs,
    ActionExecutionResult,
    ActionExecutionStart,
    AgentState,
    Event,
    TextMessageContent,
    TextMessageStart,
)
from copilot_runtime.messages import (
    ActionExecutionMessage,
    AgentStateMessage,
    Message,
    ResultMessage,
    TextMessage,
)


def messages_of(events: Iterable[Event]) -> list[Message]:
    """Return the messages in the order in which they began, whole or as far as they came."""
    starts: list[TextMessageStart | ActionExecutionStart | ResultMessage | AgentStateMessage] = []
    pieces: dict[str, list[str]] = {}
    for event in events:
        match event:
            case TextMessageStart(message_id=key) | ActionExecutionStart(call_id=key):
                starts.append(event)
                pieces[key] = []
            case TextMessageContent(message_id=key, content=piece):
                pieces[key].append(piece)
            case ActionExecutionArgs(call_id=key, delta=piece):
                pieces[key].append(piece)
            case ActionExecutionResult():
                starts.append(result_message(event))
            case AgentState():
                starts.append(_state(event, len(starts)))
            case _:
                pass
    return [_whole(start, pieces) for start in starts]


def result_message(event: ActionExecutionResult) -> ResultMessage:
    """Return the message a result becomes in the conversation."""
    return ResultMessage(
        id=f"result-{event.call_id}", call_id=event.call_id, name=event.name, result=event.result
    )


def _whole(
    start: TextMessageStart | ActionExecutionStart | ResultMessage | AgentStateMessage,
    pieces: dict[str, list[str]],
) -> Message:
    match start:
        case TextMessageStart():
            return TextMessage(
                id=start.message_id,
                role=start.role,
                content="".join(pieces[start.message_id]),
                parent_id=start.parent_id,
            )
        case ActionExecutionStart():
            return ActionExecutionMessage(
                id=start.call_id,
                name=start.name,
                arguments="".join(pieces[start.call_id]),
                parent_id=start.parent_id,
            )
        case _:
            return start


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
