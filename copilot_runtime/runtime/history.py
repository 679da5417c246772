"""The conversation of a run as its thread has it, where the server owns the history."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from copilot_runtime.api.agent import Agent, HistoryOwner
from copilot_runtime.api.events import Event, RunStarted
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ActivityMessage,
    AgentStateMessage,
    ImageMessage,
    Message,
    ReasoningMessage,
    ResultMessage,
    TextMessage,
    is_real_result,
)
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.api.transcript import fold_thread
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.threads.message_ids import collect_names, get_message_name
from copilot_runtime.threads.store import StoredRun

logger = logging.getLogger(__name__)

_DRAWN = (AgentStateMessage, ActivityMessage, ReasoningMessage)
"""What a client repeats of what it has drawn. The thread has its own."""

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class History:
    """The conversation that an agent gets, and what of the client's was left out."""

    messages: Sequence[Message]
    ignored: int
    """How many messages the client made up, or changed."""
    is_rewritten: bool
    """Whether readers of the thread have to be sent the conversation anew."""


def select_owner(default: HistoryOwner, agent: Agent | None) -> HistoryOwner:
    """Return who owns the history of an agent's threads. Raises `ConfigurationFailed`.

    What is no text is an attribute of somebody's own class, such as a list of what was said.
    """
    owner = agent.history if agent is not None and isinstance(agent.history, str) else default
    if owner not in ("client", "server"):
        raise ConfigurationFailed(
            f"An agent has the history {owner!r}.",
            hint="It is client or server, or None for what the setting says.",
        )
    return owner


def restore_history(request: RunInput, runs: Sequence[StoredRun]) -> History:
    """Return the conversation for a run of a thread that has these runs before it."""
    logs = [run.events for run in runs]
    history = merge_history(logs, request.messages, goes_on=bool(request.resume))
    if history.ignored:
        logger.warning(
            "Run %s: %d of the client's messages are made up or changed, and are ignored",
            request.run_id,
            history.ignored,
        )
    return history


def merge_history(
    logs: Sequence[Sequence[Event]], sent: Sequence[Message], *, goes_on: bool = False
) -> History:
    """Return the conversation in the logs of a thread with what a person has added to it.

    New are messages of a person behind the last one that the thread has, and results of stored
    calls that have none yet, unless the server runs such calls: where one was stopped or broke
    off, no page knows its result. A request that ends with a stored message of a person goes back
    to it: it is asked again, or was edited. With `goes_on`, the run answers an interrupt, and goes
    back to nothing. Whatever else a client sends is as it is stored, or is ignored. Instructions,
    which are no part of the conversation, are those that the client sends now.
    """
    instructions = [message for message in sent if _is_instruction(message)]
    turns = [it for it in sent if not _is_instruction(it) and not isinstance(it, _DRAWN)]
    whole = [it for it in fold_thread(logs) if not (instructions and _is_instruction(it))]
    stored = _drop_placeholders(whole, answered={it.call_id for it in turns if is_real_result(it)})
    by_key = {_key(message): message for message in stored}
    again = by_key.get(_key(turns[-1])) if turns and _is_question(turns[-1]) else None
    if again is not None and _is_question(again) and not goes_on:
        merged = _go_back(stored, by_key, turns)
    else:
        unanswered = _find_unanswered_calls(stored, {*_collect_server_actions(logs)})
        merged = _extend(stored, by_key, turns, {*_collect_names(logs)}, unanswered)
    is_rewritten = merged.is_rewritten or len(stored) < len(whole)
    return History([*instructions, *merged.messages], merged.ignored, is_rewritten)


def _drop_placeholders(messages: Sequence[Message], answered: AbstractSet[str]) -> list[Message]:
    """Return messages without results that stand for those of calls that are answered."""
    return [
        it
        for it in messages
        if not isinstance(it, ResultMessage) or is_real_result(it) or it.call_id not in answered
    ]


