"""Publishes events for code that must not block, such as runs and plans."""

import asyncio
import logging

from copilot_runtime.base.concurrency import retrieve_exception
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.knowledge.events.event import ResourceEvent
from copilot_runtime.extensions.knowledge.events.hub import ResourceEvents

logger = logging.getLogger(__name__)

_MOST_WAITING = 10_000
_AT_ONCE = 100


class EventPublisher:
    """Publishes events in order in the background; queued events are stored in batches."""

    def __init__(self, events: ResourceEvents) -> None:
        self.events = events
        self._waiting: list[ResourceEvent] = []
        self._task: asyncio.Task[None] | None = None

    def publish_soon(self, event: ResourceEvent) -> None:
        """Queue an event. It is published after the events before it.

        Events that cannot be published, or exceed the queue's limit, are logged and dropped.
        """
        if len(self._waiting) >= _MOST_WAITING:
            logger.error("An event is lost: %d others wait to be kept.", _MOST_WAITING)
            return
        try:
            event.check()
        except CopilotError as error:  # checked alone: it must not fail the others
            logger.error("An event is lost: %s", error.message)
            return
        self._waiting.append(event)
        if self._task is None:
            self._task = asyncio.create_task(self._publish(), name="publish events")
            self._task.add_done_callback(retrieve_exception)

    async def aclose(self) -> None:
        """Publish the queued events."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def _publish(self) -> None:
        try:
            while batch := self._waiting[:_AT_ONCE]:
                del self._waiting[:_AT_ONCE]
                try:
                    await self.events.publish(*batch)
                except CopilotError as error:
                    logger.error("%d events are lost: %s", len(batch), error.message)
                except Exception:  # no caller awaits this task
                    logger.exception("%d events are lost.", len(batch))
        finally:
            self._task = None
