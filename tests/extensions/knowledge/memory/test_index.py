"""Appending to the memory of a conversation, from tasks and processes, and reading it."""

import asyncio
import json
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.index import Filter
from copilot_runtime.extensions.knowledge.memory import MemoryIndex
from copilot_runtime.extensions.knowledge.memory import index as memory_index
from copilot_runtime.storage import LocalStorage, MemoryStorage, Storage, StorageFailed
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

CONVERSATION = "common.Conversation.c"
KEY = "memories/common.Conversation.c.jsonl"


def message(name: str, tokens: int = 1) -> Identifier:
    return Identifier("common.Message", name, CONVERSATION, tokens=tokens)


A, B, C = message("a"), message("b"), message("c")


class BrokenStorage(MemoryStorage):
    """Takes nothing while it is broken."""

    broken = True

    async def append(self, key: str, data: bytes) -> None:
        if self.broken:
            raise StorageFailed("no space")
        await super().append(key, data)


async def wait_until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - what writes in the background tells nobody
        await asyncio.sleep(0.001)


async def names(storage: Storage) -> list[str]:
    return [it.name for it in await MemoryIndex(storage, CONVERSATION).query()]


async def test_each_line_of_a_memory_has_an_id_and_an_identifier() -> None:
    storage = MemoryStorage()
    index = MemoryIndex(storage, CONVERSATION)
    await index.append(A)
    await index.append(B, C)
    await index.aclose()

    lines = [json.loads(line) for line in (await storage.get(KEY)).splitlines()]
    assert [line["id"] for line in lines] == [str(A), str(B), str(C)]
    assert lines[0] == {
        "id": "common.Conversation.c/common.Message.a",
        "identifier": {
            "type": "common.Message",
            "name": "a",
            "parent": "common.Conversation.c",
            "tokens": 1,
        },
    }


async def test_one_who_comes_again_stays_at_its_first_place() -> None:
    storage = MemoryStorage()
    index = MemoryIndex(storage, CONVERSATION)
    await index.append(A, B, message("a", tokens=7))

    assert await index.query() == [A, B]
    assert (await index.get([str(A)]))[0].tokens == 7
    assert await names(storage) == ["a", "b"]


async def test_what_was_read_and_is_appended_again_writes_nothing() -> None:
    storage = MemoryStorage()
    index = MemoryIndex(storage, CONVERSATION)
    await index.append(A, B)
    await index.load()
    before = await storage.get(KEY)
    await index.append(A, B)
    await index.flush()

    assert await storage.get(KEY) == before


async def test_appended_identifiers_are_there_before_they_are_written() -> None:
    storage = MemoryStorage()
    index = MemoryIndex(storage, CONVERSATION)
    await index.append(A)

    assert not await storage.exists(KEY)
    assert await index.has(A)
    assert not await index.has(f"cld:{B}")
    assert await index.get(["cld:" + str(A), B]) == [A]
    assert await index.get(None) == []
    assert await storage.exists(KEY)


async def test_what_is_appended_is_written_without_anybody_waiting() -> None:
    storage = MemoryStorage()
    await MemoryIndex(storage, CONVERSATION).add(A)
    await wait_until(lambda: KEY in storage._objects)  # pyright: ignore[reportPrivateUsage]

    assert await names(storage) == ["a"]


async def test_two_memories_of_one_conversation_see_what_the_other_writes() -> None:
    storage = MemoryStorage()
    one, other = MemoryIndex(storage, CONVERSATION), MemoryIndex(storage, CONVERSATION)
    for index, identifier in ((one, A), (other, B), (one, C)):
        await index.append(identifier)
        await index.flush()

    assert await one.query() == await other.query() == [A, B, C]


async def test_tasks_that_append_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    index = MemoryIndex(storage, CONVERSATION)
    await asyncio.gather(*(index.append(message(f"m{at}")) for at in range(2500)))

    assert await names(storage) == [it.name for it in await index.query()]
    assert len(await index.query()) == 2500
    await storage.aclose()


