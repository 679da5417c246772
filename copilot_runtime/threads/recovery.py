"""How a log is completed that its server could not complete."""

from collections.abc import Sequence

from copilot_runtime.errors import Interrupted
from copilot_runtime.events import Event, RunFailed, RunStarted
from copilot_runtime.threads.compact import compact

INTERRUPTED = RunFailed(
    error=Interrupted("The server stopped before the answer was complete.").report()
)


def with_head(head: Sequence[Event], events: Sequence[Event]) -> Sequence[Event]:
    """Return a log with its first event: a server may die between `begin` and the first write.

    `begin` keeps the new messages of a request in `head`. Until they are in the log, they are
    nowhere else. A longer head is a part of the log by itself.
    """
    if len(head) <= 1 and events and isinstance(events[0], RunStarted):
        return events
    return [*head, *events]


def ended(head: Sequence[Event], events: Sequence[Event]) -> Sequence[Event]:
    """Return the log of a run whose server died, ended and shortened."""
    return compact(with_head(head, events), ending=INTERRUPTED)
