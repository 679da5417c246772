"""Storage that ends with the process."""

from copilot_runtime.storage.storage import ObjectNotFound, Storage, check_key, cut_keys


class MemoryStorage(Storage):
    """Keeps objects in a dictionary."""

    def __init__(self) -> None:
        self._objects: dict[str, bytearray] = {}

    async def put(self, key: str, data: bytes) -> None:
        self._objects.pop(check_key(key), None)
        self._objects[key] = bytearray(data)

    async def get(self, key: str) -> bytes:
        try:
            return bytes(self._objects[check_key(key)])
        except KeyError:
            raise ObjectNotFound(key) from None

    async def delete(self, key: str) -> bool:
        return self._objects.pop(check_key(key), None) is not None

    async def exists(self, key: str) -> bool:
        return check_key(key) in self._objects

    async def append(self, key: str, data: bytes) -> None:
        written = self._objects.pop(check_key(key), bytearray())
        written += data
        self._objects[key] = written

    async def find_by_prefix(self, prefix: str = "", delimiter: str = "") -> list[str]:
        return cut_keys(self._objects, prefix, delimiter)
