"""API keys in PostgreSQL, for servers on any number of machines."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from copilot_runtime.errors import ConfigurationFailed, MissingPackage, StoreFailed
from copilot_runtime.security.api_keys.key import ApiKey
from copilot_runtime.security.api_keys.store import COLUMNS, KeyStore, decode_key, encode_key

_TABLE = "copilot_api_keys"
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS {_TABLE} (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    roles TEXT NOT NULL,
    scopes TEXT,
    created_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION,
    revoked_at DOUBLE PRECISION,
    used_at DOUBLE PRECISION,
    salt BYTEA NOT NULL,
    hash BYTEA NOT NULL
)
"""
_VERSIONS = "copilot_api_key_schema"
SCHEMA_VERSION = 1
"""The version that this program reads and writes."""

_SELECT = f"SELECT {', '.join(COLUMNS)} FROM {_TABLE}"  # noqa: S608 - our own names
_MARKS = ", ".join(f"${number}" for number in range(1, len(COLUMNS) + 1))
_INSERT = f"INSERT INTO {_TABLE} VALUES ({_MARKS})"  # noqa: S608
_LOCK = 0x436F704B
"""Of an advisory lock: two servers that start make the table one after the other."""

_FRESH = 2.0
"""Seconds for which a key is good without another look."""
_MOST_CACHED = 10_000
_TIMEOUT = 10.0


class PostgresKeys(KeyStore):
    """Keys in a table, which is made when it is first needed."""

    def __init__(self, address: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._clock = clock
        self._pool: Any = None
        self._opening = asyncio.Lock()
        self._cache: dict[str, tuple[float, ApiKey | None]] = {}

    async def find(self, id: str) -> ApiKey | None:
        """Return a key by its id."""
        now = self._clock()
        if (found := self._cache.get(id)) is not None and found[0] > now:
            return found[1]
        async with self._connect() as db:
            row = await db.fetchrow(f"{_SELECT} WHERE id = $1", id)
        key = None if row is None else decode_key([*row.values()])
        if len(self._cache) >= _MOST_CACHED:
            self._cache.clear()
        self._cache[id] = now + _FRESH, key
        return key

    async def list_keys(self) -> Sequence[ApiKey]:
        """Return all keys, the oldest first."""
        async with self._connect() as db:
            rows = await db.fetch(f"{_SELECT} ORDER BY created_at, id")
        return [decode_key([*row.values()]) for row in rows]

    async def add(self, key: ApiKey) -> None:
        """Keep a new key."""
        async with self._connect() as db:
            await db.execute(_INSERT, *encode_key(key))
        self._cache.pop(key.id, None)

    async def revoke(self, id: str, now: float) -> ApiKey | None:
        """Revoke a key, and return it."""
        update = f"UPDATE {_TABLE} SET revoked_at = $1 WHERE id = $2 AND revoked_at IS NULL"  # noqa: S608
        async with self._connect() as db:
            await db.execute(update, now, id)
        self._cache.pop(id, None)
        return await self.find(id)

    async def touch(self, id: str, now: float) -> None:
        """Note that a key was used."""
        async with self._connect() as db:
            await db.execute(f"UPDATE {_TABLE} SET used_at = $1 WHERE id = $2", now, id)  # noqa: S608

    async def aclose(self) -> None:
        """Close the connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    @asynccontextmanager
    async def _connect(self) -> AsyncGenerator[Any, None]:
        try:
            import asyncpg  # pyright: ignore[reportMissingTypeStubs]
        except ModuleNotFoundError as error:
            raise MissingPackage("Keys in PostgreSQL", "asyncpg", "postgres") from error
        try:
            async with asyncio.timeout(_TIMEOUT):
                pool = await self._open(asyncpg)
                connection = await pool.acquire()
            try:
                yield connection
            finally:
                await pool.release(connection)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise StoreFailed(
                "The keys cannot be read or written at the moment.",
                hint=f"PostgreSQL: {error or type(error).__name__}.",
            ) from error

    async def _open(self, asyncpg: Any) -> Any:
        async with self._opening:
            if self._pool is None:
                pool = await asyncpg.create_pool(self._address, min_size=0, max_size=4)
                async with pool.acquire() as connection:
                    await prepare(connection)
                self._pool = pool
            return self._pool


async def prepare(connection: Any) -> None:
    """Make the table if it is not there; one server at a time. Raises `ConfigurationFailed`."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(f"CREATE TABLE IF NOT EXISTS {_VERSIONS} (version integer)")
        version = await connection.fetchval(f"SELECT max(version) FROM {_VERSIONS}") or 0  # noqa: S608
        if version > SCHEMA_VERSION:
            raise ConfigurationFailed(
                "The API keys were written by a later version of copilot-runtime.",
                hint="Install that version, or name another database.",
            )
        await connection.execute(_SCHEMA)  # it may be there from before versions were noted
        if version < SCHEMA_VERSION:
            await connection.execute(f"INSERT INTO {_VERSIONS} VALUES ($1)", SCHEMA_VERSION)  # noqa: S608
