"""Encode thread changes as JSON in the format of CopilotKit's own client."""

from collections.abc import Mapping
from typing import Any, assert_never

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
