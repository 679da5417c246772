"""Lists of threads, in every store."""

import pytest

from copilot_runtime.base.errors import Misuse
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.store import ThreadKey, ThreadQuery, ThreadStore
from tests.in_one_test import in_one_test
from tests.threads.recorded import listed, run_of, threads, told

pytestmark = pytest.mark.anyio


async def test_threads_are_listed_the_latest_first(store: ThreadStore) -> None:
    for key in threads("a", "b", "c"):
        await told(store, run_of(key, run_id=key.id))
    await told(store, run_of(ThreadKey("ann", "a"), run_id="again"))

    assert await listed(store) == ["a", "c", "b"]


async def test_pages_meet_without_a_gap(store: ThreadStore) -> None:
    ids = [f"t{number}" for number in range(7)]
    for key in threads(*ids):
        await store.begin(run_of(key, run_id=key.id))
    pages: list[list[str]] = []
    cursor = None
    while True:
        page = await store.list(ThreadQuery(owner="ann", limit=3, cursor=cursor))
        pages.append([thread.key.id for thread in page.threads])
        cursor = page.next_cursor
        if len(pages) == 1:  # what moves to the top meanwhile is not seen twice
            await store.update(ThreadKey("ann", "t6"), name="moved")
        if cursor is None:
            break

    assert pages == [["t6", "t5", "t4"], ["t3", "t2", "t1"], ["t0"]]


@in_one_test("cursor", ["", "x", "1", "1.", "-1.2", "9" * 40 + ".1", "1.2 OR 1"])
async def test_a_cursor_of_somebody_elses_making_is_refused(
    store: ThreadStore, cursor: str
) -> None:
    with pytest.raises(Misuse, match="not a cursor"):
        await store.list(ThreadQuery(owner="ann", cursor=cursor))


@pytest.mark.parametrize(("limit", "count"), [(-5, 1), (0, 1), (1, 1), (500, 200)])
async def test_a_page_has_between_one_and_two_hundred_threads(
    store: ThreadStore, limit: int, count: int
) -> None:
    for key in threads(*(f"t{number}" for number in range(201))):
        await store.begin(run_of(key, run_id=key.id))

    assert len(await listed(store, ThreadQuery(owner="ann", limit=limit))) == count


async def test_a_list_is_of_one_agent_and_without_archived_ones(store: ThreadStore) -> None:
    for key, agent in zip(threads("a", "b", "c"), ["x", "y", "x"], strict=True):
        await store.begin(run_of(key, run_id=key.id, agent=agent))
    await store.update(ThreadKey("ann", "a"), archived=True)

    assert await listed(store) == ["c", "b"]
    assert await listed(store, ThreadQuery(owner="ann", archived=True)) == ["a", "c", "b"]
    assert await listed(store, ThreadQuery(owner="ann", agent="x")) == ["c"]
    assert await listed(store, ThreadQuery(owner="ann", agent="x", archived=True)) == ["a", "c"]
    await store.update(ThreadKey("ann", "a"), archived=False)
    assert await listed(store) == ["a", "c", "b"]


async def fill_for_all(store: ThreadStore) -> None:
    """Store threads of two owners and two agents; "c" is archived, and "a" was used last."""
    for owner, key, agent in [("ann", "a", "x"), ("bob", "b", "y"), ("", "c", "x"), ("", "d", "y")]:
        await told(store, run_of(ThreadKey(owner, key), run_id=key, agent=agent))
    await store.update(ThreadKey("", "c"), archived=True)
    await told(store, run_of(ThreadKey("ann", "a"), run_id="again", agent="x"))


async def list_ids(store: ThreadStore, limit: int, **wanted: str | bool) -> list[str]:
    latest = await store.list_latest(limit, **wanted)  # pyright: ignore[reportArgumentType]
    return [thread.key.id for thread in latest]


async def check_the_latest_of_all(store: ThreadStore) -> None:
    assert await list_ids(store, 9) == ["a", "d", "b"]
    assert await list_ids(store, 2) == ["a", "d"]
    assert await list_ids(store, 3, archived=True) == ["a", "c", "d"]
    assert await list_ids(store, 9, agent="y") == ["d", "b"]
    assert await list_ids(store, 9, agent="x", archived=True) == ["a", "c"]
    assert await list_ids(store, 9, agent="\ud800") == []


async def test_the_latest_threads_of_all_owners_are_listed(store: ThreadStore) -> None:
    await fill_for_all(store)
    await check_the_latest_of_all(store)


async def test_a_store_of_a_plugin_that_only_pages_lists_the_latest_threads_as_well() -> None:
    class Plugin(MemoryThreads):
        list_latest = ThreadStore.list_latest

    store = Plugin()
    await fill_for_all(store)
    await check_the_latest_of_all(store)
