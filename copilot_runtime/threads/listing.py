"""Threads of a store, however many: a page at a time."""

from collections.abc import AsyncGenerator

from copilot_runtime.threads.store import Thread, ThreadQuery, ThreadStore
from copilot_runtime.threads.validation import MOST_PER_PAGE


async def list_threads(
    store: ThreadStore, owner: str | None, agent: str | None = None
) -> AsyncGenerator[Thread, None]:
    """Yield threads, archived ones too: the latest of an owner first, or the oldest of everybody.

    Where owners are not told apart, neither are agents.
    """
    cursor: str | None = None
    while True:
        if owner is None:
            page = await store.everyones(cursor)
        else:
            query = ThreadQuery(
                owner=owner, agent=agent, archived=True, limit=MOST_PER_PAGE, cursor=cursor
            )
            page = await store.list(query)
        for thread in page.threads:
            yield thread
        cursor = page.next_cursor
        if cursor is None:
            return
