"""API keys, of which only hashes are kept, between SQLite and PostgreSQL."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from copilot_runtime.extensions.access.api_keys.key import COLUMNS, decode_key
from copilot_runtime.extensions.access.api_keys.postgres import prepare
from copilot_runtime.extensions.access.api_keys.sqlite import open_key_file
from copilot_runtime.extensions.operations.backup.record import (
    DamagedRecord,
    PackedRecord,
    Record,
    Row,
)
from copilot_runtime.extensions.operations.backup.source import (
    DatabaseSource,
    Replacement,
    Snapshot,
)
from copilot_runtime.extensions.operations.database import Place, open_snapshot, open_transaction
from copilot_runtime.threads.transactions import Transaction

_TABLE = "copilot_api_keys"


class KeySource(DatabaseSource):
    """The API keys of a database."""

    name = "keys"

    def __init__(self, place: Place) -> None:
        super().__init__(place, open_key_file, prepare)

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Snapshot, None]:
        await self._make_tables()
        async with open_snapshot(self._place) as db:
            yield _KeySnapshot(db)

    @asynccontextmanager
    async def replace(self) -> AsyncGenerator[Replacement, None]:
        await self._make_tables()
        async with open_transaction(self._place) as db:
            yield _KeyReplacement(db)


class _KeySnapshot(Snapshot):
    def __init__(self, db: Transaction) -> None:
        self._db = db

    async def count(self) -> int:
        rows = await self._db.fetch(f"SELECT count(*) FROM {_TABLE}")  # noqa: S608  # ours
        return int(rows[0][0])

    async def read(self) -> AsyncGenerator[Record, None]:
        rows = await self._db.fetch(f"SELECT {', '.join(COLUMNS)} FROM {_TABLE} ORDER BY id")  # noqa: S608  # ours
        for values in rows:
            yield Row("key", dict(zip(COLUMNS, values, strict=True)))


def _check(values: Sequence[Any]) -> None:
    """Raise `DamagedRecord` for a row of which no server could make a key."""
    try:
        key = decode_key(values)
    except (ValueError, TypeError) as error:
        raise DamagedRecord("a key cannot be read") from error
    names = (*key.roles, *(key.scopes or ()))
    if not all(isinstance(name, str) for name in names):  # pyright: ignore[reportUnnecessaryIsInstance]  # of JSON
        raise DamagedRecord("a role or a scope of a key is no text")


class _KeyReplacement(Replacement):
    def __init__(self, db: Transaction) -> None:
        self._db = db

    async def is_empty(self) -> bool:
        return not await self._db.fetch(f"SELECT 1 FROM {_TABLE} LIMIT 1")  # noqa: S608  # ours

    async def clear(self) -> None:
        await self._db.execute(f"DELETE FROM {_TABLE}")  # noqa: S608  # ours

    async def add(self, record: PackedRecord) -> None:
        if not isinstance(record, Row) or record.table != "key":
            raise DamagedRecord("a record of keys is none")
        row = record
        values = (
            *(row.text("id"), row.text("name"), row.text("user_id"), row.text("tenant")),
            *(row.text("roles"), row.optional_text("scopes"), row.time("created_at")),
            *(row.optional_time("expires_at"), row.optional_time("revoked_at")),
            *(row.optional_time("used_at"), row.data("salt"), row.data("hash")),
        )
        _check(values)
        marks = ", ".join("?" * len(COLUMNS))
        added = await self._db.execute(
            f"INSERT INTO {_TABLE} VALUES ({marks}) ON CONFLICT DO NOTHING",  # noqa: S608  # ours
            *values,
        )
        if not added:
            raise DamagedRecord("a key is there twice")
