"""What happens to a plan at this moment, for any number of readers."""

import asyncio
from collections import deque
from dataclasses import dataclass

from copilot_runtime.extensions.planner.events import PlanEntry, TaskEnded, TaskStarted

_MAX_PIECES = 10_000
"""Pieces of text of a task that are kept while it works."""

_MAX_QUEUE = 10_000
"""Entries that a reader may lag behind before it misses pieces of text."""


@dataclass(frozen=True, slots=True)
class TaskText:
    """A piece of what an assistant writes at this moment; it is not stored."""

    task_id: str
    delta: str
    is_whole: bool = False
    """Whether it is all that was written so far: what somebody gets who comes later."""


Queue = asyncio.Queue[PlanEntry | TaskText | None]
"""What happens from now on; None is the end."""


class PlanFeed:
    """The readers of a plan that is carried out here, and what its tasks are writing."""

    def __init__(self) -> None:
        self._queues: set[Queue] = set()
        self._texts: dict[str, deque[str]] = {}
        """What tasks write at this moment."""

    def subscribe(self) -> Queue:
        """Return a queue of what happens from now on."""
        queue = Queue()
        for task_id, pieces in self._texts.items():
            queue.put_nowait(TaskText(task_id, "".join(pieces), is_whole=True))
        self._queues.add(queue)
        return queue

    def unsubscribe(self, queue: Queue) -> None:
        """Put nothing more into a queue."""
        self._queues.discard(queue)

    def emit_text(self, task_id: str, delta: str) -> None:
        """Show a piece of text to those who read quickly enough, and to those who come later."""
        pieces = self._texts.setdefault(task_id, deque(maxlen=_MAX_PIECES))
        pieces.append(delta)
        for queue in self._queues:
            if queue.qsize() < _MAX_QUEUE:
                queue.put_nowait(TaskText(task_id, delta))

    def emit(self, entry: PlanEntry) -> None:
        """Show an entry that is stored to all readers."""
        if isinstance(entry.event, TaskStarted | TaskEnded):
            self._texts.pop(entry.event.task_id, None)
        for queue in self._queues:
            queue.put_nowait(entry)

    def close(self) -> None:
        """Tell all readers that nothing more happens here."""
        for queue in self._queues:
            queue.put_nowait(None)
