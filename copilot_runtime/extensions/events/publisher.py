"""Publishes events for code that must not block, such as runs and plans."""

import asyncio
import logging
from typing import assert_never

from copilot_runtime.api.events import RunFailed, RunFinished, RunStarted
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.concurrency import retrieve_exception
from copilot_runtime.base.errors import Cancelled, CopilotError
from copilot_runtime.base.jsonvalue import drop_none
from copilot_runtime.extensions.knowledge.events.event import ResourceEvent
from copilot_runtime.extensions.knowledge.events.hub import ResourceEvents
from copilot_runtime.extensions.knowledge.policies.ownership import conversation_identifier
from copilot_runtime.runtime.observer import RunObserver
from copilot_runtime.runtime.run import Run

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
            logger.error("An event was dropped: %d events are already queued.", _MOST_WAITING)
            return
        try:
            event.check()
        except CopilotError as error:  # checked alone: it must not fail the others
            logger.error("An event was dropped: %s", error.message)
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
                    logger.error("%d events were dropped: %s", len(batch), error.message)
                except Exception:  # no caller awaits this task
                    logger.exception("%d events were dropped.", len(batch))
        finally:
            self._task = None


SOURCE = "runs"


class RunEvents(RunObserver):
    """Publishes the start and the end of runs."""

    def __init__(self, publisher: EventPublisher) -> None:
        self._publisher = publisher

    def on_start(self, run: Run, event: RunStarted) -> None:
        self.publish(run.request, event)

    def on_end(self, run: Run, event: RunFinished | RunFailed, *, is_lost: bool) -> None:  # noqa: ARG002
        self.publish(run.request, event)

    def publish(self, request: RunInput, event: RunStarted | RunFinished | RunFailed) -> None:
        """Publish an event for the start or the end of a request's run."""
        if (found := build_run_event(request, event)) is not None:
            self._publisher.publish_soon(found)


def build_run_event(
    run: RunInput, event: RunStarted | RunFinished | RunFailed
) -> ResourceEvent | None:
    """Return the event for the start or end of a run, or `None` for a run without a thread."""
    if not run.thread_id:
        return None
    code: str | None = None
    match event:
        case RunStarted():
            detail_type = "RUN_STARTED"
        case RunFinished():
            detail_type = "RUN_FINISHED"
        case RunFailed(error=error):
            detail_type = "RUN_STOPPED" if error.code == Cancelled.code else "RUN_FAILED"
            code = error.code
        case _:
            assert_never(event)
    return ResourceEvent(
        source=SOURCE,
        detail_type=detail_type,
        resources=(conversation_identifier(run.user, run.thread_id),),
        detail=drop_none(
            {
                "thread_id": run.thread_id,
                "run_id": run.run_id,
                "agent": run.agent_name,
                "code": code if detail_type == "RUN_FAILED" else None,
            }
        ),
    )
