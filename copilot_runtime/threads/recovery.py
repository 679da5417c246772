"""Complete logs that their server could not complete, or not store."""

import logging
from collections.abc import Mapping, Sequence

from copilot_runtime.api.events import Event, RunFailed, RunStarted
from copilot_runtime.base.errors import Interrupted
from copilot_runtime.threads.compact import compact
from copilot_runtime.threads.store import Segment

logger = logging.getLogger(__name__)

_MAX_UNSAVED_ENDS = 1000
"""Beyond that the oldest is given up."""

INTERRUPTED = RunFailed(
    error=Interrupted("The server stopped before the answer was complete.").report()
)


def prepend_head(head: Sequence[Event], events: Sequence[Event]) -> Sequence[Event]:
    """Return a log with its first event: a server may die between `begin` and the first write.

    `begin` keeps the new messages of a request in `head`. Until they are in the log, they are
    nowhere else. A longer head is a part of the log by itself.
    """
    if len(head) <= 1 and events and isinstance(events[0], RunStarted):
        return events
    return [*head, *events]


def complete_log(head: Sequence[Event], events: Sequence[Event]) -> Sequence[Event]:
    """Return the log of a run whose server died, ended and shortened."""
    return compact(prepend_head(head, events), ending=INTERRUPTED)


class UnsavedEnds:
    """The ends of runs that wait for a store that failed."""

    def __init__(self) -> None:
        self._segments: dict[str, Segment] = {}
        self._log_fields: dict[str, Mapping[str, str]] = {}

    def __bool__(self) -> bool:
        return bool(self._segments)

    def add(self, segment: Segment, log_fields: Mapping[str, str]) -> None:
        """Add an end; what the log says of it has the ids of its run."""
        self._segments[segment.log_id] = segment
        self._log_fields[segment.log_id] = log_fields
        if len(self._segments) > _MAX_UNSAVED_ENDS:
            self.remove(next(iter(self._segments.values())), is_saved=False)

    def segments(self) -> Sequence[Segment]:
        return [*self._segments.values()]

    def remove(self, segment: Segment, *, is_saved: bool) -> None:
        """Remove an end, which is logged as an error if it was not saved."""
        self._segments.pop(segment.log_id, None)
        fields = self._log_fields.pop(segment.log_id, None)
        if not is_saved:
            logger.error("The end of the run %s could not be kept", segment.log_id, extra=fields)

    def give_up(self) -> None:
        """Remove all ends, which are lost."""
        for segment in self.segments():
            self.remove(segment, is_saved=False)
