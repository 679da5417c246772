"""API keys in a SQLite file, for all servers of one machine."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import TypeVar

from copilot_runtime.base.errors import ConfigurationFailed, StoreFailed
from copilot_runtime.database.sqlite.file import (
    check_application,
    create_private_file,
    use_write_ahead_log,
)
from copilot_runtime.extensions.access.api_keys.key import (
    COLUMNS,
    ApiKey,
    KeyStore,
    decode_key,
    encode_key,
)

T = TypeVar("T")

APPLICATION = 0
"""The `application_id` of our files, which have none: they are known by their tables."""

SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS api_keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    roles TEXT NOT NULL,
    scopes TEXT,
    created_at REAL NOT NULL,
    expires_at REAL,
    revoked_at REAL,
    used_at REAL,
    salt BLOB NOT NULL,
    hash BLOB NOT NULL
) WITHOUT ROWID
"""
_NONCES = """
CREATE TABLE IF NOT EXISTS nonces (nonce TEXT PRIMARY KEY, expires_at REAL NOT NULL) WITHOUT ROWID
"""
_NONCES_BY_END = "CREATE INDEX IF NOT EXISTS nonces_by_end ON nonces (expires_at)"
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM api_keys"  # noqa: S608 - our own names
_INSERT = f"INSERT INTO api_keys VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608
_PATIENCE = 5.0
"""Seconds to wait for another process that locks the file."""

_PUBLIC = "The keys cannot be read or written at the moment."

_MOST_CACHED = 10_000
"""Maximum cached keys, including unknown ids, of which clients may send any number."""


class SqliteKeys(KeyStore):
    """Keys in one file, which is created with its folder on the first write.

    Keys are cached until `PRAGMA data_version` reports a change of the file. So a key that another
    process revokes is refused at once.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._connection: sqlite3.Connection | None = None
        self._lock = Lock()
        self._version = -1
        self._cache: dict[str, ApiKey | None] = {}

    async def find(self, id: str) -> ApiKey | None:
        return None if self._is_missing() else await self._do(lambda db: self._find(db, id))

    async def list_keys(self) -> Sequence[ApiKey]:
        if self._is_missing():
            return []
        query = f"{_SELECT} ORDER BY created_at, id"
        return await self._do(lambda db: [decode_key(row) for row in db.execute(query)])

    async def add(self, key: ApiKey) -> None:
        await self._write(lambda db: db.execute(_INSERT, encode_key(key)))

    async def revoke(self, id: str, now: float) -> ApiKey | None:
        update = "UPDATE api_keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL"
        await self._write(lambda db: db.execute(update, (now, id)))
        return await self.find(id)

    async def touch(self, id: str, now: float) -> None:
        update = "UPDATE api_keys SET used_at = ? WHERE id = ?"
        await self._write(lambda db: db.execute(update, (now, id)))

    async def add_nonce(self, nonce: str, expires_at: float, now: float) -> bool:

        def add(db: sqlite3.Connection) -> bool:
            # a request waits for it, and a loss of power outlives hardly any nonce
            db.execute("PRAGMA synchronous = NORMAL")
            try:
                with db:
                    db.execute("DELETE FROM nonces WHERE expires_at < ?", (now,))
                    row = (nonce, expires_at)
                    done = db.execute("INSERT OR IGNORE INTO nonces VALUES (?, ?)", row)
                return done.rowcount > 0
            finally:
                db.execute("PRAGMA synchronous = FULL")

        return await self._do(add)

    async def aclose(self) -> None:
        """Close the file; a later call opens it again."""
        await asyncio.to_thread(self._close)

    def _is_missing(self) -> bool:
        """Return `True` if the file does not exist, as reads do not create it."""
        if self._connection is not None:
            return False
        try:
            self.path.stat()
        except FileNotFoundError:
            return True
        except OSError:
            pass  # opening it reports the error
        return False

    def _find(self, db: sqlite3.Connection, id: str) -> ApiKey | None:
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version or len(self._cache) >= _MOST_CACHED:
            self._cache.clear()
            self._version = version
        if id not in self._cache:
            row = db.execute(f"{_SELECT} WHERE id = ?", (id,)).fetchone()
            self._cache[id] = None if row is None else decode_key(row)
        return self._cache[id]

    async def _write(self, work: Callable[[sqlite3.Connection], object]) -> None:
        def write(db: sqlite3.Connection) -> None:
            with db:
                work(db)
            self._cache.clear()  # SQLite reports only writes of other connections

        await self._do(write)

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.to_thread(self._run, work)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = open_key_file(self.path)
                return work(self._connection)
            except ConfigurationFailed as error:
                raise StoreFailed(_PUBLIC, hint=error.message) from error
            except (sqlite3.Error, OSError) as error:
                hint = f"The file {str(self.path)!r}: {error}."
                raise StoreFailed(_PUBLIC, hint=hint) from error

    def _close(self) -> None:
        with self._lock:
            if self._connection is not None:
                with closing(self._connection):
                    self._connection = None
                self._cache.clear()
                self._version = -1


def open_key_file(path: Path) -> sqlite3.Connection:
    """Open a file for writing; create it if missing.

    Raises `ConfigurationFailed` for another kind of file, and `sqlite3.Error` or `OSError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    create_private_file(path)
    db = sqlite3.connect(path, timeout=_PATIENCE, check_same_thread=False)
    try:
        check_application(db, path, APPLICATION, table="api_keys", public=_PUBLIC)
        found = db.execute("PRAGMA user_version").fetchone()[0]
        if found > SCHEMA_VERSION:
            raise sqlite3.DatabaseError(
                f"it was written by a later copilot-runtime (version {found})"
            )
        use_write_ahead_log(db)
        with db:
            for statement in (_SCHEMA, _NONCES, _NONCES_BY_END):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    except BaseException:
        db.close()
        raise
    return db
