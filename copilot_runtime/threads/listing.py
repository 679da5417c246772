"""List the threads of a store, and assign them to another owner."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from copilot_runtime.base.errors import NotFound
from copilot_runtime.threads.store import Thread, ThreadKey, ThreadQuery, ThreadStore
from copilot_runtime.threads.validation import MOST_PER_PAGE, busy


async def list_threads(
    store: ThreadStore,
    owner: str | None,
    agent: str | None = None,
    *,
    archived: bool = True,
) -> AsyncGenerator[Thread, None]:
    """Yield the threads of an owner, latest first; or of all owners, oldest first.

    For an `owner` of `None`, `agent` and `archived` are ignored: all threads are yielded.
    """
    cursor: str | None = None
    while True:
        if owner is None:
            page = await store.everyones(cursor)
        else:
            query = ThreadQuery(
                owner=owner, agent=agent, archived=archived, limit=MOST_PER_PAGE, cursor=cursor
            )
            page = await store.list(query)
        for thread in page.threads:
            yield thread
        cursor = page.next_cursor
        if cursor is None:
            return


async def list_latest(
    store: ThreadStore, limit: int, *, owner: str | None, agent: str | None, archived: bool
) -> Sequence[Thread]:
    """Return at most `limit` threads, latest first; an `owner` of `None` means all owners."""
    if owner is None:
        return await store.list_latest(limit, agent=agent, archived=archived)
    latest: list[Thread] = []
    async with aclosing(list_threads(store, owner, agent, archived=archived)) as threads:
        async for thread in threads:
            latest.append(thread)
            if len(latest) == limit:
                break
    return latest


_AT_ONCE = 100
"""Threads per transaction, to keep it short."""


class Assignment:
    """The assignment of the threads of `source`, or some of them, to `owner`."""

    def __init__(self, source: str, owner: str, ids: Sequence[str] = ()) -> None:
        self.source = source
        self.owner = owner
        self.ids = [*dict.fromkeys(ids)]
        self.count = 0
        """Number of threads assigned so far."""
        self.conflicts: list[str] = []
        """Ids of skipped threads: the new owner already has a thread with that id."""

    async def list_threads(self, store: ThreadStore) -> AsyncGenerator[Thread, None]:
        """Yield the threads to assign.

        Raises `ThreadBusy` for an active run, and `NotFound` for an unknown id or for a named owner
        without threads.
        """
        async with aclosing(self._find_threads(store)) as found:
            async for thread in found:
                if thread.is_running:
                    raise busy(thread.key)
                yield thread

    async def carry_out(self, store: ThreadStore) -> AsyncGenerator[int, None]:
        """Assign the threads, and yield the number assigned so far.

        Raises `ThreadBusy` before any change if one of them has an active run. If a run starts
        later, some threads are already assigned; another call assigns the rest.
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
                    hint="`copilot-runtime operate threads list` shows owners and ids.",
                )
        for id in self.ids:
            thread = await store.get(ThreadKey(self.source, id))
            if thread is None:
                whose = f"of {self.source!r}" if self.source else "without an owner"
                raise NotFound(
                    f"There is no thread {id!r} {whose}.",
                    hint="`copilot-runtime operate threads list` shows owners and ids.",
                )
            yield thread

    async def _give(self, store: ThreadStore, keys: Sequence[ThreadKey]) -> None:
        moves = {*await store.assign(keys, self.owner)}
        self.count += len(moves)
        stays = [key for key in keys if key not in moves]
        self.conflicts += [key.id for key in stays if await store.get(key) is not None]
