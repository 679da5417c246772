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
    """Yield threads: the latest of an owner first, or the oldest of everybody.

    Those of everybody are of all agents, and archived ones are among them.
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
    """Return at most `limit` threads of an owner, or of everybody, the latest first."""
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
