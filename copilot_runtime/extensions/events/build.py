"""Builds the event log and its publishers from the settings."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from copilot_runtime.agents.coerce import AgentsLike
from copilot_runtime.api.events import RunFailed, RunFinished, RunStarted
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.app.agents import has_plans
from copilot_runtime.config.settings import Settings
from copilot_runtime.runtime.run import RunListener
from copilot_runtime.runtime.thread_changes import ThreadChanges

if TYPE_CHECKING:
    from copilot_runtime.extensions.events import ResourceEvents
    from copilot_runtime.extensions.events.http.access import EventAccess
    from copilot_runtime.extensions.events.publisher import EventPublisher
    from copilot_runtime.extensions.knowledge import Knowledge

_MOST_EVENTS_IN_MEMORY = 10_000


def build_events(
    settings: Settings, knowledge: "Knowledge | None", agents: AgentsLike | None = None
) -> "ResourceEvents | None":
    """Return the event publisher, or None if events are disabled; that of knowledge is reused."""
    store = settings.events.store
    programs = agents.values() if isinstance(agents, Mapping) else ()
    plans = bool(settings.planner.name) or any(map(has_plans, programs))
    store = store or ("memory" if knowledge or plans else "none")
    if store == "none":
        return None
    from copilot_runtime.extensions.events import MemoryEventLog, ResourceEvents, SqliteEventLog

    events = ResourceEvents() if knowledge is None else knowledge.events
    if events.log is None:
        kind, _, path = store.partition(":")
        limits = settings.events
        events.log = (
            SqliteEventLog(path, max_events=limits.max_events, max_bytes=limits.max_bytes)
            if kind == "sqlite"
            else MemoryEventLog(
                min(limits.max_events, _MOST_EVENTS_IN_MEMORY), max_bytes=limits.max_bytes
            )
        )
    return events


def build_publisher(events: "ResourceEvents | None") -> "EventPublisher | None":
    """Return a publisher for code that must not block, or None if events are not stored."""
    if events is None:
        return None
    from copilot_runtime.extensions.events.publisher import EventPublisher

    return EventPublisher(events)


def build_run_listener(publisher: "EventPublisher | None", changes: ThreadChanges) -> RunListener:
    """Return the listener for run starts and ends.

    It notifies thread subscribers, and publishes events if they are stored.
    """
    if publisher is None:
        return changes.note_run
    from copilot_runtime.runtime.run_events import RunEvents

    publish = RunEvents(publisher)

    def notify(run: RunInput, event: RunStarted | RunFinished | RunFailed) -> None:
        publish(run, event)
        changes.note_run(run, event)

    return notify


def build_event_access(
    settings: Settings, events: "ResourceEvents | None", knowledge: "Knowledge | None"
) -> "EventAccess | None":
    """Return the access-checked view of events for HTTP, or None if none are stored."""
    if events is None:
        return None
    from copilot_runtime.extensions.events import MemoryEventLog
    from copilot_runtime.extensions.events.http.access import EventAccess, PublishQuota
    from copilot_runtime.extensions.knowledge.policies import OWNERS_ONLY

    max_events = settings.events.max_events
    if isinstance(events.log, MemoryEventLog):
        max_events = min(max_events, _MOST_EVENTS_IN_MEMORY)
    return EventAccess(
        events,
        OWNERS_ONLY.access if knowledge is None else knowledge.access,
        PublishQuota(max_events, settings.events.max_bytes),
    )
