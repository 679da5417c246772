"""What lists of threads show, changed in SQLite within a transaction."""

import sqlite3
from collections.abc import Sequence

from copilot_runtime.threads.rows import COLUMNS, build_thread, from_datetime
from copilot_runtime.threads.store import Thread, ThreadKey


def get_thread(db: sqlite3.Connection, key: ThreadKey) -> Thread | None:
    row = db.execute(
        f"SELECT {COLUMNS} FROM threads WHERE owner = ? AND thread = ?",  # noqa: S608  # ours
        key,
    ).fetchone()
    return row and build_thread(row)


def update_thread(
    db: sqlite3.Connection, key: ThreadKey, *, name: str | None, archived: bool | None, now: int
) -> Thread | None:
    """Change what is not None; an empty name takes the name away."""
    db.execute(
        "UPDATE threads SET updated = ?, archived = coalesce(?, archived),"
        " name = nullif(coalesce(?, name), '') WHERE owner = ? AND thread = ?",
        (now, archived, name, *key),
    )
    return get_thread(db, key)


def delete_thread(db: sqlite3.Connection, key: ThreadKey) -> bool:
    """Delete a thread; its runs go by their foreign keys."""
    return db.execute("DELETE FROM threads WHERE owner = ? AND thread = ?", key).rowcount > 0


def old_threads(db: sqlite3.Connection, before: int) -> Sequence[int]:
    rows = db.execute("SELECT id FROM threads WHERE updated < ?", (before,))
    return [number for (number,) in rows]


def delete_old(db: sqlite3.Connection, numbers: Sequence[int], before: int) -> int:
    """Delete those of some threads that are still old and have no run. Return how many."""
    return sum(
        db.execute(
            "DELETE FROM threads WHERE id = ? AND updated < ? AND running IS NULL",
            (number, before),
        ).rowcount
        for number in numbers
    )


def put_head(db: sqlite3.Connection, thread: Thread) -> None:
    """Add a thread of another store, or take over its head if that is later than ours."""
    last_run = None if thread.last_run_at is None else from_datetime(thread.last_run_at)
    created, updated = from_datetime(thread.created_at), from_datetime(thread.updated_at)
    db.execute(
        "INSERT OR IGNORE INTO threads (owner, thread, agent, created, updated)"
        " VALUES (?, ?, ?, ?, 0)",
        (*thread.key, thread.agent, created),
    )
    db.execute(
        "UPDATE threads SET name = ?, archived = ?, updated = ?"
        " WHERE owner = ? AND thread = ? AND updated < ?",
        (thread.name, thread.archived, updated, *thread.key, updated),
    )
    if last_run is not None:
        db.execute(
            "UPDATE threads SET last_run = max(coalesce(last_run, 0), ?)"
            " WHERE owner = ? AND thread = ?",
            (last_run, *thread.key),
        )
