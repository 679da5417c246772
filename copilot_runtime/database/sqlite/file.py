"""The SQLite file of threads: creation, migration, and errors."""

import errno
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from secrets import token_hex
from typing import Literal

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, StoreFailed

Durability = Literal["NORMAL", "FULL"]

APPLICATION = 0x436F7054
"""The `application_id` of our files: `CopT`."""

_PATIENCE = 5.0
"""Seconds to wait for another process that has locked the file."""

_RESERVE = 16 * 1024 * 1024
"""Bytes of disk space reserved for deletions, as many as the log (`-wal`) usually has."""

_MIGRATIONS = (
    """
    CREATE TABLE threads (
        id INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        thread TEXT NOT NULL,
        agent TEXT NOT NULL,
        name TEXT,
        archived INTEGER NOT NULL DEFAULT 0,
        created INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        last_run INTEGER,
        running INTEGER,
        server TEXT,
        UNIQUE (owner, thread)
    );
    CREATE INDEX threads_latest ON threads (owner, updated, id, archived, agent);
    CREATE TABLE runs (
        thread INTEGER NOT NULL REFERENCES threads ON DELETE CASCADE,
        id INTEGER NOT NULL,
        key TEXT NOT NULL,
        run_id TEXT NOT NULL,
        agent TEXT NOT NULL,
        began INTEGER NOT NULL,
        ended INTEGER,
        log BLOB NOT NULL,
        PRIMARY KEY (thread, id)
    ) WITHOUT ROWID;
    CREATE TABLE journal (
        id INTEGER PRIMARY KEY,
        server TEXT NOT NULL,
        data BLOB NOT NULL
    );
    CREATE TABLE known (
        thread INTEGER NOT NULL REFERENCES threads ON DELETE CASCADE,
        name TEXT NOT NULL,
        PRIMARY KEY (thread, name)
    ) WITHOUT ROWID;
    """,
    "CREATE TABLE secret (value TEXT NOT NULL)",
    """
    CREATE TABLE checkpoints (
        digest BLOB PRIMARY KEY,
        thread INTEGER REFERENCES threads ON DELETE CASCADE,
        saved INTEGER NOT NULL,
        data BLOB NOT NULL
    );
    CREATE INDEX checkpoints_thread ON checkpoints (thread, saved);
    """,
    """
    CREATE TABLE deleted_runs (digest BLOB PRIMARY KEY, deleted INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX deleted_runs_deleted ON deleted_runs (deleted);
    """,
    "CREATE TABLE outbox (id TEXT PRIMARY KEY, due REAL NOT NULL, data BLOB NOT NULL)",
    """
    ALTER TABLE outbox ADD COLUMN owner TEXT NOT NULL DEFAULT '';
    CREATE INDEX outbox_owner ON outbox (owner, due);
    """,
)
"""Each migrates a file to the next version. Times are microseconds since 1970.

Each transaction writes every page it touched, so there are few tables and indexes. An active run
(`threads.running`) has its first events in its `log` and later ones in the `journal` of its
server; an ended one has its whole log in `log`.
"""

_JOURNAL = (
    "CREATE TABLE journal (id INTEGER PRIMARY KEY, server TEXT NOT NULL, data BLOB NOT NULL)",
    "INSERT OR IGNORE INTO journal SELECT number, server, CAST('[[' || run || ','"
    " || substr(CAST(data AS TEXT), 2, length(CAST(data AS TEXT)) - 2) || ']]' AS BLOB)"
    " FROM events JOIN threads ON threads.id = events.thread AND running = run",
    "DROP TABLE events",
)
"""Migrate files of the first release to the tables of version 1: events had their own table."""

SCHEMA_VERSION = len(_MIGRATIONS)
"""The version that this program reads and writes."""

_SECRET_SINCE = 2
"""The version that introduced the secret for deriving the thread ids of remote agents."""


def open_database(path: Path, durability: Durability) -> sqlite3.Connection:
    """Open a file for writing; create or migrate it if necessary.

    Raises `ConfigurationFailed` for another kind of file, and `sqlite3.Error` or `OSError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # conversations are private; SQLite creates its other files with the same mode
    create_private_file(path)
    connection = _connect(path)
    try:
        check_application(connection, path, APPLICATION, public=_PUBLIC)
        use_write_ahead_log(connection)
        connection.execute(f"PRAGMA synchronous = {durability}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA wal_autocheckpoint = 4000")  # 16 MB
        _migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Let readers of a file go on while one process writes.

    SQLite ignores its own timeout here if two processes open a new file at once.
    """
    give_up = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.02)


def check_application(
    connection: sqlite3.Connection, path: Path, application: int, *, table: str = "", public: str
) -> None:
    """Raise `ConfigurationFailed` for another program's file, before changing it.

    A file without an `application_id` is ours if it is empty, or has the table `table`.
    """
    connection.execute("BEGIN")  # a snapshot: another server may be creating its tables
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    (found,) = connection.execute("PRAGMA application_id").fetchone()
    connection.execute("ROLLBACK")
    is_ours = found == application if found else not tables or table in tables
    if not is_ours:
        raise ConfigurationFailed(
            f"{str(path)!r} is a database of another program.",
            hint="Name another file.",
            public=public,
        )


def open_for_reading(path: Path, *, is_full: bool = False) -> sqlite3.Connection:
    """Open a file that `open_database` has created or migrated.

    With `is_full`, nothing is written beside it, not even the index of its log (`-shm`), for which
    a full disk has no room. If the log has entries, no other process can use the file meanwhile;
    else this connection does not see what others write.
    """
    log = Path(f"{path}-wal")
    has_log = log.exists() and log.stat().st_size > 0
    connection = _connect(path, ("vfs=unix-excl" if has_log else "immutable=1") if is_full else "")
    connection.execute("PRAGMA query_only = ON")
    return connection


