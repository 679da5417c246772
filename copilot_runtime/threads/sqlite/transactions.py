"""What is done to the runs of threads in SQLite, each function within a transaction."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import orjson

from copilot_runtime.events import Event, RunStarted
from copilot_runtime.interfaces import DEFAULT_AGENT, RunInput
from copilot_runtime.messages import Message
from copilot_runtime.threads.codec import decode, encode
from copilot_runtime.threads.compact import compact
from copilot_runtime.threads.message_ids import collect_names, index_by_name
from copilot_runtime.threads.recovery import complete_log, prepend_head
from copilot_runtime.threads.rows import build_new_rows, build_run
from copilot_runtime.threads.sqlite.heads import put_head
from copilot_runtime.threads.sqlite.journal import (
    append_events,
    list_servers,
    read_events,
    trim_journal,
)
from copilot_runtime.threads.store import Segment, StoredRun, Thread, ThreadKey
from copilot_runtime.threads.validation import busy


class OpenRun(NamedTuple):
    """A run that goes on: where it is in the file, and what of its request was new."""

    key: ThreadKey
    thread: int
    run: int
    new: Sequence[Message]
    names: Sequence[str]


IsAlive = Callable[[str], bool]
"""Says whether a server runs."""


def begin_run(
    db: sqlite3.Connection,
    *,
    key: ThreadKey,
    run: RunInput,
    now: int,
    server: str,
    is_alive: IsAlive,
) -> OpenRun:
    """Add a run, and its thread if need be. Raises `ThreadBusy`."""
    row = db.execute(
        "SELECT id, running, server FROM threads WHERE owner = ? AND thread = ?", key
    ).fetchone()
    if row is None:
        number = _insert(
            db,
            "INSERT INTO threads"
            " (owner, thread, agent, created, updated, last_run, running, server)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*key, run.agent or DEFAULT_AGENT, now, now, now, now, server),
        )
    else:
        number, running, other = row
        if running is not None:
            if is_alive(other):
                raise busy(key)
            _end_dead_run(db, number, running, read_events(db, other, [running])[running], now=now)
        db.execute(
            "UPDATE threads SET updated = ?, last_run = ?, running = ?, server = ? WHERE id = ?",
            (now, now, now, server, number),
        )
    named = index_by_name(run.messages)
    if row is not None:
        for name in _find_known_names(db, number, named):
            del named[name]
    _remember(db, number, named)
    new = list(named.values())
    head = RunStarted(run_id=run.run_id, thread_id=run.thread_id, messages=new)
    db.execute(
        "INSERT INTO runs (thread, id, key, run_id, agent, began, log)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (number, now, run.log_id, run.run_id, run.agent or DEFAULT_AGENT, now, encode([head])),
    )
    return OpenRun(key, number, now, new, list(named))


def undo_begin(db: sqlite3.Connection, open_run: OpenRun) -> None:
    """Forget a run that nobody waited for, and its thread if it has no other."""
    at = (open_run.thread, open_run.run)
    if not db.execute("DELETE FROM runs WHERE thread = ? AND id = ?", at).rowcount:
        return
    db.execute("UPDATE threads SET running = NULL, server = NULL WHERE id = ? AND running = ?", at)
    db.executemany(
        "DELETE FROM known WHERE thread = ? AND name = ?",
        [(open_run.thread, name) for name in open_run.names],
    )
    db.execute(
        "DELETE FROM threads WHERE id = ? AND name IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM runs WHERE thread = threads.id)",
        (open_run.thread,),
    )


def append_segments(
    db: sqlite3.Connection, *, server: str, now: int, segments: Sequence[tuple[OpenRun, Segment]]
) -> None:
    """Add to the logs of runs that go on, in one statement."""
    parts = [(open_run.run, segment.events) for open_run, segment in segments]
    append_events(db, server=server, now=now, parts=parts)


def write_segments(
    db: sqlite3.Connection, *, server: str, now: int, segments: Sequence[tuple[OpenRun, Segment]]
) -> None:
    """Add to logs, and end runs; what belongs to a deleted run goes nowhere."""
    going_on = [(open_run, segment) for open_run, segment in segments if segment.whole is None]
    if going_on:
        append_segments(db, server=server, now=now, segments=going_on)
    for open_run, segment in segments:
        if segment.whole is not None:
            _end_run(
                db, open_run.thread, open_run.run, segment.whole, compact(segment.whole), now=now
            )


def shorten_journal(
    db: sqlite3.Connection, *, server: str, runs: Sequence[OpenRun], before: int
) -> None:
    """Move events before a time from the journal to the logs of their runs: some take hours."""
    moved = read_events(db, server, [open_run.run for open_run in runs], before=before)
    for open_run in runs:
        at = (open_run.thread, open_run.run)
        row = db.execute("SELECT log FROM runs WHERE thread = ? AND id = ?", at).fetchone()
        if row is not None and moved[open_run.run]:  # else it was deleted, or has no events
            log = prepend_head(decode(row[0], _where(*at)), moved[open_run.run])
            db.execute("UPDATE runs SET log = ? WHERE thread = ? AND id = ?", (encode(log), *at))
    trim_journal(db, server, before=before)


def end_dead_runs(db: sqlite3.Connection, *, now: int, is_alive: IsAlive) -> int:
    """End all runs of servers that died. Return how many."""
    going_on = db.execute(
        "SELECT id, running, server FROM threads WHERE running IS NOT NULL"
    ).fetchall()
    count = 0
    for dead in {row[2] for row in going_on} | list_servers(db):
        if is_alive(dead):
            continue
        runs = {run: thread for thread, run, server in going_on if server == dead}
        logs = read_events(db, dead, runs)
        for run, thread in runs.items():
            _end_dead_run(db, thread, run, logs[run], now=now)
        trim_journal(db, dead)
        count += len(runs)
    return count


def read_runs(db: sqlite3.Connection, key: ThreadKey) -> Sequence[StoredRun]:
    """Return the runs of a thread, the oldest first."""
    (thread, server) = _find_thread(db, key) or (-1, "")
    rows = db.execute(
        "SELECT id, key, run_id, agent, began, ended, log FROM runs"
        " WHERE thread = ? ORDER BY began, id",
        (thread,),
    ).fetchall()
    return [
        build_run(
            row,
            prepend_head(
                decode(log, _where(thread, run)),
                read_events(db, server, [run])[run] if row[-1] is None else (),
            ),
        )
        for run, *row, log in rows
    ]


def put_thread(
    db: sqlite3.Connection, thread: Thread, *, runs: Iterable[StoredRun], now: int
) -> int:
    """Add a thread of another store, and its runs that are not here yet. Return how many."""
    put_head(db, thread)
    number, _ = _find_thread(db, thread.key) or (-1, "")
    rows = db.execute("SELECT id, key, began FROM runs WHERE thread = ?", (number,)).fetchall()
    new = [*build_new_rows(runs, rows, now)]
    for row, names in new:
        db.execute(
            "INSERT INTO runs (thread, id, key, run_id, agent, began, ended, log)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (number, *row),
        )
        _remember(db, number, names)
    return len(new)


def _find_thread(db: sqlite3.Connection, key: ThreadKey) -> tuple[int, str] | None:
    """Return the number of a thread and the server of its run."""
    row = db.execute("SELECT id, server FROM threads WHERE owner = ? AND thread = ?", key)
    return row.fetchone()


def _end_run(
    db: sqlite3.Connection,
    thread: int,
    run: int,
    whole: Sequence[Event],
    short: Sequence[Event],
    *,
    now: int,
) -> None:
    """Keep the shortened log of a run that has ended, and the names of what it made."""
    ending = db.execute(
        "UPDATE runs SET ended = ?, log = ? WHERE thread = ? AND id = ?",
        (now, encode(short), thread, run),
    )
    if ending.rowcount:  # else it was deleted meanwhile
        db.execute(
            "UPDATE threads SET running = NULL, server = NULL WHERE id = ? AND running = ?",
            (thread, run),
        )
        _remember(db, thread, collect_names(whole))


def _end_dead_run(
    db: sqlite3.Connection, thread: int, run: int, events: Sequence[Event], *, now: int
) -> None:
    row = db.execute("SELECT log FROM runs WHERE thread = ? AND id = ?", (thread, run)).fetchone()
    if row is None:  # a damaged file: at least the thread is free again
        db.execute("UPDATE threads SET running = NULL, server = NULL WHERE id = ?", (thread,))
        return
    log = complete_log(decode(row[0], _where(thread, run)), events)
    _end_run(db, thread, run, log, log, now=now)


def _where(thread: int, run: int) -> str:
    """Name a row as one finds it with `sqlite3`."""
    return f"table 'runs', thread {thread}, id {run}"


def _find_known_names(db: sqlite3.Connection, thread: int, names: Iterable[str]) -> Sequence[str]:
    rows = db.execute(
        "SELECT name FROM known WHERE thread = ? AND name IN (SELECT value FROM json_each(?))",
        (thread, orjson.dumps(list(names)).decode()),
    )
    return [name for (name,) in rows]


def _remember(db: sqlite3.Connection, thread: int, names: Iterable[str]) -> None:
    db.executemany(
        "INSERT OR IGNORE INTO known (thread, name) VALUES (?, ?)",
        [(thread, name) for name in names],
    )


def _insert(db: sqlite3.Connection, statement: str, values: Sequence[object]) -> int:
    number = db.execute(statement, values).lastrowid
    assert number is not None  # an INSERT of one row has one
    return number
