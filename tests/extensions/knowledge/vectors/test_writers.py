"""Several processes write one vector index, in any order and at once."""

import asyncio
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime.extensions.knowledge.index import Filter
from copilot_runtime.extensions.knowledge.resources import ResourceIndex
from copilot_runtime.extensions.knowledge.vectors import VectorIndex, VectorItem, state
from copilot_runtime.extensions.knowledge.vectors.quantized import Floats
from copilot_runtime.storage import MemoryStorage, ObjectChanged
from copilot_runtime.storage.lock import LockLost, StorageLock, lock_storage
from tests.extensions.knowledge.vectors.words import LETTERS, LetterEmbedder, message, resource

Step = tuple[str, int, Sequence[int]]

WRITERS = 3
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "delete", "update", "update", "together", "restart"]),
        st.integers(0, WRITERS - 1),
        st.lists(st.integers(0, 11), min_size=1, max_size=6),
    ),
    max_size=14,
)


class RestlessStorage(MemoryStorage):
    """Lets others go on before each thing that is done."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.dice = random.Random(seed)

    async def _pause(self) -> None:
        for _ in range(self.dice.randrange(4)):
            await asyncio.sleep(0)

    async def put(self, key: str, data: bytes, *, expected: str | None = None) -> str:
        await self._pause()
        return await super().put(key, data, expected=expected)

    async def append(self, key: str, data: bytes) -> None:
        await self._pause()
        await super().append(key, data)

    async def read(self, key: str, start: int = 0) -> tuple[bytes, str]:
        await self._pause()
        return await super().read(key, start)

    async def find_etags(self, prefix: str = "") -> dict[str, str]:
        await self._pause()
        return await super().find_etags(prefix)


class Writers:
    """Processes that share a storage; what each of them embeds is counted."""

    def __init__(self, seed: int) -> None:
        self.storage = RestlessStorage(seed)
        self.embedders = [LetterEmbedder() for _ in range(WRITERS)]
        self.resources = [ResourceIndex(self.storage) for _ in range(WRITERS)]
        self.indexes = [VectorIndex(self.storage, one) for one in self.embedders]
        self.expected: dict[str, str] = {}
        self.texts = 0

    async def run(self, step: Step) -> None:
        action, who, rows = step
        names = [f"n{row}" for row in dict.fromkeys(rows)]
        match action:
            case "put":
                for name in names:
                    self.texts += 1
                    self.expected[name] = f"text {self.texts}"
                await self.resources[who].put_many(
                    resource(name, self.expected[name]) for name in names
                )
            case "delete":
                for name in names:
                    self.expected.pop(name, None)
                await self.resources[who].delete_many(str(message(name)) for name in names)
            case "update":
                await self.update(who)
            case "together":
                await asyncio.gather(*map(self.update, range(WRITERS)))
            case _:
                self.resources[who] = ResourceIndex(self.storage)
                self.indexes[who] = VectorIndex(self.storage, self.embedders[who])

    async def update(self, who: int) -> None:
        assert (await self.indexes[who].update(self.resources[who])).failed == {}

    async def find(self, index: VectorIndex) -> set[str]:
        await index.table.refresh()
        found = await index.query([np.ones(len(LETTERS))], Filter(threshold=-1))
        assert len({*found}) == len(found) == await index.count()
        return {one.name for one in found}

    def texts_embedded(self) -> list[str]:
        return [text for one in self.embedders for text in one.texts]


@given(STEPS, st.integers(0, 1000))
def test_writers_in_any_order_lose_nothing_and_embed_nothing_twice(
    steps: list[Step], seed: int
) -> None:
    async def play() -> None:
        writers = Writers(seed)
        for step in [*steps, ("update", 0, ())]:
            await writers.run(step)
        for index in [*writers.indexes, VectorIndex(writers.storage, LetterEmbedder())]:
            assert await writers.find(index) == {*writers.expected}
        texts = writers.texts_embedded()
        if not any(action == "together" for action, _, _ in steps):
            assert len({*texts}) == len(texts)
        for who in range(WRITERS):
            await writers.update(who)
        assert writers.texts_embedded() == texts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "_MOST_LINES", 3)
        asyncio.run(play())


@given(
    st.lists(
        st.lists(st.sets(st.integers(0, 14), max_size=6), min_size=WRITERS, max_size=WRITERS),
        max_size=8,
    ),
    st.integers(0, 1000),
)
def test_what_is_written_at_once_is_all_there(turns: list[list[set[int]]], seed: int) -> None:
    """In each turn, every writer adds or removes numbers that are its own in this turn."""

    async def write(index: VectorIndex, names: set[str], expected: set[str]) -> None:
        new = names - expected
        await index.add(*(VectorItem(message(name), [1, 1]) for name in new))
        await index.remove(str(message(name)) for name in names - new)

    async def play() -> None:
        storage = RestlessStorage(seed)
        indexes = [VectorIndex(storage, LetterEmbedder()) for _ in range(WRITERS)]
        expected: set[str] = set()
        for turn, sets in enumerate(turns):
            own = [
                {f"n{number}" for number in numbers if (number + turn) % WRITERS == who}
                for who, numbers in enumerate(sets)
            ]
            await asyncio.gather(
                *(write(index, names, expected) for index, names in zip(indexes, own, strict=True))
            )
            expected = expected.symmetric_difference(set[str]().union(*own))
        for index in [*indexes, VectorIndex(storage, LetterEmbedder())]:
            await index.table.refresh()
            assert {one.name for one in await index.query([[1, 1]])} == expected

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "_MOST_LINES", 3)
        asyncio.run(play())


@pytest.mark.anyio
async def test_what_another_process_embeds_during_an_update_is_found_and_paid_once() -> None:
    """The server is at one resource while a command takes in hundreds."""
    is_busy, may_go_on = asyncio.Event(), asyncio.Event()

    class Slow(LetterEmbedder):
        async def embed(self, texts: Sequence[str]) -> Floats:
            is_busy.set()
            await may_go_on.wait()
            return await super().embed(texts)

    storage = MemoryStorage()
    resources = ResourceIndex(storage)
    embedders = [Slow(), LetterEmbedder()]
    server, command = (VectorIndex(storage, one) for one in embedders)
    await resources.put(resource("upload", "walrus"))
    update = asyncio.create_task(server.update(resources))
    await is_busy.wait()
    await resources.put_many(resource(f"n{number}", "page") for number in range(1000))
    await command.update(resources, only=[str(message(f"n{number}")) for number in range(1000)])
    may_go_on.set()
    await update

    for index in (server, command, VectorIndex(storage, LetterEmbedder())):
        await index.table.refresh()
        assert await index.count() == 1001
    assert (await server.update(resources)).added == (await command.update(resources)).added == 0
    assert [len(one.texts) for one in embedders] == [1, 1000]


@pytest.mark.anyio
async def test_a_vector_of_a_later_version_is_not_replaced_by_an_earlier_one() -> None:
    is_busy, may_go_on = asyncio.Event(), asyncio.Event()

    class Slow(LetterEmbedder):
        async def embed(self, texts: Sequence[str]) -> Floats:
            is_busy.set()
            await may_go_on.wait()
            return await super().embed(texts)

    storage = MemoryStorage()
    resources = ResourceIndex(storage)
    slow, fast = VectorIndex(storage, Slow()), VectorIndex(storage, LetterEmbedder())
    await resources.put(resource("one", "abc"))
    update = asyncio.create_task(slow.update(resources))
    await is_busy.wait()
    await resources.put(resource("one", "xyz"))
    await fast.update(resources)
    may_go_on.set()
    assert (await update).added == 0
    assert [one.score for one in await slow.search(["xyz"])] == [1]


@pytest.mark.anyio
async def test_who_has_lost_its_lock_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    index = VectorIndex(storage, LetterEmbedder())
    monkeypatch.setattr(StorageLock, "is_lost", True, raising=False)
    monkeypatch.setattr(StorageLock, "__setattr__", _ignore_is_lost)
    resources = ResourceIndex(storage)
    await resources.put(resource("one", "abc"))
    with pytest.raises(LockLost, match="another one may have taken over"):
        await index.update(resources)
    assert await storage.find_by_prefix("vectors/") == []


def _ignore_is_lost(lock: StorageLock, name: str, value: object) -> None:
    if name != "is_lost":
        object.__setattr__(lock, name, value)


@pytest.mark.anyio
async def test_a_lock_is_waited_for_also_if_another_one_is_faster() -> None:
    class Contested(MemoryStorage):
        tries = 0

        async def put(self, key: str, data: bytes, *, expected: str | None = None) -> str:
            self.tries += 1
            if self.tries < 3:
                raise ObjectChanged(key)
            return await super().put(key, data, expected=expected)

    storage = Contested()
    async with lock_storage(storage, "lock.json") as lock:
        lock.check()
        assert await storage.exists("lock.json")
    assert not await storage.exists("lock.json")


@pytest.mark.anyio
async def test_a_cancellation_while_the_lock_is_released_is_not_lost() -> None:
    storage, is_inside = MemoryStorage(), asyncio.Event()

    async def work() -> None:
        async with lock_storage(storage, "vectors/lock"):
            is_inside.set()

    task = asyncio.create_task(work())
    await is_inside.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert await storage.find_etags() == {}
