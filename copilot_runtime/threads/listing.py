"""Iterate over the threads of a store, page by page."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from copilot_runtime.threads.store import Thread, ThreadQuery, ThreadStore
from copilot_runtime.threads.validation import MOST_PER_PAGE


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
