"""API keys in PostgreSQL, for servers on any number of machines."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, TypeVar

from copilot_runtime.base.errors import StoreFailed
from copilot_runtime.database.postgres.pool import Pool
from copilot_runtime.database.postgres.tables import migrate
from copilot_runtime.extensions.access.api_keys.key import (
    COLUMNS,
    ApiKey,
    KeyStore,
    decode_key,
    encode_key,
)

T = TypeVar("T")

_TABLE = "copilot_api_keys"
_MIGRATIONS = (
    f"""
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
);
CREATE TABLE IF NOT EXISTS copilot_nonces (
    nonce TEXT PRIMARY KEY, expires_at DOUBLE PRECISION NOT NULL
);
CREATE INDEX IF NOT EXISTS copilot_nonces_by_end ON copilot_nonces (expires_at)
""",
)
_ADD_NONCE = """
WITH old AS (
    DELETE FROM copilot_nonces WHERE nonce IN (
        SELECT nonce FROM copilot_nonces WHERE expires_at < $3 LIMIT 100 FOR UPDATE SKIP LOCKED
    )
)
INSERT INTO copilot_nonces VALUES ($1, $2) ON CONFLICT DO NOTHING
"""
SCHEMA_VERSION = len(_MIGRATIONS)
"""The schema version that this program reads and writes."""

_SELECT = f"SELECT {', '.join(COLUMNS)} FROM {_TABLE}"  # noqa: S608 - our own names
_MARKS = ", ".join(f"${number}" for number in range(1, len(COLUMNS) + 1))
_INSERT = f"INSERT INTO {_TABLE} VALUES ({_MARKS}) ON CONFLICT DO NOTHING"  # noqa: S608
"""Ids are random: an existing one was added by an attempt whose response was lost."""
_LOCK = 0x436F704B
"""Key of the advisory lock under which servers create the table one at a time."""

_FRESH = 2.0
"""Seconds for which a key is cached."""
_MOST_CACHED = 10_000
_TIMEOUT = 10.0
"""Maximum seconds that a request waits for a database that restarts or hangs."""

_CONNECTIONS = 4


class PostgresKeys(KeyStore):
    """Keys in a table, which is created when it is first needed.

    While the database restarts, calls wait for it for up to ten seconds.
    """

    def __init__(self, address: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._clock = clock
        self._pool: Pool | None = None
        self._is_open = False
        self._opening = asyncio.Lock()
        self._cache: dict[str, tuple[float, ApiKey | None]] = {}

    async def find(self, id: str) -> ApiKey | None:
        now = self._clock()
        if (found := self._cache.get(id)) is not None and found[0] > now:
            return found[1]
        query = f"{_SELECT} WHERE id = $1"
        row = await self._do(lambda db: db.fetchrow(query, id))
        key = None if row is None else decode_key([*row.values()])
        if len(self._cache) >= _MOST_CACHED:
            self._cache.clear()
        self._cache[id] = now + _FRESH, key
        return key

    async def list_keys(self) -> Sequence[ApiKey]:
        query = f"{_SELECT} ORDER BY created_at, id"
        rows: Sequence[Any] = await self._do(lambda db: db.fetch(query))
        return [decode_key([*row.values()]) for row in rows]

    async def add(self, key: ApiKey) -> None:
        await self._do(lambda db: db.execute(_INSERT, *encode_key(key)))
        self._cache.pop(key.id, None)

    async def revoke(self, id: str, now: float) -> ApiKey | None:
        update = f"UPDATE {_TABLE} SET revoked_at = $1 WHERE id = $2 AND revoked_at IS NULL"  # noqa: S608
        await self._do(lambda db: db.execute(update, now, id))
        self._cache.pop(id, None)
        return await self.find(id)

    async def touch(self, id: str, now: float) -> None:
        update = f"UPDATE {_TABLE} SET used_at = $1 WHERE id = $2"  # noqa: S608
        await self._do(lambda db: db.execute(update, now, id))

    async def add_nonce(self, nonce: str, expires_at: float, now: float) -> bool:
        """Store a nonce. Raises `StoreFailed` also if a lost response leaves its state unknown."""
        attempts = count()

        async def add(db: Any) -> bool:
            may_be_done = next(attempts) > 0
            is_new = await db.execute(_ADD_NONCE, nonce, expires_at, now) == "INSERT 0 1"
            if may_be_done and not is_new:
                raise StoreFailed("PostgreSQL went away while the nonce was written.")
            return is_new

        return await self._do(add)

    async def aclose(self) -> None:
        pool, self._pool, self._is_open = self._pool, None, False
        if pool is not None:
            pool.close()

    async def _do(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Execute work, and again after a lost connection, so it must be idempotent."""
        if self._pool is None:
            self._pool = Pool(self._address, _CONNECTIONS, content="API keys", timeout=_TIMEOUT)
        pool = self._pool
        try:
            async with asyncio.timeout(_TIMEOUT):
                if not self._is_open:
                    await self._open(pool)
                return await pool.execute(work)
        except TimeoutError as error:
            reason = pool.outage.reason or "it does not answer"
            raise _build_failure(f"{pool.address} cannot be used: {reason.rstrip('.')}.") from error
        except StoreFailed as error:
            raise _build_failure(error.message) from error

    async def _open(self, pool: Pool) -> None:
        async with self._opening:
            if not self._is_open:
                await pool.retry(partial(pool.open, prepare))
                self._is_open = True


def _build_failure(reason: str) -> StoreFailed:
    return StoreFailed("The keys cannot be read or written at the moment.", hint=reason)


async def prepare(connection: Any) -> None:
    """Create the table if it is missing, one server at a time. Raises `ConfigurationFailed`."""
    async with connection.transaction():
        await migrate(
            connection,
            _MIGRATIONS,
            versions="copilot_api_key_schema",
            lock=_LOCK,
            content="API keys",
        )
