"""Live entries and text of a running plan, for any number of subscribers."""

import asyncio
from collections import deque
from dataclasses import dataclass

from copilot_runtime.extensions.planner.events import PlanEntry, TaskEnded, TaskStarted

_MAX_PIECES = 10_000
"""Chunks of a task's text that are buffered for late subscribers while it runs."""

_MAX_QUEUE = 10_000
"""Entries that a subscriber may lag behind before it misses chunks of text."""


@dataclass(frozen=True, slots=True)
class TaskText:
    """A chunk of text that an assistant is writing; it is not stored."""

    task_id: str
    delta: str
    is_whole: bool = False
    """`True` if `delta` is all text so far, as a late subscriber gets it first."""


Queue = asyncio.Queue[PlanEntry | TaskText | None]
"""Entries and text of one subscriber; `None` marks the end."""


class PlanFeed:
    """Subscribers of a plan that runs on this server, and the text that its tasks are writing."""

    def __init__(self) -> None:
        self._queues: set[Queue] = set()
        self._texts: dict[str, deque[str]] = {}
        """Text of running tasks, by task id."""

    def subscribe(self) -> Queue:
        """Return a new queue, which starts with the text of the running tasks so far."""
        queue = Queue()
        for task_id, pieces in self._texts.items():
            queue.put_nowait(TaskText(task_id, "".join(pieces), is_whole=True))
        self._queues.add(queue)
        return queue

    def unsubscribe(self, queue: Queue) -> None:
        """Remove a queue; it gets no further items."""
        self._queues.discard(queue)

    def emit_text(self, task_id: str, delta: str) -> None:
        """Send a chunk of text to all subscribers that do not lag, and buffer it for later ones."""
        pieces = self._texts.setdefault(task_id, deque(maxlen=_MAX_PIECES))
        pieces.append(delta)
        for queue in self._queues:
            if queue.qsize() < _MAX_QUEUE:
                queue.put_nowait(TaskText(task_id, delta))

    def emit(self, entry: PlanEntry) -> None:
        """Send a stored entry to all subscribers."""
        if isinstance(entry.event, TaskStarted | TaskEnded):
            self._texts.pop(entry.event.task_id, None)
        for queue in self._queues:
            queue.put_nowait(entry)

    def close(self) -> None:
        """Send the end marker to all subscribers."""
        for queue in self._queues:
            queue.put_nowait(None)
