"""Storage that ends with the process."""

from itertools import count

from copilot_runtime.extensions.storage.storage import (
    ObjectChanged,
    ObjectNotFound,
    Storage,
    check_key,
    check_log_key,
    check_prefix,
    is_lines_key,
)


class MemoryStorage(Storage):
    """Keeps objects in a dictionary."""

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
