"""The log of a run of another process, as far as it has come here."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextvars import Context
from weakref import WeakSet

from copilot_runtime.api.bus import Batch, Cursor
from copilot_runtime.api.events import LAST, Event
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.cluster.rest import find_rest
from copilot_runtime.threads.recovery import INTERRUPTED
from copilot_runtime.threads.run_log import MemoryBus
from copilot_runtime.threads.store import ThreadKey


class Mirror:
    """A copy of a log, which any number of readers of this process follow.

    `thread` and `server` say whose run it is, and which process has it.
    """

    def __init__(self, bus: MemoryBus, thread: ThreadKey, server: str, log_id: str) -> None:
        self.thread = thread
        self.server = server
        self.log_id = log_id
        self.position = 0
        """How many events of the log are here."""
        self.is_complete = False
        """Whether its last event is here."""
        self.is_missing = False
        """Whether the other process has no such log."""
        self.readers: WeakSet[AsyncGenerator[Batch, None]] = WeakSet()
        """Also those who have not begun to read."""
        self.found: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Done once it is known whether there is such a log."""
        self._id = f"{server}:{log_id}"
        self._bus = bus
        self._ending: asyncio.Task[None] | None = None

    def add(self, position: int, after: int, events: Sequence[Event]) -> bool:
        """Add events from a position to the one after them, as far as they are new.

        Returns False if some before them are missing.
        """
        if position > self.position:
            return False
        new = events[self.position - position :]
        if new and not self.is_complete:
            self._append(new)
        self.position = max(self.position, after)
        self._settle(True)
        return True

    def end(self, whole: Sequence[Event]) -> None:
        """End the log of a process that died, with what the store has beyond this copy."""
        if self.is_complete:
            return
        rest = find_rest(self._bus.list_events(self._id), whole)
        self._append(rest if rest and isinstance(rest[-1], LAST) else [*rest, INTERRUPTED])
        self._settle(True)

    def refuse(self) -> None:
        """Note that there is no such log in the other process."""
        self.is_missing = True
        self._settle(False)

    def read(self, after: Cursor) -> AsyncGenerator[Batch, None]:
        """Follow the log from a cursor to its end: one of the process that has it is good here."""
        log = self._bus.read(self._id, after)
        self.readers.add(log)
        return log

    async def drop(self) -> None:
        """Delete the copy."""
        await self._bus.drop(self._id)

    def _append(self, events: Sequence[Event]) -> None:
        """Add events, and end the copy where it becomes too long: the original did not."""
        try:
            self._bus.add(self._id, events)
        except CopilotError:
            self.is_complete = True
            self._ending = asyncio.create_task(
                self._bus.append(self._id, INTERRUPTED), context=Context()
            )
        self.is_complete |= isinstance(events[-1], LAST)

    def _settle(self, is_found: bool) -> None:
        if not self.found.done():
            self.found.set_result(is_found)
