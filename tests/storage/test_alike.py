"""All storages do the same: whatever is asked of them, in whatever order."""

import random
from pathlib import Path

import pytest

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.storage import LocalStorage, MemoryStorage, Storage
from copilot_runtime.storage.memory import OverlayStorage
from tests.in_one_test import in_one_test
from tests.storage.conftest import OpenBucket

pytestmark = pytest.mark.anyio

KEYS = (
    "a.json",
    "a/b.json",
    "a/log.jsonl",
    "log.jsonl",
    "ä ö/%2E#.txt",
    "a/b/c.bin",
    "../x",
    ".~/x",
)


class Client:
    """Asks a storage at random; two with the same seed ask the same."""

    def __init__(self, storage: Storage, seed: int) -> None:
        self._storage = storage
        self._random = random.Random(seed)

    async def step(self) -> object:
        """Do something, and return what came out, without etags: those are each storage's own."""
        key, data = self._random.choice(KEYS), self._random.randbytes(self._random.randrange(20))
        work = self._random.choice(
            (self._put, self._append, self._delete, self._read, self._replace, self._find)
        )
        try:
            return await work(key, data)
        except CopilotError as error:
            return f"{type(error).__name__}: {error.message}"

    async def _put(self, key: str, data: bytes) -> object:
        return bool(await self._storage.put(key, data))

    async def _append(self, key: str, data: bytes) -> object:
        return await self._storage.append(key, data + b"\n")

    async def _delete(self, key: str, data: bytes) -> object:
        return await self._storage.delete_many([key, KEYS[0]])

    async def _read(self, key: str, data: bytes) -> object:
        return (await self._storage.read(key, len(data)))[0]

    async def _replace(self, key: str, data: bytes) -> object:
        etag = await self._storage.etag(key)
        await self._storage.put(key, data + b"!", expected=etag)
        await self._storage.put(key, data, expected=etag)
        return None

    async def _find(self, key: str, data: bytes) -> object:
        prefix = key[: self._random.randrange(4)]
        etags = await self._storage.find_etags(prefix)
        assert etags == await self._storage.find_many_etags(etags)
        return sorted(etags), await self._storage.exists(key)


@in_one_test("seed", range(8))
async def test_a_directory_does_what_memory_does(tmp_path: Path, seed: int) -> None:
    memory, local = MemoryStorage(), LocalStorage(tmp_path)
    clients = Client(memory, seed), Client(local, seed)
    for _ in range(150):
        assert await clients[0].step() == await clients[1].step()
    assert await memory.list() == await local.list()
    assert await memory.get_many(await memory.list()) == await local.get_many(await local.list())


@in_one_test("seed", range(8))
async def test_what_is_written_over_a_directory_does_not_reach_it(
    tmp_path: Path, seed: int
) -> None:
    memory, local = MemoryStorage(), LocalStorage(tmp_path)
    clients = Client(memory, seed), Client(local, seed)
    for _ in range(50):
        assert await clients[0].step() == await clients[1].step()
    before = _read_files(tmp_path)
    overlay = OverlayStorage(local)
    clients = Client(memory, seed + 8), Client(overlay, seed + 8)
    for _ in range(150):
        assert await clients[0].step() == await clients[1].step()
    keys = sorted(await memory.list())
    await overlay.aclose()

    assert keys == sorted(await overlay.list())
    assert await memory.get_many(keys) == await overlay.get_many(keys)
    assert before == _read_files(tmp_path)


def _read_files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_a_bucket_does_what_memory_does(open_bucket: OpenBucket) -> None:
    memory, bucket = MemoryStorage(), open_bucket()
    clients = Client(memory, 1), Client(bucket, 1)
    for _ in range(150):
        assert await clients[0].step() == await clients[1].step()
    keys = sorted(await memory.list())
    assert keys == sorted(await bucket.list())
    assert await memory.get_many(keys) == await bucket.get_many(keys)
