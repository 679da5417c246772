"""Encode thread changes as JSON for CopilotKit's client, and as messages of Phoenix channels."""

from collections.abc import Mapping
from typing import Any, NamedTuple, assert_never

from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import drop_none
from copilot_runtime.runtime.thread_changes.change import Change, RunActivity, ThreadChange
from copilot_runtime.threads.store import ThreadQuery
from copilot_runtime.transports.agui import threads


def encode_change(change: Change) -> Mapping[str, Any]:
    """Return the payload of a change for the event that `name_event` returns."""
    match change:
        case ThreadChange(key=key, operation=operation, thread=thread):
            if thread is None:
                return {"operation": "deleted", "threadId": key.id, "deleted": {"id": key.id}}
            # clients that hide archived threads remove one only on this operation
            operation = "archived" if thread.archived else operation
            return {"operation": operation, "threadId": key.id, "thread": threads.thread(thread)}
        case RunActivity(key=key, event=event, run_id=run_id, agent=agent):
            return drop_none(
                {
                    "threadId": key.id,
                    "agentId": agent or None,
                    "runId": run_id or None,
                    "eventType": event,
                }
            )
        case _:
            assert_never(change)


def is_wanted(change: Change, query: ThreadQuery) -> bool:
    """Return `True` if a change concerns a thread that a list shows or may have shown."""
    match change:
        case ThreadChange(thread=thread):
            return thread is None or query.agent in (None, thread.agent)
        case RunActivity(agent=agent):
            return query.agent in (None, agent)
        case _:
            assert_never(change)


HEARTBEAT_TOPIC = "phoenix"


class PhoenixMessage(NamedTuple):
    """A message of a channel. Messages pushed by the server have no `ref`."""

    join_ref: str | None
    ref: str | None
    topic: str
    event: str
    payload: Any


def decode_message(text: str) -> PhoenixMessage:
    """Decode a message. Raises `ValueError` if it is malformed."""
    match loads(text.encode(errors="replace")):
        case [str() | None as join_ref, str() | None as ref, str(topic), str(event), payload]:
            return PhoenixMessage(join_ref, ref, topic, event, payload)
        case _:
            raise ValueError("a message is a list of five")


def encode_message(message: PhoenixMessage) -> str:
    """Encode a message."""
    return dumps([*message]).decode()


def reply(
    message: PhoenixMessage, status: str, response: Mapping[str, Any] | None = None
) -> PhoenixMessage:
    """Return the reply to a message, with the status `ok` or `error`."""
    payload = {"status": status, "response": response or {}}
    return message._replace(event="phx_reply", payload=payload)
