"""The journal: the events of all runs that go on, in the order in which they were stored.

A row holds what one write brought of any number of runs, so that a write touches the last page
and no other. The `id` of a row is a time, in microseconds: never earlier than that of its write,
and later than all rows before it. So all rows of a run come after the moment it began, which is
its number; and what is older than the oldest run that goes on is needed no more.
"""

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence

from copilot_runtime.events import Event
from copilot_runtime.threads.codec import decode_parts, encode_parts

EVER = 2**63 - 1


def append_events(
    db: sqlite3.Connection, *, server: str, now: int, parts: Iterable[tuple[int, Sequence[Event]]]
) -> None:
    """Add a row: events of runs of a server, by the numbers of the runs."""
    db.execute(
        "INSERT INTO journal (id, server, data)"
        " VALUES (max(?, (SELECT coalesce(max(id), 0) + 1 FROM journal)), ?, ?)",
        (now, server, encode_parts(parts)),
    )


def read_events(
    db: sqlite3.Connection, server: str, runs: Collection[int], *, before: int = EVER
) -> Mapping[int, Sequence[Event]]:
    """Return what the journal has of some runs of a server, up to a time."""
    if not runs:
        return {}
    # most rows are about other runs than this one: to read them takes longer than to look
    mark = b"[%d," % next(iter(runs)) if len(runs) == 1 else b"["
    rows = db.execute(
        "SELECT id, data FROM journal"
        " WHERE id > ? AND id < ? AND server = ? AND instr(data, ?) ORDER BY id",
        (min(runs), before, server, mark),
    )
    found: dict[int, list[Event]] = {run: [] for run in runs}
    for row, data in rows:
        for run, events in decode_parts(data, f"table 'journal', row {row}", found):
            found[run] += events
    return found


def trim_journal(db: sqlite3.Connection, server: str, *, before: int = EVER) -> None:
    """Delete what a server wrote before a time."""
    db.execute("DELETE FROM journal WHERE id < ? AND server = ?", (before, server))


def list_servers(db: sqlite3.Connection) -> set[str]:
    """Return all servers that the journal has rows of."""
    return {server for (server,) in db.execute("SELECT DISTINCT server FROM journal")}
