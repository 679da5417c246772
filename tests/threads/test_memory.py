"""Which threads a store without a file forgets."""

from datetime import UTC, datetime

import pytest

from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.store import Segment, Thread, ThreadKey, ThreadQuery
from tests.threads.logs import listed, log_of, run_of, told

pytestmark = pytest.mark.anyio


def key(name: str, owner: str = "ann") -> ThreadKey:
    return ThreadKey(owner, name)


async def tell(store: MemoryThreads, *names: str) -> None:
    for name in names:
        await told(store, run_of(key(name), run_id=f"r-{name}"))


async def test_the_thread_not_used_for_longest_makes_room() -> None:
    store = MemoryThreads(max_threads=3)
    await tell(store, "a", "b", "c")
    await store.update(key("a"), name="used again")
    await tell(store, "d", "e")

    assert await listed(store) == ["e", "d", "a"]


async def test_a_thread_with_a_run_never_makes_room() -> None:
    store = MemoryThreads(max_threads=2)
    runs = [run_of(key(name), run_id=name) for name in ("a", "b", "c")]
    for run in runs:
        await store.begin(run)
    assert await listed(store) == ["c", "b", "a"]

    await store.write([Segment(log_id="b", events=[], whole=log_of(runs[1]))])
    await tell(store, "d")

    assert await listed(store) == ["d", "c", "a"]


async def test_a_thread_that_was_deleted_makes_no_room_twice() -> None:
    store = MemoryThreads(max_threads=2)
    await tell(store, "a", "b")
    await store.delete(key("a"))
    await tell(store, "c")

    assert await listed(store) == ["c", "b"]


async def test_an_old_thread_from_another_store_is_listed_where_it_belongs() -> None:
    store = MemoryThreads()
    await tell(store, "a", "b")
    old = datetime(2020, 1, 1, tzinfo=UTC)
    for name, owner in (("old", "ann"), ("older", "bob")):
        await store.put(
            Thread(
                key=key(name, owner),
                agent="default",
                name=None,
                archived=False,
                created_at=old,
                updated_at=old,
                last_run_at=None,
            ),
            [],
        )

    assert await listed(store) == ["b", "a", "old"]
    assert await listed(store, ThreadQuery(owner="bob")) == ["older"]
    assert await store.expire(datetime(2021, 1, 1, tzinfo=UTC)) == 2
    assert await listed(store) == ["b", "a"]
