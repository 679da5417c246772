"""Events of runs, for those who follow what happens to a conversation."""

from typing import assert_never

from copilot_runtime.api.events import RunFailed, RunFinished, RunStarted
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import Cancelled
from copilot_runtime.base.jsonvalue import drop_none
from copilot_runtime.extensions.events.publisher import EventPublisher
from copilot_runtime.extensions.knowledge.events.event import ResourceEvent
from copilot_runtime.extensions.knowledge.policies.ownership import conversation_identifier
from copilot_runtime.runtime.observer import RunObserver
from copilot_runtime.runtime.run import Run

SOURCE = "runs"


class RunEvents(RunObserver):
    """Publishes that a run has begun or ended."""

    def __init__(self, publisher: EventPublisher) -> None:
        self._publisher = publisher

    def on_start(self, run: Run, event: RunStarted) -> None:
        self.publish(run.request, event)

    def on_end(self, run: Run, event: RunFinished | RunFailed, *, is_lost: bool) -> None:  # noqa: ARG002
        self.publish(run.request, event)

    def publish(self, request: RunInput, event: RunStarted | RunFinished | RunFailed) -> None:
        """Publish the first or the last event of the run of a request."""
        if (found := build_run_event(request, event)) is not None:
            self._publisher.publish_soon(found)


def build_run_event(
    run: RunInput, event: RunStarted | RunFinished | RunFailed
) -> ResourceEvent | None:
    """Return what happened to the conversation of a run; None for a run in none."""
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
