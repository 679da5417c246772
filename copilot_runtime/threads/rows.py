"""Threads and runs as rows, in the form that all stores share.

Times are whole microseconds since 1970.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from copilot_runtime.api.events import Event
from copilot_runtime.threads.codec import encode
from copilot_runtime.threads.compact import complete_log
from copilot_runtime.threads.log_ids import collect_names
from copilot_runtime.threads.store import StoredRun, Thread, ThreadKey, ThreadPage
from copilot_runtime.threads.validation import Place

COLUMNS = "id, owner, thread, agent, name, archived, created, updated, last_run, running"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Clock:
    """A clock that never returns the same time twice, so that lists by time have a strict order."""

    def __init__(self) -> None:
        self._last = 0

    def now(self, count: int = 1) -> int:
        """Return the time in microseconds; the `count - 1` microseconds after it are also used."""
        now = max(self._last + 1, time.time_ns() // 1000)
        self._last = now + count - 1
        return now


def to_datetime(microseconds: int) -> datetime:
    return _EPOCH + microseconds * _MICROSECOND


def from_datetime(moment: datetime) -> int:
    """Return a time in microseconds since 1970; a naive time is taken as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MICROSECOND


def build_page(rows: Sequence[Sequence[Any]], size: int) -> ThreadPage:
    """Return a page of rows of `COLUMNS`; more rows than `size` mean that there is a next page."""
    page = rows[:size]
    cursor = Place(page[-1][7], page[-1][0]).cursor() if len(rows) > size else None
    return ThreadPage(threads=[build_thread(row) for row in page], next_cursor=cursor)


def build_thread(row: Sequence[Any]) -> Thread:
    """Return the thread in a row of `COLUMNS`."""
    _, owner, thread, agent, name, archived, created, updated, last_run, running = row
    return Thread(
        key=ThreadKey(owner, thread),
        agent=agent,
        name=name,
        archived=bool(archived),
        created_at=to_datetime(created),
        updated_at=to_datetime(updated),
        last_run_at=None if last_run is None else to_datetime(last_run),
        is_running=running is not None,
    )


def build_run(row: Sequence[Any], events: Sequence[Event]) -> StoredRun:
    """Return the run in a row `key, run_id, agent, began, ended`, with its events."""
    log_id, run_id, agent, began, ended = row
    return StoredRun(
        log_id=log_id,
        run_id=run_id,
        agent=agent,
        began_at=to_datetime(began),
        ended=ended is not None,
        events=events,
    )


def select_new_runs(
    runs: Iterable[StoredRun], stored: Collection[tuple[str, int]]
) -> Iterator[tuple[StoredRun, int, Sequence[Event]]]:
    """Yield the imported runs that are not stored yet, each with its start time and its log.

    `stored` has the log ids and start times of stored runs. Runs without an end are ended.
    """
    for run in runs:
        began = from_datetime(run.began_at)
        if (run.log_id, began) not in stored:
            yield run, began, run.events if run.ended else complete_log([], run.events)


def build_new_rows(
    runs: Iterable[StoredRun], stored: Sequence[Sequence[Any]], now: int
) -> Iterator[tuple[Sequence[Any], set[str]]]:
    """Yield a row for each new run of an import, with the names of its messages.

    `stored` has rows `id, key, began`; a new row is `id, key, run_id, agent, began, ended, log`.
    """
    number = max((number for number, _, _ in stored), default=0)
    keys = {(key, began) for _, key, began in stored}
    for run, began, log in select_new_runs(runs, keys):
        number = max(number + 1, began)
        row = (number, run.log_id, run.run_id, run.agent, began, now, encode(log))
        yield row, collect_names(log)
