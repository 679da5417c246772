"""Give threads a name once they have been answered."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from copilot_runtime.base.concurrency import convert_exits
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.runtime.thread_changes import ThreadChanges
from copilot_runtime.threads.store import StoredRun, ThreadKey, ThreadStore

Namer = Callable[[Sequence[StoredRun]], Awaitable[str | None]]
"""Returns a name for a thread that has none, from its runs, or None."""

logger = logging.getLogger(__name__)


class ThreadNaming:
    """Names threads in the background. Without a namer, they stay without a name."""

    def __init__(self, store: ThreadStore, changes: ThreadChanges, namer: Namer | None) -> None:
        self.namer = namer
        self._store = store
        self._changes = changes
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, thread: ThreadKey) -> None:
        """Begin to name a thread that has been answered."""
        if self.namer is None:
            return
        task = asyncio.create_task(self._try_to_name(self.namer, thread), name=f"name:{thread.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self, patience: float) -> None:
        """Give up what is not named yet, and wait a few seconds for its end."""
        for task in [*self._tasks]:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience)

    async def _try_to_name(self, namer: Namer, thread: ThreadKey) -> None:
        try:
            await convert_exits(self._name(namer, thread))
        except CopilotError as error:
            logger.warning("The thread %s got no name: %s", thread.id, error.message)
        except Exception:  # of the application's namer, adapter or store: the thread has no name
            logger.exception("The thread %s got no name", thread.id)

    async def _name(self, namer: Namer, thread: ThreadKey) -> None:
        """Give a thread without a name one."""
        found = await self._store.get(thread)
        if found is None or found.name is not None:
            return
        name = await namer(await self._store.runs(thread))
        if name is not None:
            await self._store.update(thread, name=name)
            self._changes.note(thread)
