"""API keys, of which only hashes are kept, between SQLite and PostgreSQL."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from copilot_runtime.operation.backup.record import DamagedRecord, PackedRecord, Record, Row
from copilot_runtime.operation.backup.source import BackupSource, Replacement, Snapshot
from copilot_runtime.operation.database import (
    Place,
    explain_errors,
    open_snapshot,
    open_transaction,
)
from copilot_runtime.security.api_keys.postgres import prepare
from copilot_runtime.security.api_keys.sqlite import open_key_file
from copilot_runtime.security.api_keys.store import COLUMNS
from copilot_runtime.threads.transactions import Transaction

_TABLE = "copilot_api_keys"


class KeySource(BackupSource):
    """The API keys of a database."""

    name = "keys"

    def __init__(self, place: Place) -> None:
        self._place = place
        self.address = place.describe()

    def is_there(self) -> bool:
        return self._place.is_there()

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Snapshot, None]:
        await self._prepare()
        async with open_snapshot(self._place) as db:
            yield _KeySnapshot(db)

    @asynccontextmanager
    async def replace(self) -> AsyncGenerator[Replacement, None]:
        await self._prepare()
        async with open_transaction(self._place) as db:
            yield _KeyReplacement(db)

    async def _prepare(self) -> None:
        """Make the table, if there is none."""
        async with open_transaction(self._place, prepare) if not self._place.path else _nothing():
            if self._place.path is not None:
                async with explain_errors(self._place):
                    open_key_file(self._place.path).close()


@asynccontextmanager
async def _nothing() -> AsyncGenerator[None, None]:
    yield


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
        marks = ", ".join("?" * len(COLUMNS))
        await self._db.execute(f"INSERT INTO {_TABLE} VALUES ({marks})", *values)  # noqa: S608  # ours
