"""Many who read a thread at once, and what each of them gets."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from copilot_runtime.runtime.reader import ThreadReader
from copilot_runtime.threads.store import StoredRun, Thread, ThreadKey

pytestmark = pytest.mark.anyio

KEY = ThreadKey("", "t")
NOW = datetime.now(UTC)


class SlowStore:
    """A store whose readings take until the test lets them end."""

    def __init__(self) -> None:
        self.stored: list[str] = []
        self.readings = 0
        self.began = asyncio.Event()
        self.gate = asyncio.Semaphore(0)

    async def get(self, key: ThreadKey) -> Thread:
        return Thread(
            key=key,
            agent="a",
            name=None,
            archived=False,
            created_at=NOW,
            updated_at=NOW + timedelta(len(self.stored)),
            last_run_at=NOW,
        )

    async def runs(self, key: ThreadKey) -> Sequence[StoredRun]:
        self.readings += 1
        self.began.set()
        stored = [*self.stored]
        await self.gate.acquire()
        return [
            StoredRun(log_id=id, run_id=id, agent="a", began_at=NOW, ended=True, events=[])
            for id in stored
        ]


async def test_those_who_ask_while_a_thread_is_read_share_the_next_reading() -> None:
    store = SlowStore()
    reader = ThreadReader(store)  # pyright: ignore[reportArgumentType]  # all that it needs

    first = asyncio.create_task(reader.read(KEY))
    await store.began.wait()
    store.stored.append("r")  # the reading under way does not see it
    later = [asyncio.create_task(reader.read(KEY)) for _ in range(40)]
    for _ in range(2):
        store.gate.release()

    assert [len(await task) for task in (first, *later)] == [0, *[1] * 40]
    assert store.readings == 2
    assert len({id(run) for task in later for run in task.result()}) == 1


async def test_a_reader_that_leaves_takes_nothing_from_the_others() -> None:
    store = SlowStore()
    store.stored.append("r")
    reader = ThreadReader(store)  # pyright: ignore[reportArgumentType]
    leaving, staying = (asyncio.create_task(reader.read(KEY)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    store.gate.release()

    assert [run.log_id for run in await staying] == ["r"]
    assert leaving.cancelled()


async def test_an_error_of_the_store_reaches_all_who_asked_and_is_not_kept() -> None:
    class BrokenStore(SlowStore):
        async def runs(self, key: ThreadKey) -> Sequence[StoredRun]:
            raise OSError("no disk")

    reader = ThreadReader(BrokenStore())  # pyright: ignore[reportArgumentType]
    asked = await asyncio.gather(*(reader.read(KEY) for _ in range(2)), return_exceptions=True)

    assert [str(error) for error in asked] == ["no disk"] * 2
    with pytest.raises(OSError, match="no disk"):
        await reader.read(KEY)


async def test_what_somebody_holds_is_read_again_only_when_the_thread_has_changed() -> None:
    store = SlowStore()
    store.stored.append("first")
    reader = ThreadReader(store)  # pyright: ignore[reportArgumentType]
    for _ in range(2):
        store.gate.release()

    held = await reader.read(KEY)
    assert await reader.read(KEY) is held
    store.stored.append("second")
    more = await reader.read(KEY)

    assert store.readings == 2
    assert [run.log_id for run in more] == ["first", "second"]
    assert more[0] is held[0]
