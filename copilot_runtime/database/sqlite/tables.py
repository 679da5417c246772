"""SQLite files whose tables have a single version: files with other tables stay unchanged."""

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.database.sqlite.file import (
    build_later_error,
    create_private_file,
    use_write_ahead_log,
)

_BUSY_TIMEOUT = 5.0
"""Seconds to wait for another process that locks the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables of a file, which is known by its `application_id` and version.

    `schema` has their statements, separated by `;`. `content` is the noun for the file in messages,
    and `public` the message for clients, who must not see its path.
    """

    application: int
    version: int
    schema: str
    content: str
    public: str


def open_tables(path: Path, tables: Tables) -> sqlite3.Connection:
    """Open a file for writing; create it, with its folder, if it does not exist.

    Raises `ConfigurationFailed` if it has other tables, `sqlite3.Error` or `OSError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    create_private_file(path)  # not readable by other users of the machine
    connection = sqlite3.connect(
        path, timeout=_BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("BEGIN")  # a snapshot: another process may be creating its tables
        is_new = _check(connection, path, tables)
        connection.execute("ROLLBACK")
        use_write_ahead_log(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        if is_new:
            connection.execute("BEGIN IMMEDIATE")
            if _check(connection, path, tables):
                for statement in tables.schema.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {tables.application}")
                connection.execute(f"PRAGMA user_version = {tables.version}")
            connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, path: Path, tables: Tables) -> bool:
    """Return `True` if a file is empty. Raises `ConfigurationFailed` if it has other tables."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (count,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application == tables.application and version > tables.version:
        raise build_later_error(path, public=tables.public)
    if not application and not count:
        return True
    if (application, version) != (tables.application, tables.version):
        raise ConfigurationFailed(
            f"{str(path)!r} is no {tables.content} of this version.",
            hint="Name another file.",
            public=tables.public,
        )
    return False
