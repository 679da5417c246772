"""Events about resources, runs and plans: the event log and access to it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from copilot_runtime.agents.registry import has_plans
from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.config.settings import CoreSettings
from copilot_runtime.extensions.events.publisher import EventPublisher
from copilot_runtime.extensions.events.settings import WORKERS_EVENTS
from copilot_runtime.extensions.knowledge.events.hub import ResourceEvents
from copilot_runtime.extensions.knowledge.extension import find_knowledge
from copilot_runtime.extensions.settings import Settings, narrow_settings
from copilot_runtime.transports.transport import Services

if TYPE_CHECKING:
    from copilot_runtime.extensions.events.http.access import EventAccess
    from copilot_runtime.extensions.knowledge import Knowledge

_MOST_EVENTS_IN_MEMORY = 10_000


class EventsExtension(Extension):
    """Stores and publishes events, if there is knowledge, a planner, or an event store."""

    name = "events"
    requires = ("knowledge",)

    def build(self, core: Core) -> Contribution:
        settings = narrow_settings(core.settings)
        knowledge = find_knowledge(core.parts)
        has_planner = bool(settings.planner.name) or any(
            map(has_plans, core.agents.lasting.values())
        )
        store = settings.events.choose_store(has_publisher=bool(knowledge or has_planner))
        self._events: ResourceEvents | None = None
        self._publisher: EventPublisher | None = None
        if store == "none":
            return Contribution()
        from copilot_runtime.extensions.events.publisher import RunEvents

        self._events = build_events(store, settings, knowledge)
        self._publisher = EventPublisher(self._events)
        access = build_event_access(settings, self._events, knowledge)
        return Contribution(
            parts={
                ResourceEvents: self._events,
                EventPublisher: self._publisher,
                type(access): access,
            },
            observers=[RunEvents(self._publisher)],
            endpoints=[_make_endpoint],
            schema="copilot_runtime.extensions.events.graphql",
        )

    async def aclose(self) -> None:
        if self._publisher is not None:
            await self._publisher.aclose()
        if self._events is not None:
            await self._events.aclose()

    def list_worker_variables(self, settings: CoreSettings) -> Mapping[str, str]:
        if choose_event_store(narrow_settings(settings)) != "memory":
            return {}
        return {"COPILOT_EVENTS_STORE": f"sqlite:{WORKERS_EVENTS}"}


def choose_event_store(settings: Settings) -> str:
    """Return the event store of a server whose parts come from the settings only."""
    publishes = bool(settings.knowledge.address or settings.planner.name)
    return settings.events.choose_store(has_publisher=publishes)


def find_event_file(settings: Settings) -> Path | None:
    """Return the file of events, or `None` if they are in memory or disabled."""
    kind, _, path = settings.events.store.partition(":")
    if kind == "sqlite":
        return Path(path)
    shared = Path(WORKERS_EVENTS)  # `workers` may be on the command line only
    is_shared = kind != "none" and (settings.workers > 1 or shared.exists())
    return shared if is_shared else None


def build_events(
    store: str, settings: Settings, knowledge: "Knowledge | None" = None
) -> ResourceEvents:
    """Return the events of knowledge, or others, with the log that the settings name."""
    from copilot_runtime.extensions.knowledge.events import MemoryEventLog
    from copilot_runtime.extensions.knowledge.events.sqlite import SqliteEventLog

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


def _make_endpoint(services: Services) -> object:
    from copilot_runtime.extensions.events.http.endpoint import EventsEndpoint

    return EventsEndpoint(services)


def build_event_access(
    settings: Settings, events: ResourceEvents, knowledge: "Knowledge | None"
) -> "EventAccess":
    """Return the access to events, by the policy of knowledge or else for owners only."""
    from copilot_runtime.extensions.events.http.access import EventAccess, PublishQuota
    from copilot_runtime.extensions.knowledge.events import MemoryEventLog
    from copilot_runtime.extensions.knowledge.policies import OWNERS_ONLY

    max_events = settings.events.max_events
    if isinstance(events.log, MemoryEventLog):
        max_events = min(max_events, _MOST_EVENTS_IN_MEMORY)
    return EventAccess(
        events,
        OWNERS_ONLY.access if knowledge is None else knowledge.access,
        PublishQuota(max_events, settings.events.max_bytes),
    )
