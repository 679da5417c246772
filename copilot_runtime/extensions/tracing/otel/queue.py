"""Send what has ended from a thread of its own, so that nobody waits for a receiver."""

from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Thread
from time import monotonic
from typing import Generic, TypeVar

Item = TypeVar("Item")

_BATCH = 512
_MAX_SIZE = 64 * 1024 * 1024


class ExportQueue(Generic[Item]):
    """Exports what is put in, a batch at a time. What does not fit is left out and counted.

    `export` sends a batch, raises nothing, and returns whether it was taken; `drop` is called with
    how many did not fit or were not taken. A batch is sent when it is full, or after `interval`
    seconds. `put` never blocks.
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
        """Add an item of about so many characters, or leave it out if there is no room."""
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
        """Send all there is; return whether that was done in time."""
        with self._changed:
            self._is_hasty = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not (self._items or self._is_busy), timeout)

    def close(self, timeout: float) -> None:
        """Send all there is, if that can be done in time, and take no more."""
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
        """Wait for a batch, and return it; nothing when the queue is closed."""
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
        """Return whether there is something to send now, or nothing ever again."""
        if self._is_closed:
            return True
        is_late = self._is_hasty or monotonic() >= until or len(self._items) >= self._batch
        return bool(self._items) and is_late
