"""A reader of an owner's thread changes."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from copilot_runtime.runtime.thread_changes.change import Change, RunActivity, ThreadChange

_MOST_WAITING = 500
"""Maximum number of queued changes of a reader; the queue has one entry per thread."""


class ChangeReader:
    """A queue of thread changes for one reader.

    A reader that falls too far behind is closed, and so are all readers when the server stops. A
    client that reconnects gets the current list.
    """

    def __init__(self) -> None:
        self.is_closed = False
        self._waiting: dict[tuple[str, ...], Change] = {}
        self._woken = asyncio.Event()

    def put(self, change: Change) -> None:
        """Queue a change; it replaces a queued change of the same thread."""
        if self.is_closed:
            return
        name = _name(change)
        before = self._waiting.pop(name, None)
        if _is_new(before) and isinstance(change, ThreadChange) and change.thread is not None:
            change = replace(change, operation="created")
        self._waiting[name] = change
        if len(self._waiting) > _MOST_WAITING:
            self.close()
        self._woken.set()

    async def read(self) -> Sequence[Change]:
        """Wait for changes and return them in order; empty once the reader is closed."""
        await self._woken.wait()
        if self.is_closed:
            return ()
        changes = [*self._waiting.values()]
        self._waiting.clear()
        self._woken.clear()
        return changes

    def close(self) -> None:
        """Close the reader; it receives no further changes."""
        self.is_closed = True
        self._waiting.clear()
        self._woken.set()


def _name(change: Change) -> tuple[str, ...]:
    match change:
        case ThreadChange(key=key):
            return (key.id,)
        case RunActivity(key=key, run_id=run_id, event=event):
            return (key.id, run_id, event)


def _is_new(change: Change | None) -> bool:
    return isinstance(change, ThreadChange) and change.operation == "created"
