"""An event log in an SQLite file, for any number of processes on one machine."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import TypeVar

from copilot_runtime.api.bus import START, Cursor
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, StoreFailed
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.database.sqlite.file import open_for_reading
from copilot_runtime.database.sqlite.tables import Tables, open_tables
from copilot_runtime.database.sqlite.workers import Readers, Writer
from copilot_runtime.extensions.knowledge.events.event import (
    EventFilter,
    ResourceEvent,
    decode_event,
    encode_event,
)
from copilot_runtime.extensions.knowledge.events.log import (
    EVERYTHING,
    MOST_BYTES,
    POLL_SECONDS,
    EventLog,
    EventPage,
    Notifier,
    Span,
    make_cursor,
    parse_cursor,
)

T = TypeVar("T")

APPLICATION = 0x436F7045
"""The `application_id` of our files: `CopE`."""

SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE log (id TEXT NOT NULL, floor INTEGER NOT NULL DEFAULT 0);
INSERT INTO log (id) VALUES (lower(hex(randomblob(4))));
CREATE TABLE events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    type TEXT NOT NULL,
    data BLOB NOT NULL
)
"""
_MOST_EXAMINED = 5_000
"""Maximum number of rows that one page examines."""

_PUBLIC = "The events cannot be used."

_TABLES = Tables(
    application=APPLICATION,
    version=SCHEMA_VERSION,
    schema=_SCHEMA,
    content="log of events",
    public=_PUBLIC,
)


class SqliteEventLog(EventLog):
    """The newest events in an SQLite file, which is created on first use, with its folder.

    Args:
        path: The file.
        max_events: Maximum number of stored events.
        max_bytes: Maximum size of the file's used pages: the oldest events are deleted first.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        max_events: int = 100_000,
        max_bytes: int = MOST_BYTES,
    ) -> None:
        self.path = Path(path)
        self.max_events = max_events
        self.max_bytes = max_bytes
        self._id = ""
        self._writer: Writer | None = None
        self._readers: Readers | None = None
        self._opening = asyncio.Lock()
        self._notifier = Notifier()

    async def append(self, *events: ResourceEvent) -> Sequence[ResourceEvent]:
        writer, _ = await self._open()
        rows = [
            (event.id, event.source, event.detail_type, dumps(encode_event(event)))
            for event in events
        ]

        def insert(connection: sqlite3.Connection) -> list[int | None]:
            numbers = [_insert(connection, row) for row in rows]
            _delete_old(connection, self.max_events, self.max_bytes)
            return numbers

        numbers = await self._call(writer.do(insert))
        self._notifier.notify()
        return [
            replace(event, cursor=make_cursor(self._id, number))
            for event, number in zip(events, numbers, strict=True)
            if number is not None
        ]

    async def read(
        self, after: Cursor = START, filter: EventFilter = EVERYTHING, limit: int = 100
    ) -> EventPage:
        _, readers = await self._open()
        query, values = _build_query(filter)

        def select(connection: sqlite3.Connection) -> EventPage:
            span = _read_span(connection)
            number = parse_cursor(after, self._id, span)
            found: list[ResourceEvent] = []
            rows = connection.execute(query, (number, *values))
            for examined, (number, data) in enumerate(rows, 1):
                event = filter.match(decode_event(data, make_cursor(self._id, number)))
                if event is not None:
                    found.append(event)
                if len(found) == limit or examined == _MOST_EXAMINED:
                    break
            else:
                number = span.last
            return EventPage(found, make_cursor(self._id, number), number == span.last)

        return await self._call(readers.do(select))

    async def find_end(self) -> Cursor:
        _, readers = await self._open()
        span = await self._call(readers.do(_read_span))
        return make_cursor(self._id, span.last)

    async def wait(self, after: Cursor) -> None:  # noqa: ARG002  # the next read finds it out
        await self._notifier.wait(POLL_SECONDS)

    async def aclose(self) -> None:
        writer, readers = self._writer, self._readers
        self._writer = self._readers = None
        if writer is not None:
            await writer.end()
        if readers is not None:
            await readers.end()

    async def _open(self) -> tuple[Writer, Readers]:
        async with self._opening:
            if self._writer is None or self._readers is None:
                writer = Writer(partial(open_event_file, self.path))
                try:
                    await self._call(writer.ready())
                    self._id = await self._call(writer.do(_read_id))
                except BaseException:
                    await writer.end()
                    raise
                self._writer, self._readers = writer, Readers(partial(open_for_reading, self.path))
            return self._writer, self._readers

    async def _call(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except (sqlite3.Error, OSError) as error:
            raise _build_failure(self.path, error) from error


def _insert(connection: sqlite3.Connection, row: tuple[str, str, str, bytes]) -> int | None:
    """Insert an event; return its number, or None if it is already stored."""
    found = connection.execute(
        "INSERT INTO events (id, source, type, data) VALUES (?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING RETURNING number",
        row,
    ).fetchall()
    return found[0][0] if found else None


def _delete_old(connection: sqlite3.Connection, max_events: int, max_bytes: int) -> None:
    """Delete the oldest events while the log exceeds its limits."""
    floor, last = _read_span(connection)
    _delete(connection, last - max_events)
    floor = max(floor, last - max_events)
    while floor < last and (size := _read_size(connection)) > max_bytes:
        floor += ceil((last - floor) * (size - max_bytes) / size)
        _delete(connection, floor)


def _delete(connection: sqlite3.Connection, floor: int) -> None:
    """Delete the events up to a number, and record the new floor."""
    if connection.execute("DELETE FROM events WHERE number <= ?", (floor,)).rowcount:
        connection.execute("UPDATE log SET floor = max(floor, ?)", (floor,))


def _read_size(connection: sqlite3.Connection) -> int:
    """Return the size of the file's used pages, in bytes. Free pages are reused."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    return (pages - free) * page_size


def _read_span(connection: sqlite3.Connection) -> Span:
    (floor,) = connection.execute("SELECT floor FROM log").fetchone()
    (last,) = connection.execute("SELECT max(number) FROM events").fetchone()
    return Span(floor, floor if last is None else last)


def _read_id(connection: sqlite3.Connection) -> str:
    (id,) = connection.execute("SELECT id FROM log").fetchone()
    return id


def _build_query(filter: EventFilter) -> tuple[str, Sequence[str]]:
    """Return the query for the next rows after a number, filtered by source and type."""
    columns = {"source": filter.sources, "type": filter.detail_types}
    terms = "".join(
        f" AND {column} IN ({', '.join('?' * len(names))})"
        for column, names in columns.items()
        if names
    )
    values = [name for names in columns.values() for name in names]
    query = f"SELECT number, data FROM events WHERE number > ?{terms} "  # noqa: S608  # constants
    return f"{query}ORDER BY number", values


def open_event_file(path: Path) -> sqlite3.Connection:
    """Open a file for writing; see `open_tables`."""
    return open_tables(path, _TABLES)


def _build_failure(path: Path, error: Exception) -> CopilotError:
    if "not a database" in str(error):
        return ConfigurationFailed(
            f"{str(path)!r} is no log of events.", hint="Name another file.", public=_PUBLIC
        )
    return StoreFailed(
        f"The events in {str(path)!r} cannot be used: {error}.",
        hint="See whether the disk has room, and whether the server's user may write the file.",
        public=_PUBLIC,
    )
