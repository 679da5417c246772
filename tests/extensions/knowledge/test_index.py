"""Plain and buffered indexes of identifiers."""

import asyncio

import pytest

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.knowledge.filter import Filter
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.index import BufferedIndex, IndexBase, Item
from copilot_runtime.storage import MemoryStorage, StorageFailed

pytestmark = pytest.mark.anyio

A, B, C = (
    Identifier("a.B", name, tokens=tokens) for name, tokens in (("a", 10), ("b", 20), ("c", 5))
)


class FullStorage(MemoryStorage):
    """Takes no more than it is told to."""

    full = True

    async def append(self, key: str, data: bytes) -> None:
        if self.full:
            raise StorageFailed("no space")
        await super().append(key, data)


async def lines(storage: MemoryStorage) -> list[bytes]:
    return (await storage.get("index.jsonl")).splitlines() if await storage.list() else []


async def test_what_is_added_is_found_after_a_restart() -> None:
    storage = MemoryStorage()
    index = IndexBase(storage)
    await index.add(Item(A, {"note": [1]}), Item(B))
    await index.add(Item(Identifier("a.B", "a", tokens=1)))

    for found in (index, IndexBase(storage)):
        assert [(str(id), id.tokens) for id in await found.query()] == [("a.B.a", 1), ("a.B.b", 20)]
        assert await found.get(["a.B.b", "a.B.none", A]) == [B, A]
        assert await found.get(None) == []
        assert await found.has(A)
        assert not await found.has("a.B.none")
    assert (await lines(storage))[0] == (
        b'{"id":"a.B.a","identifier":{"type":"a.B","name":"a","parent":"","tokens":10},"note":[1]}'
    )
    assert (await IndexBase(storage).load())["a.B.b"].fields == {}


async def test_ids_are_a_list() -> None:
    with pytest.raises(Misuse, match="ids must be an array or null"):
        await IndexBase(MemoryStorage()).get("a.B.a")
    with pytest.raises(Misuse, match="ids must be an array or null"):
        await IndexBase(MemoryStorage()).get(A)  # pyright: ignore[reportArgumentType]


async def test_first_the_prefix_then_the_limit_then_the_tokens() -> None:
    index = IndexBase(MemoryStorage())
    await index.add(Item(A), Item(B), Item(C), Item(Identifier("a.B", "d", "a.B.b", tokens=1)))

    assert len(await index.query(filter=Filter(prefix="a.B.b", limit=1))) == 1
    assert await index.query(filter=Filter(limit=2, max_tokens=10)) == [A]
    assert await index.query(filter=Filter(max_tokens=12)) == [A]


async def test_the_id_of_a_line_is_that_of_its_identifier() -> None:
    storage = MemoryStorage()
    await storage.put("index.jsonl", b'{"id":"old","identifier":{"type":"a.B","name":"a"}}\n{"torn')
    assert await IndexBase(storage).query() == [A]


async def test_a_line_without_an_item_costs_the_others_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = MemoryStorage()
    await IndexBase(storage).add(Item(A))
    await storage.append("index.jsonl", b'{"id":"a.B.c"}\n')
    assert await IndexBase(storage).query() == [A]
    assert "index.jsonl has a line without an item: identifier must be an object." in caplog.text


async def test_items_are_found_at_once_and_written_when_there_are_enough() -> None:
    storage = MemoryStorage()
    index = BufferedIndex(storage, max_items=2)
    await index.add(Item(A))
    assert (await index.query(), await lines(storage)) == ([A], [])
    await index.add(Item(B))
    assert len(await lines(storage)) == 2
    await index.add(Item(C))
    assert await index.flush() == 1
    assert await index.flush() == 0
    await index.aclose()
    assert len(await lines(storage)) == 3


async def test_items_are_written_when_it_is_time() -> None:
    class NotingStorage(MemoryStorage):
        written = asyncio.Event()

        async def append(self, key: str, data: bytes) -> None:
            await super().append(key, data)
            self.written.set()

    storage = NotingStorage()
    index = BufferedIndex(storage, flush_interval=0.01)
    await index.add(Item(A))
    await index.add(Item(B))
    await storage.written.wait()
    assert len(await lines(storage)) == 2
    await index.aclose()


async def test_closing_writes_what_is_left() -> None:
    storage = MemoryStorage()
    index = BufferedIndex(storage)
    await index.add(Item(A))
    await index.aclose()
    assert len(await lines(storage)) == 1
    await index.add(Item(B))
    await index.aclose()
    assert len(await lines(storage)) == 2


async def test_a_failed_write_loses_nothing() -> None:
    storage = FullStorage()
    index = BufferedIndex(storage, max_items=2)
    await index.add(Item(A))
    with pytest.raises(StorageFailed):
        await index.add(Item(B))
    with pytest.raises(StorageFailed):
        await index.flush()
    assert await index.query() == [A, B]

    storage.full = False
    assert await index.flush() == 2
    await index.aclose()
    assert await IndexBase(storage).query() == [A, B]


async def test_a_full_buffer_that_could_not_be_written_is_tried_again() -> None:
    class OnceFull(FullStorage):
        written = asyncio.Event()

        async def append(self, key: str, data: bytes) -> None:
            await super().append(key, data)
            self.written.set()

    storage = OnceFull()
    index = BufferedIndex(storage, flush_interval=0.01, max_items=1)
    with pytest.raises(StorageFailed):
        await index.add(Item(A))
    storage.full = False
    await storage.written.wait()
    assert len(await lines(storage)) == 1
    await index.aclose()


async def test_a_failed_write_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    class OnceFull(FullStorage):
        tries = 0
        written = asyncio.Event()

        async def append(self, key: str, data: bytes) -> None:
            self.tries += 1
            self.full = self.tries == 1
            await super().append(key, data)
            self.written.set()

    storage = OnceFull()
    index = BufferedIndex(storage, flush_interval=0.01)
    await index.add(Item(A))
    await storage.written.wait()
    assert "1 items of index.jsonl could not be written. They are tried again in 0.01 s." in (
        caplog.text
    )
    await index.aclose()
    assert len(await lines(storage)) == 1


async def test_what_is_added_during_a_write_is_written_next() -> None:
    class SlowStorage(MemoryStorage):
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def append(self, key: str, data: bytes) -> None:
            self.begun.set()
            await self.go_on.wait()
            await super().append(key, data)

    storage = SlowStorage()
    index = BufferedIndex(storage)
    await index.add(Item(A))
    flush = asyncio.create_task(index.flush())
    await storage.begun.wait()
    await index.add(Item(B))
    storage.go_on.set()
    assert await flush == 1
    await index.aclose()
    assert len(await lines(storage)) == 2
