"""In-memory storage, and an in-memory overlay of another storage."""

from collections.abc import Iterable
from itertools import count
from pathlib import Path

from copilot_runtime.storage.storage import (
    ObjectChanged,
    ObjectNotFound,
    Storage,
    check_key,
    check_log_key,
    check_prefix,
    is_lines_key,
)


class MemoryStorage(Storage):
    """Stores objects in a dictionary."""

    def __init__(self) -> None:
        self._objects: dict[str, bytearray] = {}
        self._etags: dict[str, str] = {}
        self._writes = count(1)

    async def put(self, key: str, data: bytes, *, expected: str | None = None) -> str:
        if expected is not None and await self.etag(key) != expected:
            raise ObjectChanged(key)
        return self._write(key, bytearray(data))

    async def read(self, key: str, start: int = 0) -> tuple[bytes, str]:
        try:
            return bytes(self._objects[check_key(key)][start:]), self._etags[key]
        except KeyError:
            raise ObjectNotFound(key) from None

    async def delete(self, key: str) -> bool:
        self._etags.pop(check_key(key), None)
        return self._objects.pop(key, None) is not None

    async def etag(self, key: str) -> str:
        return self._etags.get(check_key(key), "")

    async def append(self, key: str, data: bytes) -> None:
        content = self._objects.get(check_log_key(key), bytearray())
        if data and content and not content.endswith(b"\n") and is_lines_key(key):
            content += b"\n"
        content += data
        self._write(key, content)

    async def find_etags(self, prefix: str = "") -> dict[str, str]:
        check_prefix(prefix)
        return {key: etag for key, etag in self._etags.items() if key.startswith(prefix)}

    def _write(self, key: str, data: bytearray) -> str:
        self._etags.pop(check_key(key), None)  # the last one written is the last one listed
        self._objects[key] = data
        self._etags[key] = etag = str(next(self._writes))
        return etag


class OverlayStorage(Storage):
    """Reads another storage, and keeps writes and deletions in memory.

    Objects that were not written here are read from the other storage.
    """

    def __init__(self, base: Storage) -> None:
        self._base = base
        self._memory = MemoryStorage()
        self._own: set[str] = set()
        """Keys written or deleted here, which hide those of the base storage."""

    async def put(self, key: str, data: bytes, *, expected: str | None = None) -> str:
        if expected is not None:
            etag = await self._base.etag(check_key(key))
            if key in self._own:  # last: no other task runs from here on
                etag = await self._own_etag(key)
            if etag != expected:
                raise ObjectChanged(key)
        await self._memory.put(key, data)
        self._own.add(key)
        return await self._own_etag(key)

    async def read(self, key: str, start: int = 0) -> tuple[bytes, str]:
        if key not in self._own:
            return await self._base.read(key, start)
        data, _ = await self._memory.read(key, start)
        return data, await self._own_etag(key)

    async def read_many(self, keys: Iterable[str]) -> dict[str, tuple[bytes, str]]:
        keys = [*keys]
        found = await self._base.read_many([key for key in keys if key not in self._own])
        own = await super().read_many([key for key in keys if key in self._own])
        found |= own
        return {key: found[key] for key in keys if key in found}

    async def delete(self, key: str) -> bool:
        there = key not in self._own and await self._base.exists(key)
        if key in self._own:
            return await self._memory.delete(key)
        self._own.add(check_key(key))
        return there

    async def etag(self, key: str) -> str:
        return await self._own_etag(key) if key in self._own else await self._base.etag(key)

    async def find_many_etags(self, keys: Iterable[str]) -> dict[str, str]:
        keys = [*keys]
        found = await self._base.find_many_etags([key for key in keys if key not in self._own])
        own = await super().find_many_etags([key for key in keys if key in self._own])
        found |= own
        return {key: found[key] for key in keys}

    async def append(self, key: str, data: bytes) -> None:
        if check_log_key(key) not in self._own:
            try:
                below = await self._base.get(key)
            except ObjectNotFound:
                below = b""
            if key not in self._own:
                await self.put(key, below)
        await self._memory.append(key, data)

    async def find_etags(self, prefix: str = "") -> dict[str, str]:
        below = await self._base.find_etags(prefix)
        found = {key: etag for key, etag in below.items() if key not in self._own}
        own = await self._memory.find_by_prefix(prefix)
        return found | {key: await self._own_etag(key) for key in own}

    def path(self, key: str) -> Path | None:
        return None if key in self._own else self._base.path(key)

    async def aclose(self) -> None:
        """Close the base storage."""
        await self._base.aclose()

    async def _own_etag(self, key: str) -> str:
        """Return the etag of an object in memory, distinct from all etags of the base storage."""
        etag = await self._memory.etag(key)
        return etag and f"memory-{etag}"
