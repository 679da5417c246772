"""Backup of the objects of a storage: a folder or a bucket."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from io import BytesIO
from pathlib import Path

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.operations.backup.record import (
    DamagedRecord,
    PackedObject,
    PackedRecord,
    Record,
    StoredObject,
)
from copilot_runtime.extensions.operations.backup.source import (
    BackupSource,
    Replacement,
    Snapshot,
    compute_identity,
)
from copilot_runtime.storage import ObjectNotFound, Storage
from copilot_runtime.storage.storage import check_key
from copilot_runtime.storage.url import open_storage


class ObjectSource(BackupSource):
    """All objects of a storage: resources, memories, files and indexes.

    Each object is consistent in itself; indexes that are ahead of or behind the resources are
    repaired after a restore, as after a crash.
    """

    name = "knowledge"
    presence = "There is knowledge"

    def __init__(self, address: str) -> None:
        self.address = address.partition("?")[0]
        self._storage_address = address

    def identify(self) -> str:
        kind, _, path = self.address.partition(":")
        if kind == "local":
            return compute_identity(kind, Path(path))
        return compute_identity(self._storage_address)

    def is_there(self) -> bool:
        return True

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Snapshot, None]:
        async with aclosing(open_storage(self._storage_address)) as storage:
            yield _ObjectSnapshot(storage)

    @asynccontextmanager
    async def replace(self) -> AsyncGenerator[Replacement, None]:
        async with aclosing(open_storage(self._storage_address)) as storage:
            replacement = _ObjectReplacement(storage)
            try:
                yield replacement
                await replacement.commit()
            except BaseException:
                await replacement.undo()
                raise


class _ObjectSnapshot(Snapshot):
    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._keys: list[str] | None = None

    async def count(self) -> int:
        return len(await self._list())

    async def read(self) -> AsyncGenerator[Record, None]:
        # logs first: what they name is written before they name it
        for key in sorted(await self._list(), key=lambda key: not key.endswith(".jsonl")):
            try:
                yield StoredObject(key, await self._storage.get(key))
            except ObjectNotFound:  # it was removed meanwhile
                continue

    async def _list(self) -> list[str]:
        if self._keys is None:
            self._keys = await self._storage.list()
        return self._keys


class _ObjectReplacement(Replacement):
    """Writes directly, as storages have no transactions; `undo` can restore an empty storage."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._old: set[str] = set()
        self._keys: set[str] = set()

    async def is_empty(self) -> bool:
        return not await self._storage.list()

    async def clear(self) -> None:
        self._old = {*await self._storage.list()}

    async def add(self, record: PackedRecord) -> None:
        if not isinstance(record, PackedObject):
            raise DamagedRecord("a record of objects is none")
        try:
            check_key(record.name)
        except CopilotError as error:
            raise DamagedRecord(error.message) from error
        self._keys.add(record.name)
        data = BytesIO()
        data.writelines(record.pieces)
        await self._storage.put(record.name, data.getvalue())

    async def commit(self) -> None:
        await self._storage.delete_many(sorted(self._old - self._keys))

    async def undo(self) -> None:
        """Delete new objects; replaced ones are not restored."""
        if new := self._keys - self._old:
            await self._storage.delete_many(sorted(new))