def _go_back(
    stored: Sequence[Message], by_key: Mapping[_Key, Message], turns: Sequence[Message]
) -> History:
    """Cut the conversation behind the stored question that the client ends with."""
    *earlier, question = turns
    place = [_key(message) for message in stored].index(_key(question))
    is_edited = not _is_same(question, stored[place])
    ignored = sum(not _repeats_stored(message, by_key) for message in earlier)
    is_rewritten = is_edited or ignored > 0 or place < len(stored) - 1
    return History(
        [*stored[:place], question if is_edited else stored[place]], ignored, is_rewritten
    )


def _extend(
    stored: Sequence[Message],
    by_key: dict[_Key, Message],
    turns: Sequence[Message],
    names: set[str],
    unanswered: dict[str, str],
) -> History:
    """Add to the conversation what is new. `names` are those of all messages of the thread."""
    messages = [*stored]
    places = [at for at, message in enumerate(turns) if _key(message) in by_key]
    end = places[-1] + 1 if places else 0
    ignored, is_rewritten = 0, False
    for at, message in enumerate(turns):
        was_there = get_message_name(message) in names  # and may be no longer
        if _key(message) in by_key:
            ignored += not _repeats_stored(message, by_key)
            continue
        if isinstance(message, ResultMessage) and message.call_id in unanswered:
            # a client that does not send the call does not know its name
            message = replace(message, name=unanswered.pop(message.call_id))
        elif not (_is_question(message) and at >= end and (not was_there or message is turns[-1])):
            ignored += 1
            continue
        messages.append(message)
        by_key[_key(message)] = message
        is_rewritten |= was_there  # the thread stores a message once
    return History(messages, ignored, is_rewritten or ignored > 0)


def _collect_names(logs: Iterable[Sequence[Event]]) -> Iterable[str]:
    for events in logs:
        yield from collect_names(events)


def _collect_server_actions(logs: Iterable[Sequence[Event]]) -> Iterable[str]:
    """Return the names of the actions that the server ran in these runs."""
    for events in logs:
        for event in events[:1]:
            if isinstance(event, RunStarted):
                yield from event.server_actions


def _find_unanswered_calls(
    messages: Iterable[Message], server_actions: AbstractSet[str]
) -> dict[str, str]:
    """Return the names of calls that a page may still answer, by the ids of the calls."""
    calls: dict[str, str] = {}
    for message in messages:
        if isinstance(message, ActionExecutionMessage):
            if message.name not in server_actions:
                calls[message.id] = message.name
        elif isinstance(message, ResultMessage):
            calls.pop(message.call_id, None)
    return calls


def _is_question(message: Message) -> bool:
    return isinstance(message, TextMessage | ImageMessage) and message.role == "user"


def _is_instruction(message: Message) -> bool:
    return isinstance(message, TextMessage) and message.role in ("system", "developer")


def _repeats_stored(message: Message, by_key: Mapping[_Key, Message]) -> bool:
    """Return whether the thread has a message, and in these words."""
    stored = by_key.get(_key(message))
    return stored is not None and _is_same(message, stored)


def _is_same(sent: Message, stored: Message) -> bool:
    """Return whether a message says what the stored one says."""
    match sent, stored:
        case TextMessage(role="assistant", content=content), TextMessage():
            return stored.content.startswith(content)  # a client may have left before the end
        case TextMessage(content=one, parts=ones), TextMessage(content=other, parts=others):
            return one == other and [*ones] == [*others]
        case ActionExecutionMessage(name=one), ActionExecutionMessage(name=other):
            return one == other  # clients write the arguments anew
        case ResultMessage(parts=ones), ResultMessage(parts=others) if ones and others:
            return [*ones] == [*others]  # their JSON is written anew
        case ResultMessage(result=one), ResultMessage(result=other):
            return one == other
        case ImageMessage(bytes=one), ImageMessage(bytes=other):
            return one == other
        case _:
            return True


def _key(message: Message) -> _Key:
    # a call may have the id of the message it belongs to
    return message.type, message.id
