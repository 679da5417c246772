"""Rows of threads, which both databases have alike. Times are microseconds since 1970."""

from collections.abc import Sequence
from typing import Any

from copilot_runtime.threads.clock import to_datetime
from copilot_runtime.threads.store import Thread, ThreadKey, ThreadPage
from copilot_runtime.threads.validation import Place

COLUMNS = "id, owner, thread, agent, name, archived, created, updated, last_run"


def build_page(rows: Sequence[Sequence[Any]], size: int) -> ThreadPage:
    """Return a page of rows of `COLUMNS`; one row too many says that there are more."""
    page = rows[:size]
    cursor = Place(page[-1][7], page[-1][0]).cursor() if len(rows) > size else None
    return ThreadPage(threads=[build_thread(row) for row in page], next_cursor=cursor)


def build_thread(row: Sequence[Any]) -> Thread:
    _, owner, thread, agent, name, archived, created, updated, last_run = row
    return Thread(
        key=ThreadKey(owner, thread),
        agent=agent,
        name=name,
        archived=bool(archived),
        created_at=to_datetime(created),
        updated_at=to_datetime(updated),
        last_run_at=None if last_run is None else to_datetime(last_run),
    )
