"""Reassign threads to another owner, such as those created before authentication was required."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from copilot_runtime.base.errors import NotFound
from copilot_runtime.threads.listing import list_threads
from copilot_runtime.threads.store import Thread, ThreadKey, ThreadStore
from copilot_runtime.threads.validation import busy

_AT_ONCE = 100
"""Threads per transaction, to keep it short."""


class Assignment:
    """The assignment of the threads of `source`, or some of them, to `owner`."""

    def __init__(self, source: str, owner: str, ids: Sequence[str] = ()) -> None:
        self.source = source
        self.owner = owner
        self.ids = [*dict.fromkeys(ids)]
        self.count = 0
        """How many the owner has got."""
        self.conflicts: list[str] = []
        """Ids of skipped threads: the new owner already has a thread with that id."""

    async def list_threads(self, store: ThreadStore) -> AsyncGenerator[Thread, None]:
        """Yield what is to be given.

        Raises `ThreadBusy`, or `NotFound` for an id that is none, and a named owner without any.
        """
        async with aclosing(self._find_threads(store)) as found:
            async for thread in found:
                if thread.is_running:
                    raise busy(thread.key)
                yield thread

    async def carry_out(self, store: ThreadStore) -> AsyncGenerator[int, None]:
        """Give the threads, and yield how many are given so far.

        Nothing is given while one of them is being answered: raises `ThreadBusy`. If an answer
        begins meanwhile, some are given already; who does it again gives the rest.
        """
        async with aclosing(self.list_threads(store)) as found:
            async for _ in found:
                pass
        batch: list[ThreadKey] = []
        async with aclosing(self.list_threads(store)) as found:
            async for thread in found:
                batch.append(thread.key)
                if len(batch) == _AT_ONCE:
                    await self._give(store, batch)
                    batch = []
                    yield self.count
        await self._give(store, batch)
        yield self.count

    async def _find_threads(self, store: ThreadStore) -> AsyncGenerator[Thread, None]:
        if not self.ids:
            is_empty = True
            async with aclosing(list_threads(store, self.source)) as found:
                async for thread in found:
                    is_empty = False
                    yield thread
            if is_empty and self.source:
                raise NotFound(
                    f"{self.source!r} has no threads.",
                    hint="`copilot-runtime threads list` shows owners and ids.",
                )
        for id in self.ids:
            thread = await store.get(ThreadKey(self.source, id))
            if thread is None:
                whose = repr(self.source) if self.source else "nobody"
                raise NotFound(
                    f"There is no thread {id!r} of {whose}.",
                    hint="`copilot-runtime threads list` shows owners and ids.",
                )
            yield thread

    async def _give(self, store: ThreadStore, keys: Sequence[ThreadKey]) -> None:
        moves = {*await store.assign(keys, self.owner)}
        self.count += len(moves)
        stays = [key for key in keys if key not in moves]
        self.conflicts += [key.id for key in stays if await store.get(key) is not None]
