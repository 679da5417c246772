"""A queue that exports batches from its own thread, so that no run waits for a receiver."""

from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Thread
from time import monotonic
from typing import Generic, TypeVar

Item = TypeVar("Item")

_BATCH = 512
_MAX_SIZE = 64 * 1024 * 1024


class ExportQueue(Generic[Item]):
    """Exports queued items in batches. Items that do not fit are dropped and counted.

    `export` sends a batch, never raises, and returns True if the receiver accepted it; `drop` gets
    the number of items that did not fit or were rejected. A batch is sent when it is full, or after
    `interval` seconds. `put` never blocks.
    """

    def __init__(
        self,
        name: str,
        export: Callable[[Sequence[Item]], bool],
        drop: Callable[[int], None],
        *,
        interval: float = 5,
        max_items: int = 2048,
        max_size: int = _MAX_SIZE,
    ) -> None:
        self._name = name
        self._export = export
        self._drop = drop
        self._interval = interval
        self._max_items = max_items
        self._max_size = max_size
        self._batch = min(_BATCH, max_items)
        self._changed = Condition()
        self._items: deque[tuple[Item, int]] = deque()
        self._size = 0
        self._thread: Thread | None = None
        self._is_busy = False
        self._is_hasty = False
        self._is_closed = False

    def put(self, item: Item, size: int = 0) -> None:
        """Queue an item of about `size` characters, or drop it if the queue is full."""
        with self._changed:
            if self._thread is None and not self._is_closed:
                self._thread = Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            fits = len(self._items) < self._max_items and self._size + size <= self._max_size
            if fits and not self._is_closed:
                self._items.append((item, size))
                self._size += size
                if len(self._items) == self._batch:
                    self._changed.notify_all()
                return
        self._drop(1)

    def flush(self, timeout: float) -> bool:
        """Send all queued items; return True if this was done within `timeout` seconds."""
        with self._changed:
            self._is_hasty = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not (self._items or self._is_busy), timeout)

    def close(self, timeout: float) -> None:
        """Send all queued items within `timeout` seconds, and accept no more."""
        self.flush(timeout)
        with self._changed:
            self._is_closed = True
            left = len(self._items)
            self._items.clear()
            self._changed.notify_all()
        if left:
            self._drop(left)

    def _work(self) -> None:
        while batch := self._take_batch():
            if not self._export(batch):
                self._drop(len(batch))
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()

    def _take_batch(self) -> Sequence[Item]:
        """Wait for the next batch; return an empty one when the queue is closed."""
        with self._changed:
            until = monotonic() + self._interval
            while not self._is_due(until):
                if (seconds := until - monotonic()) <= 0:
                    seconds = self._interval
                    until = monotonic() + seconds
                self._changed.wait(seconds)
            if self._is_closed:
                return ()
            batch = [self._items.popleft() for _ in range(min(len(self._items), self._batch))]
            self._size -= sum(size for _, size in batch)
            self._is_busy = True
            self._is_hasty = self._is_hasty and bool(self._items)
            return [item for item, _ in batch]

    def _is_due(self, until: float) -> bool:
        """Return True if a batch is due, or the queue is closed."""
        if self._is_closed:
            return True
        is_late = self._is_hasty or monotonic() >= until or len(self._items) >= self._batch
        return bool(self._items) and is_late