def make_reserve(path: Path) -> None:
    """Reserve disk space beside a file, for deletions after the disk has become full.

    The log (`-wal`) has room to grow as much as the reserve, which can then take all pages that the
    log adds to the file. Systems without `fallocate` reserve nothing.
    """
    reserve = Path(f"{path}-reserve")
    with suppress(OSError, AttributeError):
        if not reserve.exists():
            size = min(_RESERVE, shutil.disk_usage(path.parent).free // 2)
            create_private_file(reserve)
            with reserve.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(size, 1))


def release_reserve(path: Path) -> None:
    """Free the reserved disk space, and that of the log."""
    with suppress(OSError):
        Path(f"{path}-reserve").unlink(missing_ok=True)
    with suppress(sqlite3.Error), closing(_connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def check_readable(connection: sqlite3.Connection) -> None:
    """Raise `sqlite3.Error` for a file that `open_database` could not create or migrate."""
    if _version(connection) != SCHEMA_VERSION:
        raise sqlite3.DatabaseError("the file has another version")


def build_failure(path: Path, error: Exception, *, content: str = "threads") -> CopilotError:
    """Return the `CopilotError` for an error of SQLite or of the file system.

    `content` is the noun for the stored data in messages.
    """
    where = f"The {content} in {str(path)!r}"
    public = f"The {content} cannot be used."
    is_folder = os.path.isdir(path)  # noqa: PTH112  # `Path.is_dir` raises without permission
    text = "Is a directory" if is_folder else str(error)  # SQLite says "unable to open"
    if "not a database" in text:
        return ConfigurationFailed(
            f"{str(path)!r} is not a database of {content}.",
            hint="Name another file, or one that does not exist yet.",
            public=public,
        )
    for part, cause, way_out in _CAUSES:
        if part in text:
            public = f"The {content} cannot be used: {cause}."
            return StoreFailed(f"{where} cannot be used: {cause}.", hint=way_out, public=public)
    return StoreFailed(
        f"{where} cannot be used: {text}.",
        hint="The log of the system may say why.",
        public=public,
    )


def is_write_refusal(error: Exception) -> bool:
    """Return whether an error may affect all writes, but no reads."""
    return any(part in str(error) for part in _WRITE_REFUSALS)


def build_later_error(path: Path, *, public: str) -> ConfigurationFailed:
    """Return the error for a file whose schema version is newer than this program's."""
    return ConfigurationFailed(
        f"{str(path)!r} was written by a later version of copilot-runtime.",
        hint="Install that version, or name another file.",
        public=public,
    )


_PUBLIC = "The threads cannot be used."
"""The message for clients, in place of one that contains a path."""


_CAUSES = (
    (
        "is full",
        "the disk is full",
        "Make room; `copilot-runtime operate threads expire` helps later.",
    ),
    ("No space", "the disk is full", "Make room."),
    ("readonly", "they are read-only", "Let the server's user write the file and its folder."),
    ("Read-only", "the disk is read-only", "Mount it for writing, or choose another place."),
    ("denied", "permission was denied", "Let the server's user write the file and its folder."),
    ("unable to open", "the file cannot be opened", "Let the server's user write its folder."),
    ("Is a directory", "that is a folder", "Name a file in it."),
    ("locked", "another program holds the file", "End that program, or its transaction."),
    ("malformed", "the file is damaged", "Try `sqlite3 FILE .recover`, or take a backup."),
    (
        "disk I/O",
        "the disk is full, or fails",
        "Make room: SQLite makes files beside its own. Else look into the system's log.",
    ),
)

_WRITE_REFUSALS = ("is full", "No space", "readonly", "Read-only", "disk I/O")


def _connect(path: Path, parameters: str = "") -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{parameters}" if parameters else path,
        timeout=_PATIENCE,
        isolation_level=None,
        check_same_thread=False,
        uri=bool(parameters),
    )


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    newest = SCHEMA_VERSION
    if _version(connection) == newest:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)  # another process may have been first
        if version > newest:
            raise build_later_error(path, public=_PUBLIC)
        for statement in _list_statements(connection, version):
            connection.execute(statement)
        if version < _SECRET_SINCE:  # agents know existing threads by ids without it
            connection.execute(
                "INSERT INTO secret SELECT ? WHERE NOT EXISTS (SELECT 1 FROM threads)",
                (token_hex(32),),
            )
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {newest}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _list_statements(connection: sqlite3.Connection, version: int) -> Iterator[str]:
    """Yield the statements that migrate a file from a version to the newest one."""
    names = "SELECT 1 FROM sqlite_master WHERE name = 'journal'"
    if version and not connection.execute(names).fetchall():
        yield from _JOURNAL
    for migration in _MIGRATIONS[version:]:
        yield from migration.split(";")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return version


_CREATING = threading.Lock()


def create_private_file(path: Path) -> None:
    """Create an empty file that only its owner may read and write, unless the file exists.

    An existing file is not opened: a process that closes a file loses all its POSIX locks on that
    file, including those of its SQLite connections. Another process would then consider itself the
    last one, and delete the log (`-wal`) into which this process still writes. Raises `OSError` if
    the file cannot be created, or if the path is a folder.
    """
    target = os.path.realpath(path)  # the path may be a link to a file that does not exist yet
    with _CREATING:  # no other thread may open the file before it is closed here
        try:
            os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            if Path(target).is_dir():
                code = errno.EISDIR
                raise IsADirectoryError(code, os.strerror(code), str(path)) from None