async def test_processes_that_append_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import asyncio, sys
        from copilot_runtime.extensions.knowledge.identifiers import Identifier
        from copilot_runtime.extensions.knowledge.memory import MemoryIndex
        from copilot_runtime.storage import LocalStorage

        async def main(root, writer):
            index = MemoryIndex(LocalStorage(root), "common.Conversation.c")
            for number in range(100):
                name = f"{writer}-{number}"
                await index.append(Identifier("common.Message", name, "common.Conversation.c"))
                await index.flush()

        asyncio.run(main(*sys.argv[1:]))
    """)
    writers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, str(tmp_path), str(writer)
        )
        for writer in range(3)
    ]
    assert [await writer.wait() for writer in writers] == [0, 0, 0]

    found = await names(LocalStorage(tmp_path))
    assert sorted(found) == sorted(f"{writer}-{at}" for writer in range(3) for at in range(100))
    for writer in range(3):
        mine = [name for name in found if name.startswith(f"{writer}-")]
        assert mine == [f"{writer}-{at}" for at in range(100)]


@in_one_test("torn", [b'{"id": "common.Conv', b"\xff\xfe", b'{"id": 1}\n[]\n'])
async def test_a_torn_line_costs_nothing_but_itself(torn: bytes) -> None:
    storage = MemoryStorage()
    first = MemoryIndex(storage, CONVERSATION)
    await first.append(A)
    await first.flush()
    await storage.append(KEY, torn)
    second = MemoryIndex(storage, CONVERSATION)
    await second.append(B)

    assert await second.query() == [A, B]
    assert await first.query() == [A, B]
    assert await names(storage) == ["a", "b"]


async def test_a_memory_that_was_replaced_is_read_anew() -> None:
    storage = MemoryStorage()
    index = MemoryIndex(storage, CONVERSATION)
    await index.append(A, B)
    await index.load()
    elsewhere = MemoryStorage()
    other = MemoryIndex(elsewhere, CONVERSATION)
    await other.append(C, A)
    await other.flush()
    await storage.put(KEY, await elsewhere.get(KEY))

    assert [it.name for it in await index.query()] == ["c", "a"]


async def test_a_memory_is_deleted_with_what_is_not_written_yet() -> None:
    storage = MemoryStorage()
    index = MemoryIndex(storage, CONVERSATION)
    await index.append(A)
    await index.load()
    await index.append(B)

    assert await index.delete()
    assert not await index.delete()
    assert await index.query() == []
    await index.append(C)
    assert await names(storage) == []
    assert await index.query() == [C]


async def test_what_cannot_be_written_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory_index, "RETRY_SECONDS", 0.001)
    storage = BrokenStorage()
    index = MemoryIndex(storage, CONVERSATION)
    await index.append(A)
    with pytest.raises(StorageFailed, match="no space"):
        await index.flush()
    await wait_until(lambda: bool(caplog.records))
    assert "1 identifiers of memories/common.Conversation.c.jsonl" in caplog.text
    storage.broken = False
    await wait_until(lambda: not index.is_pending)

    assert await names(storage) == ["a"]


async def test_a_memory_that_cannot_be_written_says_so_when_it_is_closed() -> None:
    storage = BrokenStorage()
    index = MemoryIndex(storage, CONVERSATION)
    await index.append(A)
    await asyncio.sleep(0)
    with pytest.raises(StorageFailed):
        await index.aclose()
    storage.broken = False
    await index.aclose()

    assert await names(storage) == ["a"]


async def test_a_query_filters_and_cuts() -> None:
    index = MemoryIndex(MemoryStorage(), CONVERSATION)
    await index.append(message("a", 10), message("b", 20), Identifier("x.Doc", "d", tokens=1))

    assert [it.name for it in await index.query(filter=Filter(prefix=CONVERSATION))] == ["a", "b"]
    assert [it.name for it in await index.query(filter=Filter(max_tokens=12))] == ["a"]


async def test_a_long_memory_is_read_whole(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    index = MemoryIndex(storage, CONVERSATION)
    for at in range(2000):
        await index.append(message(f"m{at}"))
    await index.aclose()

    assert await names(storage) == [f"m{at}" for at in range(2000)]
    await storage.aclose()


@in_one_test("name", ["", "c", "common.Conversation.a/../../b\\", "..."])
def test_what_names_no_conversation_is_refused(name: str) -> None:
    with pytest.raises(Misuse):
        MemoryIndex(MemoryStorage(), name)
