"""A transaction of SQLite, and the journal: the events of all active runs in order of arrival.

A row of the journal holds one write, which may be for several runs, so a write only touches the
last page. The `id` of a row is a time in microseconds: not earlier than that of its write, and
later than all rows before it. A run's number is its start time, so its rows have greater ids, and
rows older than the oldest active run are no longer needed.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from copilot_runtime.api.events import Event
from copilot_runtime.database.server_locks import is_alive, list_other_locks
from copilot_runtime.threads.codec import decode_parts, encode_parts
from copilot_runtime.threads.store import ThreadKey
from copilot_runtime.threads.transactions import (
    EndedRun,
    Part,
    Place,
    Transaction,
    end_run,
    move_events,
)

_EVER = 2**63 - 1


class SqliteTransaction(Transaction):
    """A transaction of the file at `path`, begun and committed by the owner of the connection."""

    table_prefix = ""
    by_key = "owner = ? AND threads.thread = ?"

    def __init__(self, connection: sqlite3.Connection, path: Path, server: str) -> None:
        self.server: str = server
        self._connection = connection
        self._path = path

    async def fetch(self, statement: str, *values: Any) -> Sequence[Sequence[Any]]:
        return self._connection.execute(_translate(statement), values).fetchall()

    async def execute(self, statement: str, *values: Any) -> int:
        return self._connection.execute(_translate(statement), values).rowcount

    async def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        self._connection.executemany(_translate(statement), rows)

    def key_values(self, key: ThreadKey) -> Sequence[Any]:
        return key

    async def lock_thread(
        self, key: ThreadKey, agent: str, now: int, *, run: int | None = None
    ) -> tuple[int, int | None, Any, bool]:
        row = self._connection.execute(
            "SELECT id, running, server FROM threads WHERE owner = ? AND thread = ?", key
        ).fetchone()
        if row is not None:
            return *row, False
        server = None if run is None else self.server
        added = self._connection.execute(
            "INSERT INTO threads"
            " (owner, thread, agent, created, updated, last_run, running, server)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*key, agent, now, now, run, run, server),
        )
        assert added.lastrowid is not None
        return added.lastrowid, run, server, True

    async def set_key(self, thread: int, key: ThreadKey) -> None:
        self._connection.execute(
            "UPDATE threads SET owner = ?, thread = ? WHERE id = ?", (*key, thread)
        )

    async def add_names(self, thread: int, names: Iterable[str]) -> None:
        self._connection.executemany(
            "INSERT OR IGNORE INTO known (thread, name) VALUES (?, ?)",
            [(thread, name) for name in names],
        )

    async def add_new_names(self, thread: int, names: Iterable[str]) -> set[str]:
        rows = self._connection.execute(
            "SELECT name FROM known WHERE thread = ? AND name IN (SELECT value FROM json_each(?))",
            (thread, orjson.dumps([*names]).decode()),
        )
        new = {*names}.difference(name for (name,) in rows)
        await self.add_names(thread, new)
        return new

    async def write(self, now: int, parts: Sequence[Part], ended: Sequence[EndedRun]) -> None:
        if parts:  # one row of the journal
            self._connection.execute(
                "INSERT INTO journal (id, server, data)"
                " VALUES (max(?, (SELECT coalesce(max(id), 0) + 1 FROM journal)), ?, ?)",
                (now, self.server, encode_parts((run, events) for (_, run), events in parts)),
            )
        for run in ended:
            await end_run(self, self.server, run, now=now)

    async def write_probe(self, now: int, size: int) -> None:
        """Add a row of `size` bytes without events to the journal; it is trimmed like others."""
        self._connection.execute(
            "INSERT INTO journal (id, server, data)"
            " VALUES (max(?, (SELECT coalesce(max(id), 0) + 1 FROM journal)), ?, zeroblob(?))",
            (now, self.server, size),
        )

    async def read_events(
        self, server: str, places: Sequence[Place], *, before: int = _EVER
    ) -> Mapping[Place, Sequence[Event]]:
        """Return the journaled events of some runs of a server, up to a time."""
        if not places:
            return {}
        by_run: dict[int, list[Event]] = {run: [] for _, run in places}
        # decoding rows of other runs takes longer than searching their bytes
        mark = b"[%d," % places[0][1] if len(places) == 1 else b"["
        rows = self._connection.execute(
            "SELECT id, data FROM journal"
            " WHERE id > ? AND id < ? AND server = ? AND instr(data, ?) ORDER BY id",
            (min(by_run), before, server, mark),
        )
        for row, data in rows:
            for run, events in decode_parts(data, f"table 'journal', row {row}", by_run):
                by_run[run] += events
        return {place: by_run[place[1]] for place in places}

    async def delete_events(self, place: Place) -> None:
        """Do nothing: a row of the journal has events of other runs as well."""

    async def is_alive(self, server: str) -> bool:
        return is_alive(self._path, server)

    def parse_server(self, address: str) -> str:
        return address

    async def list_other_servers(self) -> Sequence[str]:
        return list_other_locks(self._path, self.server)

    async def list_servers(self) -> set[Any]:
        """Return the servers that are alive or have left data, including rows of the journal."""
        rows = self._connection.execute("SELECT DISTINCT server FROM journal")
        return await super().list_servers() | {server for (server,) in rows}

    async def delete_server(self, server: str, *, before: int = _EVER) -> None:
        """Delete a server's rows of the journal from before a time."""
        self._connection.execute(
            "DELETE FROM journal WHERE id < ? AND server = ?", (before, server)
        )

    async def trim_journal(self, before: int = _EVER, long_runs: Sequence[Place] = ()) -> None:
        """Delete this server's rows from before a time; move those of `long_runs` to their logs."""
        events = await self.read_events(self.server, long_runs, before=before)
        for place in long_runs:
            await move_events(self, place, events[place])
        await self.delete_server(self.server, before=before)


@cache
def _translate(statement: str) -> str:
    """Return a statement in the dialect of SQLite, whose transactions lock the whole file."""
    words = statement.replace("copilot_", "").replace(" AS bytea)", " AS blob)")
    return words.partition(" FOR UPDATE")[0]
