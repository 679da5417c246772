"""Items in batches, and one that fails costs no other one anything."""

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.knowledge.ingestion import Processor, ProcessReport

pytestmark = pytest.mark.anyio


class Doubler(Processor[int]):
    """Doubles numbers, but no odd ones."""

    batch_size = 2

    def __init__(self) -> None:
        self.results: list[int] = []
        self.batches: list[list[int]] = []
        self.most = 0
        self._running = 0

    async def discover(self) -> Iterable[int]:
        return [2, 3, 4, 5, 6]

    async def process_item(self, item: int) -> None:
        self._running += 1
        self.most = max(self.most, self._running)
        await asyncio.sleep(0)
        self._running -= 1
        if item == 3:
            raise Misuse("Three is odd.")
        if item == 5:
            raise ValueError("odd")
        self.results.append(2 * item)

    async def finish_batch(self, items: Sequence[int]) -> None:
        self.batches.append([*items])


async def test_items_are_processed_in_batches_and_failures_are_reported() -> None:
    doubler = Doubler()
    progress: list[tuple[int, int]] = []
    report = await doubler.process(progress=lambda done, total: progress.append((done, total)))
    assert report == ProcessReport(3, {"3": "Three is odd.", "5": "ValueError: odd"})
    assert doubler.results == [4, 8, 12]
    assert doubler.batches == [[2, 3], [4, 5], [6]]
    assert progress == [(2, 5), (4, 5), (5, 5)]
    assert doubler.most == 2


async def test_items_may_be_given() -> None:
    doubler = Doubler()
    assert await doubler.process([10]) == ProcessReport(1)
    assert doubler.results == [20]


async def test_nothing_to_do_is_no_error() -> None:
    assert await Doubler().process([]) == ProcessReport()


async def test_a_batch_has_at_least_one_item() -> None:
    doubler = Doubler()
    doubler.batch_size = 0
    with pytest.raises(Misuse, match="0 items"):
        await doubler.process()


async def test_the_default_is_to_do_nothing_at_the_end_of_a_batch() -> None:
    class Plain(Processor[str]):
        async def discover(self) -> Iterable[str]:
            return ["a"]

        async def process_item(self, item: str) -> None:
            assert item == "a"

    assert await Plain().process() == ProcessReport(1)


async def test_a_cancellation_ends_the_work() -> None:
    class Endless(Processor[int]):
        async def discover(self) -> Iterable[int]:
            return [1]

        async def process_item(self, item: int) -> None:
            await asyncio.Event().wait()

    task = asyncio.create_task(Endless().process())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
