"""Threads of a store, however many: a page at a time."""

import heapq
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import datetime

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


async def select_latest(
    threads: AsyncIterator[Thread], count: int, *, is_sorted: bool
) -> list[Thread]:
    """Return those that were used last, the latest first; `is_sorted` if they come so."""
    if is_sorted:
        found: list[Thread] = []
        async for thread in threads:
            found.append(thread)
            if len(found) == count:
                break
        return found
    heap: list[tuple[datetime, int, Thread]] = []
    number = 0
    async for thread in threads:
        number += 1
        entry = (thread.updated_at, number, thread)
        if len(heap) < count:
            heapq.heappush(heap, entry)
        else:
            heapq.heappushpop(heap, entry)
    return [thread for _, _, thread in sorted(heap, reverse=True)]
