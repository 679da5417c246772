"""Export threads as JSON Lines from any store, and import them into any other.

A line with `"type": "thread"` has the metadata of a thread. The lines with `"type": "run"` that
follow are its runs, each with its events. Times are ISO 8601, to the microsecond.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from copilot_runtime.base import jsontext
from copilot_runtime.base.errors import Misuse
from copilot_runtime.threads.codec import encode, parse_events
from copilot_runtime.threads.store import StoredRun, Thread, ThreadKey, ThreadStore
from copilot_runtime.threads.validation import check_text


class ImportProgress(NamedTuple):
    """The progress of an import: the numbers of threads read and of new runs."""

    threads: int
    runs: int


async def export_threads(store: ThreadStore) -> AsyncGenerator[bytes, None]:
    """Yield all threads as lines without line ends: each thread's metadata, then its runs."""
    cursor: str | None = None
    while True:
        page = await store.everyones(cursor)
        for thread in page.threads:
            yield _thread_line(thread)
            for run in await store.runs(thread.key):
                yield _run_line(thread.key, run)
        cursor = page.next_cursor
        if cursor is None:
            return


async def import_threads(
    store: ThreadStore, lines: Iterable[bytes]
) -> AsyncGenerator[ImportProgress, None]:
    """Import the output of `export_threads`; yield the progress after each thread.

    Threads and runs that already exist are skipped, so an import can be repeated. Raises `Misuse`
    with the number of an invalid line; the threads before that line's thread are imported.
    """
    runs = 0
    for threads, (thread, its_runs) in enumerate(parse_export(lines), 1):
        runs += await store.put(thread, its_runs)
        yield ImportProgress(threads, runs)


def parse_export(lines: Iterable[bytes]) -> Iterator[tuple[Thread, list[StoredRun]]]:
    """Yield threads with their runs. Raises `Misuse` with the number of an invalid line."""
    current: tuple[Thread, list[StoredRun]] | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = _Row(jsontext.loads(line))
            match row.text("type"):
                case "thread":
                    next_one: tuple[Thread, list[StoredRun]] = (_thread(row), [])
                    if current:
                        yield current
                    current = next_one
                case "run":
                    key = _key(row, "thread")
                    if current is None or current[0].key != key:
                        raise ValueError("its thread is not above it")
                    current[1].append(_run(row))
                case other:
                    raise ValueError(f"{other!r} is neither a thread nor a run")
        except (ValueError, Misuse) as error:
            raise Misuse(
                f"Line {number} cannot be read: {error}",
                hint="Correct the line and import again: runs that already exist are skipped.",
            ) from error
    if current:
        yield current


def _thread_line(thread: Thread) -> bytes:
    row = {
        "type": "thread",
        "owner": thread.key.owner,
        "id": thread.key.id,
        "agent": thread.agent,
        "name": thread.name,
        "archived": thread.archived,
        "created_at": thread.created_at,
        "updated_at": thread.updated_at,
        "last_run_at": thread.last_run_at,
    }
    return orjson.dumps(row)


def _run_line(key: ThreadKey, run: StoredRun) -> bytes:
    row = {
        "type": "run",
        "owner": key.owner,
        "thread": key.id,
        "key": run.log_id,
        "run_id": run.run_id,
        "agent": run.agent,
        "began_at": run.began_at,
        "ended": run.ended,
    }
    return orjson.dumps(row)[:-1] + b',"events":' + encode(run.events) + b"}"


class _Row:
    """A decoded line. Raises `ValueError` for fields that are missing or have the wrong type."""

    def __init__(self, decoded: Any) -> None:
        if not isinstance(decoded, Mapping):
            raise ValueError("it is not an object")
        self._fields: Mapping[str, Any] = decoded

    def text(self, name: str) -> str:
        text = self._get(name, str)
        check_text(name, text)
        return text

    def text_or_none(self, name: str) -> str | None:
        return None if self._fields.get(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        return self._get(name, bool)

    def time(self, name: str) -> datetime:
        moment = datetime.fromisoformat(self._get(name, str))
        if moment.tzinfo is None:
            raise ValueError(f"{name!r} has no time zone")
        return moment

    def time_or_none(self, name: str) -> datetime | None:
        return None if self._fields.get(name) is None else self.time(name)

    def value(self, name: str) -> Any:
        return self._fields.get(name)

    def _get(self, name: str, kind: type) -> Any:
        value = self._fields.get(name)
        if not isinstance(value, kind):
            raise ValueError(f"{name!r} is missing or of the wrong kind")
        return value


def _key(row: _Row, id_name: str) -> ThreadKey:
    key = ThreadKey(row.text("owner"), row.text(id_name))
    if not key.id:
        raise ValueError("a thread needs an id")
    return key


def _thread(row: _Row) -> Thread:
    return Thread(
        key=_key(row, "id"),
        agent=row.text("agent"),
        name=row.text_or_none("name"),
        archived=row.flag("archived"),
        created_at=row.time("created_at"),
        updated_at=row.time("updated_at"),
        last_run_at=row.time_or_none("last_run_at"),
    )


def _run(row: _Row) -> StoredRun:
    return StoredRun(
        log_id=row.text("key"),
        run_id=row.text("run_id"),
        agent=row.text("agent"),
        began_at=row.time("began_at"),
        ended=row.flag("ended"),
        events=parse_events(row.value("events")),
    )
