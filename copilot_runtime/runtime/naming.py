"""Name threads in the background, after their first answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from copilot_runtime.base.concurrency import convert_exits
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.runtime.thread_changes import ThreadChanges
from copilot_runtime.threads.store import StoredRun, ThreadKey, ThreadStore

Namer = Callable[[Sequence[StoredRun]], Awaitable[str | None]]
"""Derives a name for an unnamed thread from its runs; returns `None` to leave it unnamed."""

logger = logging.getLogger(__name__)


class ThreadNaming:
    """Names threads in background tasks. Without a namer, threads stay unnamed."""

    def __init__(self, store: ThreadStore, changes: ThreadChanges, namer: Namer | None) -> None:
        self.namer = namer
        self._store = store
        self._changes = changes
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, thread: ThreadKey) -> None:
        """Start a background task that names an answered thread."""
        if self.namer is None:
            return
        task = asyncio.create_task(self._try_to_name(self.namer, thread), name=f"name:{thread.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self, patience: float) -> None:
        """Cancel the pending naming tasks and wait up to `patience` seconds for them."""
        for task in [*self._tasks]:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience)

    async def _try_to_name(self, namer: Namer, thread: ThreadKey) -> None:
        try:
            await convert_exits(self._name(namer, thread))
        except CopilotError as error:
            logger.warning("The thread %s got no name: %s", thread.id, error.message)
        except (
            Exception
        ):  # raised by the application's namer, adapter or store: the thread stays unnamed
            logger.exception("The thread %s got no name", thread.id)

    async def _name(self, namer: Namer, thread: ThreadKey) -> None:
        """Name a thread, unless it was deleted or already has a name."""
        found = await self._store.get(thread)
        if found is None or found.name is not None:
            return
        name = await namer(await self._store.runs(thread))
        if name is not None:
            await self._store.update(thread, name=name)
            self._changes.note(thread)
