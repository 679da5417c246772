"""What is done to the runs of threads in SQLite, each function within a transaction."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import orjson

from copilot_runtime.events import Event, RunStarted
from copilot_runtime.interfaces import DEFAULT_AGENT, RunInput
from copilot_runtime.messages import Message
from copilot_runtime.threads.clock import from_datetime, to_datetime
from copilot_runtime.threads.codec import decode, encode
from copilot_runtime.threads.compact import compact
from copilot_runtime.threads.endings import ended, with_head
from copilot_runtime.threads.known import by_name, names_in
from copilot_runtime.threads.limits import busy
from copilot_runtime.threads.store import Segment, StoredRun, ThreadKey


class Begun(NamedTuple):
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
) -> Begun:
    """Add a run, and its thread if need be. Raises `ThreadBusy`."""
    row = db.execute(
        "SELECT id, running, server FROM threads WHERE owner = ? AND thread = ?", key
    ).fetchone()
    if row is None:
        number = _inserted(
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
            _end_dead_run(db, number, running, now=now)
        db.execute(
            "UPDATE threads SET updated = ?, last_run = ?, running = ?, server = ? WHERE id = ?",
            (now, now, now, server, number),
        )
    named = by_name(run.messages)
    if row is not None:
        for name in _known_among(db, number, named):
            del named[name]
    _remember(db, number, named)
    new = list(named.values())
    head = RunStarted(run_id=run.run_id, thread_id=run.thread_id, messages=new)
    db.execute(
        "INSERT INTO runs (thread, id, key, run_id, agent, began, log)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (number, now, run.key, run.run_id, run.agent or DEFAULT_AGENT, now, encode([head])),
    )
    return Begun(key, number, now, new, list(named))


def undo_begin(db: sqlite3.Connection, begun: Begun) -> None:
    """Forget a run that nobody waited for, and its thread if it has no other."""
    at = (begun.thread, begun.run)
    if not db.execute("DELETE FROM runs WHERE thread = ? AND id = ?", at).rowcount:
        return
    db.execute("UPDATE threads SET running = NULL, server = NULL WHERE id = ? AND running = ?", at)
    db.executemany(
        "DELETE FROM known WHERE thread = ? AND name = ?",
        [(begun.thread, name) for name in begun.names],
    )
    db.execute(
        "DELETE FROM threads WHERE id = ? AND name IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM runs WHERE thread = threads.id)",
        (begun.thread,),
    )


def write_segments(
    db: sqlite3.Connection, *, segments: Sequence[tuple[int, Begun, Segment]]
) -> None:
    """Add to logs, each segment by its time; what belongs to a deleted run goes nowhere.

    Another server may have deleted it. Then rows without a run remain, until this server comes
    to the end of the run, or another is opened.
    """
    rows = [
        (begun.thread, begun.run, now, encode(segment.events))
        for now, begun, segment in segments
        if segment.whole is None
    ]
    if rows:
        db.executemany("INSERT INTO events (thread, run, number, data) VALUES (?, ?, ?, ?)", rows)
    for now, begun, segment in segments:
        if segment.whole is not None:
            _end(db, begun.thread, begun.run, segment.whole, compact(segment.whole), now=now)


def end_dead_runs(db: sqlite3.Connection, *, now: int, is_alive: IsAlive) -> int:
    """End all runs of servers that died. Return how many."""
    going_on = db.execute(
        "SELECT id, running, server FROM threads WHERE running IS NOT NULL"
    ).fetchall()
    dead = {server for server in {row[2] for row in going_on} if not is_alive(server)}
    ended_now = [(thread, run) for thread, run, server in going_on if server in dead]
    for thread, run in ended_now:
        _end_dead_run(db, thread, run, now=now)
    db.execute(
        "DELETE FROM events WHERE NOT EXISTS"
        " (SELECT 1 FROM threads WHERE id = events.thread AND running = events.run)"
    )
    return len(ended_now)


def read_runs(db: sqlite3.Connection, thread: int) -> Sequence[StoredRun]:
    """Return the runs of a thread, the oldest first."""
    rows = db.execute(
        "SELECT id, key, run_id, agent, began, ended, log FROM runs"
        " WHERE thread = ? ORDER BY began, id",
        (thread,),
    ).fetchall()
    return [
        StoredRun(
            key=key,
            run_id=run_id,
            agent=agent,
            began_at=to_datetime(began),
            ended=end is not None,
            events=_log(db, thread, run, log) if end is None else decode(log, _where(thread, run)),
        )
        for run, key, run_id, agent, began, end, log in rows
    ]


def put_runs(db: sqlite3.Connection, thread: int, *, runs: Iterable[StoredRun], now: int) -> int:
    """Add runs of another store that are not here yet. Return how many those were."""
    rows = db.execute("SELECT id, key, began FROM runs WHERE thread = ?", (thread,)).fetchall()
    here = {(key, began) for _, key, began in rows}
    number = max((number for number, _, _ in rows), default=0)
    new = [run for run in runs if (run.key, from_datetime(run.began_at)) not in here]
    for run in new:
        began = from_datetime(run.began_at)
        number = max(number + 1, began)
        log = run.events if run.ended else ended([], run.events)
        db.execute(
            "INSERT INTO runs (thread, id, key, run_id, agent, began, ended, log)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (thread, number, run.key, run.run_id, run.agent, began, now, encode(log)),
        )
        _remember(db, thread, names_in(log))
    return len(new)


def thread_number(db: sqlite3.Connection, key: ThreadKey) -> int | None:
    row = db.execute("SELECT id FROM threads WHERE owner = ? AND thread = ?", key).fetchone()
    return row and row[0]


def _end(
    db: sqlite3.Connection,
    thread: int,
    run: int,
    whole: Sequence[Event],
    short: Sequence[Event],
    *,
    now: int,
) -> None:
    """Keep the shortened log of a run that has ended, and the names of what it made."""
    db.execute("DELETE FROM events WHERE thread = ? AND run = ?", (thread, run))
    ending = db.execute(
        "UPDATE runs SET ended = ?, log = ? WHERE thread = ? AND id = ?",
        (now, encode(short), thread, run),
    )
    if ending.rowcount:  # else it was deleted meanwhile
        db.execute(
            "UPDATE threads SET running = NULL, server = NULL WHERE id = ? AND running = ?",
            (thread, run),
        )
        _remember(db, thread, names_in(whole))


def _end_dead_run(db: sqlite3.Connection, thread: int, run: int, *, now: int) -> None:
    row = db.execute("SELECT log FROM runs WHERE thread = ? AND id = ?", (thread, run)).fetchone()
    if row is None:  # a damaged file: at least the thread is free again
        db.execute("UPDATE threads SET running = NULL, server = NULL WHERE id = ?", (thread,))
        return
    log = ended([], _log(db, thread, run, row[0]))
    _end(db, thread, run, log, log, now=now)


def _log(db: sqlite3.Connection, thread: int, run: int, head: bytes) -> Sequence[Event]:
    """Return what was written so far of a run that goes on."""
    rows = db.execute(
        "SELECT number, data FROM events WHERE thread = ? AND run = ? ORDER BY number",
        (thread, run),
    )
    events = [event for row, data in rows for event in decode(data, _where(thread, run, row))]
    return with_head(decode(head, _where(thread, run)), events)


def _where(thread: int, run: int, row: int | None = None) -> str:
    """Name a row as one finds it with `sqlite3`."""
    if row is None:
        return f"table 'runs', thread {thread}, id {run}"
    return f"table 'events', thread {thread}, run {run}, number {row}"


def _known_among(db: sqlite3.Connection, thread: int, names: Iterable[str]) -> Sequence[str]:
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


def _inserted(db: sqlite3.Connection, statement: str, values: Sequence[object]) -> int:
    number = db.execute(statement, values).lastrowid
    assert number is not None  # an INSERT of one row has one
    return number
