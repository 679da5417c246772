"""The change feed of one owner's threads, while it has readers in this process."""

import asyncio
import logging
from collections.abc import Sequence
from contextvars import Context

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.runtime.thread_changes.change import (
    Change,
    Notice,
    RunActivity,
    RunEvent,
    ThreadChange,
    find_operation,
)
from copilot_runtime.runtime.thread_changes.reader import ChangeReader
from copilot_runtime.threads.store import Thread, ThreadKey, ThreadPage, ThreadQuery, ThreadStore

_DELAY = 0.05
"""Seconds for which notices are collected, so that a thread is read once for all of them."""

_MOST_READ = 20
"""Maximum number of threads read one by one; for more, the list is read."""

_WINDOW = 200
"""Number of an owner's most recently used threads that are compared when the list is read."""

logger = logging.getLogger(__name__)


class OwnerFeed:
    """Compares an owner's stored threads with the state its readers know, and sends the changes.

    A notice names a thread that may have changed, and whether a run started or ended in it. `look`
    polls the most recently used threads and needs no notices.
    """

    def __init__(self, owner: str, store: ThreadStore) -> None:
        self.readers: set[ChangeReader] = set()
        self._owner = owner
        self._store = store
        self._known: dict[str, Thread] = {}
        self._gone: dict[str, None] = {}
        """The most recently deleted threads that readers know of, oldest first: several notices may
        report one deletion."""
        self._runs: dict[str, str] = {}
        """Active runs, by thread identifier."""
        self._ended: dict[str, str] = {}
        """For each thread, the last run whose end was sent to readers."""
        self._notices: list[Notice] = []
        self._lock = asyncio.Lock()
        self._is_primed = False
        self._knows_runs = False
        """`True` if the store reports which threads are being answered; custom stores may not."""
        self._flushing: asyncio.Task[None] | None = None

    def add(self, notice: Notice) -> None:
        """Queue a notice of a change."""
        self._notices.append(notice)
        if self._flushing is None:
            self._flushing = asyncio.create_task(
                self._flush(), name="push thread changes", context=Context()
            )

    async def prime(self) -> None:
        """Load the initial state of the threads, without sending it. Raises `StoreFailed`."""
        if not self._is_primed:
            await self.look()

    async def look(self) -> None:
        """Read the thread list and send the changes to readers. Raises `StoreFailed`."""
        async with self._lock:
            query = ThreadQuery(owner=self._owner, archived=True, limit=_WINDOW)
            page = await self._store.list(query)
            for thread in reversed(page.threads):
                self._compare(thread.key.id, thread)
                if thread.is_running or thread.key.id in self._runs:
                    await self._compare_run(thread)
            self._forget(page)
            self._is_primed = True

    def close(self) -> None:
        """Close all readers and cancel pending notices."""
        if self._flushing is not None:
            self._flushing.cancel()
        for reader in self.readers:
            reader.close()

    async def _flush(self) -> None:
        try:
            while self._notices:
                await asyncio.sleep(_DELAY)
                notices, self._notices = self._notices, []
                await self._take(notices)
        except CopilotError as error:  # the next poll of the list finds the changes
            logger.warning("Changes of threads cannot be read: %s", error.message)
        finally:
            self._flushing = None

    async def _take(self, notices: Sequence[Notice]) -> None:
        threads = dict.fromkeys(notice.thread for notice in notices)
        if len(threads) > _MOST_READ:
            await self.look()
        async with self._lock:
            if len(threads) <= _MOST_READ:
                for id in threads:
                    self._compare(id, await self._store.get(ThreadKey(self._owner, id)))
            for notice in notices:
                if notice.event is not None:
                    self._tell_run(notice.thread, notice.event, notice.run_id, notice.agent)

    def _compare(self, id: str, thread: Thread | None) -> None:
        """Send the difference between a thread and its last known state."""
        key, before = ThreadKey(self._owner, id), self._known.get(id)
        if thread is None:
            self._known.pop(id, None)
            self._runs.pop(id, None)
            if id not in self._gone:
                self._tell(ThreadChange(key=key, operation="deleted", thread=None))
            self._remember_deletion(id)
            return
        self._gone.pop(id, None)
        self._known[id] = thread
        self._knows_runs |= thread.is_running
        if (operation := find_operation(before, thread)) is not None:
            self._tell(ThreadChange(key=key, operation=operation, thread=thread))

    def _remember_deletion(self, id: str) -> None:
        self._gone[id] = None
        if len(self._gone) > _WINDOW:
            del self._gone[next(iter(self._gone))]

    async def _compare_run(self, thread: Thread) -> None:
        """Report a run without a notice, and end a run whose process has died."""
        id = thread.key.id
        run = await self._store.find_running(thread.key) if thread.is_running else None
        if run is not None and id not in self._runs:
            self._tell_run(id, "RUN_STARTED", run.run_id, thread.agent)
        if run is not None and run.server != await self._store.server():
            is_alive = await self._store.is_alive(run.server)
            if not is_alive and await self._store.end_dead_run(thread.key, run.log_id):
                self._compare(id, await self._store.get(thread.key))
                self._tell_run(id, "RUN_ERROR", run.run_id, thread.agent)
        elif self._knows_runs and not thread.is_running and id in self._runs:
            self._tell_run(id, "RUN_FINISHED", self._runs[id], thread.agent)

    def _tell_run(self, thread: str, event: RunEvent, run_id: str, agent: str) -> None:
        """Report the start or end of a run, unless a poll has already reported it."""
        if event == "RUN_STARTED":
            if run_id and self._runs.get(thread) == run_id:
                return
            self._runs[thread] = run_id
            self._ended.pop(thread, None)
        else:
            if run_id and self._ended.get(thread) == run_id:
                return
            self._ended[thread] = run_id
            if self._runs.get(thread) == run_id:
                del self._runs[thread]
        key = ThreadKey(self._owner, thread)
        self._tell(RunActivity(key=key, event=event, run_id=run_id, agent=agent))

    def _forget(self, page: ThreadPage) -> None:
        """Report deleted threads, and forget threads that are too old for the list.

        Threads only move up in the list, so a thread that is missing from its range was deleted.
        """
        found = {thread.key.id for thread in page.threads}
        oldest = page.threads[-1].updated_at if page.next_cursor is not None else None
        for id, thread in [*self._known.items()]:
            if id in found:
                continue
            if oldest is None or thread.updated_at >= oldest:
                self._compare(id, None)
            else:
                del self._known[id]
        for ids in (self._runs, self._ended):
            for id in [id for id in ids if id not in self._known]:
                del ids[id]

    def _tell(self, change: Change) -> None:
        if self._is_primed:
            for reader in self.readers:
                reader.put(change)
