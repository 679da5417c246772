"""Rebuild a run's conversation from its thread if the server owns the history."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

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
from copilot_runtime.threads.log_ids import collect_names, get_message_name
from copilot_runtime.threads.store import StoredRun

logger = logging.getLogger(__name__)

_DRAWN = (AgentStateMessage, ActivityMessage, ReasoningMessage)
"""Message types that clients only echo; the thread has the originals."""

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class History:
    """The conversation for the agent, and the number of client messages that were ignored."""

    messages: Sequence[Message]
    ignored: int
    """Number of client messages that were invented or altered."""
    is_rewritten: bool
    """`True` if readers of the thread need a new snapshot of the conversation."""


def select_owner(default: HistoryOwner, agent: Agent | None) -> HistoryOwner:
    """Return `"client"` or `"server"`: the owner of the history of an agent's threads.

    A `history` attribute that is not a string belongs to a custom agent class and is ignored.
    Raises `ConfigurationFailed` for any other string.
    """
    owner = agent.history if agent is not None and isinstance(agent.history, str) else default
    if owner not in ("client", "server"):
        raise ConfigurationFailed(
            f"An agent has the history {owner!r}.",
            hint="Use client or server, or None for the default of the setting.",
        )
    return owner


def restore_history(request: RunInput, runs: Sequence[StoredRun]) -> History:
    """Return the conversation for a run, given the previous runs of its thread."""
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
    """Return the stored conversation of a thread, extended by the user's new messages.

    New messages are user messages after the last one that the thread has, and results of stored
    calls that have none yet. Results of calls that the server executes are ignored: if such a call
    was stopped or failed, no client knows its result. If a request ends with a stored user message,
    the conversation is cut there: the question is repeated or was edited. With `goes_on`, the run
    answers an interrupt, and nothing is cut. All other messages of the client are already stored,
    or are ignored. Instructions are not part of the stored conversation; the client's current ones
    apply.
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


def restore_added_fields(sent: Sequence[Message], runs: Sequence[StoredRun]) -> Sequence[Message]:
    """Return a v1 client's messages with the reasoning and the signatures of its thread.

    GraphQL cannot carry them, and services refuse calls without them.
    """
    by_key = {_key(message): message for message in sent}
    thoughts: dict[_Key, Sequence[Message]] = {}
    extras: dict[_Key, Mapping[str, Any]] = {}
    pending: list[Message] = []
    for message in fold_thread([run.events for run in runs]):
        if isinstance(message, ReasoningMessage):
            pending.append(message)
        elif isinstance(message, TextMessage | ActionExecutionMessage):
            key = _key(message)
            if key in by_key and _is_same(by_key[key], message):
                thoughts[key] = pending
                extras[key] = message.extra or {}
            pending = []
    restored: list[Message] = []
    for message in sent:
        key = _key(message)
        restored += thoughts.get(key, ())
        if (extra := extras.get(key)) and isinstance(message, TextMessage | ActionExecutionMessage):
            message = replace(message, extra=extra)
        restored.append(message)
    return restored


def _drop_placeholders(messages: Sequence[Message], answered: AbstractSet[str]) -> list[Message]:
    """Drop placeholder results of calls that have a real result."""
    return [
        it
        for it in messages
        if not isinstance(it, ResultMessage) or is_real_result(it) or it.call_id not in answered
    ]


def _go_back(
    stored: Sequence[Message], by_key: Mapping[_Key, Message], turns: Sequence[Message]
) -> History:
    """Cut the conversation after the stored question that the request ends with."""
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
    """Append new messages to the conversation.

    `names` identifies all messages that the thread has ever had.
    """
    messages = [*stored]
    places = [at for at, message in enumerate(turns) if _key(message) in by_key]
    end = places[-1] + 1 if places else 0
    ignored, is_rewritten = 0, False
    for at, message in enumerate(turns):
        was_there = get_message_name(message) in names  # and may no longer be part of it
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
        is_rewritten |= was_there  # the thread stores each message once
    return History(messages, ignored, is_rewritten or ignored > 0)


def _collect_names(logs: Iterable[Sequence[Event]]) -> Iterable[str]:
    for events in logs:
        yield from collect_names(events)


def _collect_server_actions(logs: Iterable[Sequence[Event]]) -> Iterable[str]:
    """Return the names of the actions that the server executed in these runs."""
    for events in logs:
        for event in events[:1]:
            if isinstance(event, RunStarted):
                yield from event.server_actions


def _find_unanswered_calls(
    messages: Iterable[Message], server_actions: AbstractSet[str]
) -> dict[str, str]:
    """Map the identifiers of calls that a client may still answer to action names."""
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
    """Return `True` if the thread has this message with the same content."""
    stored = by_key.get(_key(message))
    return stored is not None and _is_same(message, stored)


def _is_same(sent: Message, stored: Message) -> bool:
    """Return `True` if a message has the same content as the stored one."""
    match sent, stored:
        case TextMessage(role="assistant", content=content), TextMessage():
            return stored.content.startswith(
                content
            )  # the client may have disconnected before the end
        case TextMessage(content=one, parts=ones), TextMessage(content=other, parts=others):
            return one == other and [*ones] == [*others]
        case ActionExecutionMessage(name=one), ActionExecutionMessage(name=other):
            return one == other  # clients reserialize the arguments
        case ResultMessage(parts=ones), ResultMessage(parts=others) if ones and others:
            return [*ones] == [*others]  # their JSON is reserialized
        case ResultMessage(result=one), ResultMessage(result=other):
            return one == other
        case ImageMessage(bytes=one), ImageMessage(bytes=other):
            return one == other
        case _:
            return True


def _key(message: Message) -> _Key:
    # a call may have the id of the message it belongs to
    return message.type, message.id
