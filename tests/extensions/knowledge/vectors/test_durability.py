"""What stays of a vector index, whenever the process dies and whatever it does."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from unittest.mock import AsyncMock

import numpy as np
import pytest
from numpy.typing import NDArray

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.knowledge.index import Filter
from copilot_runtime.extensions.knowledge.resources import ResourceIndex
from copilot_runtime.extensions.knowledge.vectors import VectorIndex, VectorItem, state, table
from copilot_runtime.storage import MemoryStorage, Storage
from copilot_runtime.storage.local import LocalStorage
from tests.extensions.knowledge.vectors.words import LetterEmbedder, message, resource
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

SIZE = 500
"""Of this many numbers, 800 vectors are lines, and more of them a block."""


@pytest.fixture(params=["memory", "local"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Storage]:
    made = MemoryStorage() if request.param == "memory" else LocalStorage(tmp_path)
    yield made
    await made.aclose()


class PowerCut(Exception):
    """The process ends here."""


class FragileStorage(MemoryStorage):
    """Does so many writes, and then no more."""

    def __init__(self, objects: Mapping[str, bytes], writes: int) -> None:
        super().__init__()
        self.start = objects
        self.writes = writes

    async def fill_quietly(self) -> "FragileStorage":
        writes, self.writes = self.writes, len(self.start)
        for key, data in self.start.items():
            await self.put(key, data)
        self.writes = writes
        return self

    async def put(self, key: str, data: bytes, *, expected: str | None = None) -> str:
        self._count()
        return await super().put(key, data, expected=expected)

    async def append(self, key: str, data: bytes) -> None:
        self._count()
        await super().append(key, data)

    async def delete(self, key: str) -> bool:
        self._count()
        return await super().delete(key)

    def _count(self) -> None:
        if not self.writes:
            raise PowerCut
        self.writes -= 1


def make_rows(count: int, seed: int = 0, size: int = SIZE) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((count, size), np.float32)


def make_items(rows: NDArray[np.float32], first: int = 0) -> list[VectorItem]:
    return [VectorItem(message(f"n{first + row}", row), one) for row, one in enumerate(rows)]


def open_index(storage: Storage) -> VectorIndex:
    return VectorIndex(storage, LetterEmbedder())


async def read_all(storage: Storage) -> dict[str, bytes]:
    return await storage.get_many(await storage.list())


async def answer(index: VectorIndex, query: NDArray[np.float32]) -> list[tuple[str, float | None]]:
    found = await index.query([query], Filter(threshold=-1))
    return [(str(one), one.score) for one in found]


async def names_of(index: VectorIndex, size: int = SIZE) -> list[str]:
    """Return all names in the order in which they were added."""
    found = await index.query([np.ones(size)], Filter(threshold=-1))
    everything = [one.name for one in found]
    return sorted(everything, key=lambda name: int(name[1:]))


@in_one_test("count", [3, 900, 3000])
async def test_another_process_finds_the_same(storage: Storage, count: int):
    rows = make_rows(count)
    index = open_index(storage)
    await index.add(*make_items(rows))
    other = open_index(storage)
    assert await answer(other, rows[0]) == await answer(index, rows[0])
    assert await other.get(["common.Message.n2", "common.Message.x"]) == [message("n2")]
    assert [await other.has(f"common.Message.{name}") for name in ("n2", "x")] == [True, False]


async def test_a_file_has_the_lines_of_copilot_ld(storage: Storage):
    await open_index(storage).add(
        VectorItem(message("a", 10), [1, 0, 0]), VectorItem(message("b"), [0.6, 0.8, 0])
    )
    (data,) = (await read_all(storage)).values()
    assert data.splitlines() == [
        b'{"id":"common.Message.a","identifier":{"type":"common.Message","name":"a","tokens":10},'
        b'"vector":[1,0,0]}',
        b'{"id":"common.Message.b","identifier":{"type":"common.Message","name":"b"},'
        b'"vector":[0.6,0.8,0]}',
    ]


async def test_what_was_added_in_many_pieces_is_in_few_objects(storage: Storage):
    rows = make_rows(9000, size=64)
    index = open_index(storage)
    for start in range(0, 9000, 60):
        await index.add(*make_items(rows[start : start + 60], start))
    assert await names_of(index, 64) == [f"n{row}" for row in range(9000)]
    assert await answer(open_index(storage), rows[5]) == await answer(index, rows[5])
    assert len(await storage.list()) <= 10


async def test_replacements_and_removals_stay_through_all_rewrites(storage: Storage):
    """Against a dictionary that does the same."""
    random = np.random.default_rng(3)
    expected: dict[str, NDArray[np.float32]] = {}
    index = open_index(storage)
    for step in range(60):
        chosen = random.integers(0, 4000, 150).tolist()
        rows = make_rows(150, seed=step, size=256)
        await index.add(
            *(VectorItem(message(f"n{name}"), row) for name, row in zip(chosen, rows, strict=True))
        )
        for name, row in zip(chosen, rows, strict=True):
            expected[f"n{name}"] = row / np.linalg.norm(row)
        gone = [name for name in [*expected] if random.random() < 0.05]
        await index.remove([f"common.Message.{name}" for name in gone])
        for name in gone:
            del expected[name]
        if step % 7 == 0:
            index = open_index(storage)
    query = make_rows(1, seed=99, size=256)[0]
    query /= np.linalg.norm(query)
    for one in (index, open_index(storage)):
        found = await one.query([query], Filter(threshold=-1))
        assert {item.name for item in found} == {*expected}
        for item in found[:100]:
            assert item.score == pytest.approx(float(expected[item.name] @ query), abs=1e-5)


async def test_what_was_removed_and_added_again_outlives_the_block_that_removed_it(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(state, "_MOST_LINES", 2)
    storage = MemoryStorage()
    index = open_index(storage)

    async def add(*names: str) -> None:
        rows = make_rows(len(names), size=8)
        items = [VectorItem(message(it), row) for it, row in zip(names, rows, strict=True)]
        await index.add(*items)

    await add(*(f"n{row}" for row in range(3000)))
    await index.remove(["common.Message.n0"])
    await add("n4000", "n4001", "n4002")  # this block removes n0
    await add("n0", "n5000", "n5001")
    await add("n4000", "n4001", "n4002")
    await add("n6000", "n6001", "n6002")  # takes in the one that removed n0: it was half dead

    names = await names_of(index, size=8)
    assert "n0" in names
    assert await names_of(open_index(storage), size=8) == names


async def test_many_removals_become_a_block_and_cost_nothing_once_their_rows_are_gone():
    storage = MemoryStorage()
    index = open_index(storage)
    items = make_items(make_rows(20_000, size=8))
    await index.add(*items)
    await index.add(*items[:100])
    await index.remove([item.identifier for item in items[::2]])
    assert await storage.find_by_extension(".jsonl") == []
    left = [f"n{row}" for row in range(1, 20_000, 2)]
    assert await names_of(index, size=8) == await names_of(open_index(storage), size=8) == left

    for start in range(0, 6000, 10):
        await index.remove([item.identifier for item in items[1 + start : 11 + start]])
    (lines,) = await storage.find_by_extension(".jsonl") or ["none"]
    assert (await storage.get_many([lines])).get(lines, b"").count(b"\n") <= 2000
    assert await names_of(open_index(storage), size=8) == left[3000:]


async def test_a_row_that_is_written_again_and_again_does_not_make_a_long_file():
    storage = MemoryStorage()
    index = open_index(storage)
    for _ in range(7):
        await index.add(*make_items(make_rows(500, size=8)))
    assert await index.count() == await open_index(storage).count() == 500
    assert sum(len(data) for data in (await read_all(storage)).values()) < 500_000


async def test_positions_stay_through_rewrites_and_restarts(storage: Storage):
    index = open_index(storage)
    same = np.ones((2000, 256), np.float32)
    await index.add(*make_items(same))
    await index.add(*make_items(same[:500], 1000))
    await index.add(*make_items(same[:5], 700))
    for one in (index, open_index(storage)):
        found = await one.query([same[0]])
        assert [item.name for item in found] == [f"n{row}" for row in range(2000)]


async def test_a_torn_line_is_cut_off_at_every_byte_and_the_next_one_is_whole():
    storage = MemoryStorage()
    await open_index(storage).add(*make_items(make_rows(2, size=3)))
    ((key, data),) = (await read_all(storage)).items()
    first = data.index(b"\n") + 1
    for end in range(len(data) + 1):
        torn = MemoryStorage()
        await torn.put(key, data[:end])
        index = open_index(torn)
        whole = (end >= first - 1) + (end >= len(data) - 1)
        assert await index.count() == whole
        await index.add(VectorItem(message("next"), [1, 2, 3]))
        assert await open_index(torn).count() == whole + 1


async def test_a_block_that_is_damaged_at_any_byte_is_left_out(caplog: pytest.LogCaptureFixture):
    storage = MemoryStorage()
    index = open_index(storage)
    await index.add(*make_items(make_rows(801)))
    ((key, data),) = (await read_all(storage)).items()
    header = data.index(b"\0\0\0\0", 20)
    ends = [0, 1, 7, 8, 15, 16, 17, header // 2, header, header + 1, len(data) // 2, len(data) - 1]
    damages = [data[:end] for end in ends]
    damages += [data + b"x", b"X" + data[1:], data[:30] + b"#" + data[31:]]
    for damage in damages:
        caplog.clear()
        torn = MemoryStorage()
        await torn.put(key, damage)
        other = open_index(torn)
        assert await other.count() == 0
        assert "damaged" in caplog.text
        await other.add(VectorItem(message("next"), np.ones(SIZE)))
        assert await open_index(torn).count() == 1
        assert key not in await torn.list()


async def test_an_empty_file_in_the_place_of_a_block_is_left_out(tmp_path: Path):
    storage = LocalStorage(tmp_path)
    await open_index(storage).add(*make_items(make_rows(801)))
    (key,) = await storage.list()
    (tmp_path / key).write_bytes(b"")
    assert await open_index(storage).count() == 0


async def test_lines_that_are_none_are_left_out():
    storage = MemoryStorage()
    await open_index(storage).add(VectorItem(message("a"), [1, 0]))
    (key,) = await storage.list()
    for line in (
        b"no JSON\n",
        b'{"id":"x"}\n',
        b'{"id":"x","identifier":{"type":"a.B","name":"x"},"vector":["a"]}\n',
        b'{"id":"x","identifier":{"type":"a.B","name":"x"},"vector":[[1,2]]}\n',
        b'{"id":"x","identifier":{"type":"a.B","name":"x"},"vector":[1,2,3]}\n',
        b'{"id":"x","identifier":{"type":"","name":"x"},"vector":[1,2]}\n',
    ):
        await storage.append(key, line)
    index = open_index(storage)
    assert await index.count() == 1
    assert [one.name for one in await index.query([[1, 0]])] == ["a"]


async def test_after_a_death_at_any_write_the_index_is_as_before_or_after_it():
    """Lines become a block, blocks become one, and a removal goes through it all."""
    start = MemoryStorage()
    index = open_index(start)
    rows = make_rows(9000, size=256)
    for first in range(0, 6400, 900):
        await index.add(*make_items(rows[first : first + 900], first))
        await index.add(*make_items(rows[first : first + 3], first))
    await index.remove(["common.Message.n5"])
    before = await names_of(index, 256)
    objects = await read_all(start)
    changes = make_items(rows[7200:8900], 7200)
    is_done = False
    for writes in range(40):
        storage = await FragileStorage(objects, writes).fill_quietly()
        dying = open_index(storage)
        try:
            await dying.add(*changes)
            is_done = True
        except PowerCut:
            is_done = False
        storage.writes = 1000
        survivor = open_index(storage)
        after = await names_of(survivor, 256)
        assert "n5" not in after
        added = {*after} - {*before}
        assert {*before} <= {*after}
        assert len(added) in (0, len(changes)), writes
        await survivor.add(VectorItem(message("n9999"), rows[0]))
        assert len(await names_of(open_index(storage), 256)) == len(after) + 1
        if is_done:
            break
    assert is_done


async def test_what_cannot_be_written_is_not_there_and_can_be_added_again():
    storage = await FragileStorage({}, 0).fill_quietly()
    index = open_index(storage)
    for count in (2, 900):
        with pytest.raises(PowerCut):
            await index.add(*make_items(make_rows(count)))
        assert await index.count() == 0
    storage.writes = 1000
    await index.add(*make_items(make_rows(900)))
    assert await index.count() == await open_index(storage).count() == 900


async def test_what_cannot_be_deleted_yet_is_deleted_later():
    class Stubborn(MemoryStorage):
        is_stubborn = True

        async def delete(self, key: str) -> bool:
            if self.is_stubborn and not key.endswith("lock.json"):
                raise Misuse("It is mapped.")
            return await super().delete(key)

    storage = Stubborn()
    index = open_index(storage)
    rows = make_rows(1600)
    await index.add(*make_items(rows[:10]))
    await index.add(*make_items(rows[10:], 10))
    assert len(await storage.list()) == 2
    storage.is_stubborn = False
    await index.add(VectorItem(message("next"), rows[0]))
    assert len(await storage.find_by_extension(".jsonl")) == 1
    assert await open_index(storage).count() == 1601


async def test_removing_everything_leaves_an_index_that_can_be_filled_again(storage: Storage):
    index = open_index(storage)
    items = make_items(make_rows(2000))
    await index.add(*items)
    await index.remove([item.identifier for item in items])
    assert await index.count() == await open_index(storage).count() == 0
    assert await index.query([np.ones(SIZE)]) == []
    await index.add(*items)
    assert await open_index(storage).count() == 2000


async def test_nothing_to_do_writes_nothing(storage: Storage):
    index = open_index(storage)
    await index.add(*make_items(make_rows(3)))
    before = await read_all(storage)
    await index.add()
    await index.remove([])
    await index.remove(["common.Message.unknown"])
    assert await read_all(storage) == before


async def test_an_update_sees_what_another_process_has_embedded(storage: Storage):
    resources = ResourceIndex(storage)
    here, there = LetterEmbedder(), LetterEmbedder()
    ours, theirs = VectorIndex(storage, here), VectorIndex(storage, there)
    assert await ours.count() == 0
    for texts in (["abba"], ["abba", "xyz"]):
        await resources.put_many(resource(text, text) for text in texts)
        await theirs.update(resources)
        assert (await ours.update(resources)).added == 0
        assert await ours.count() == len(texts)
    assert here.calls == []


async def test_a_search_sees_it_after_some_seconds(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
):
    now = 0.0
    monkeypatch.setattr(table, "monotonic", lambda: now)
    ours, theirs = open_index(storage), open_index(storage)
    await ours.add(VectorItem(message("a"), [1, 0]))
    await theirs.add(VectorItem(message("b"), [1, 0]))
    assert [one.name for one in await ours.query([[1, 0]])] == ["a"]
    now = 6.0
    assert [one.name for one in await ours.query([[1, 0]])] == ["a", "b"]


@pytest.mark.parametrize("count", [1, 900])
async def test_an_object_that_another_process_replaces_meanwhile_is_read_later(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, count: int
):
    rows = make_rows(count)
    await open_index(storage).add(*make_items(rows))
    (key,) = await storage.list()
    data = await storage.get(key)
    etags = await storage.find_etags()
    await storage.delete(key)
    ours = open_index(storage)
    with monkeypatch.context() as patch:
        patch.setattr(storage, "find_etags", AsyncMock(return_value=etags))
        assert await ours.count() == 0
    await storage.put(key.replace("00000001", "00000002"), data)
    await ours.update(ResourceIndex(MemoryStorage()))
    assert await ours.count() == count


async def test_indexes_of_two_models_do_not_mix():
    storage = MemoryStorage()
    first = VectorIndex(storage, LetterEmbedder("first"))
    await first.add(VectorItem(message("a"), [1, 0]))
    second = VectorIndex(storage, LetterEmbedder("second"))
    await second.add(VectorItem(message("b"), [1, 0, 0]))
    assert [one.name for one in await first.query([[1, 0]])] == ["a"]
    assert [one.name for one in await second.query([[1, 0, 0]])] == ["b"]
