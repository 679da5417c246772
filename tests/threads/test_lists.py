"""Lists of threads, in every store."""

import pytest

from copilot_runtime.errors import Misuse
from copilot_runtime.threads.store import ThreadKey, ThreadQuery, ThreadStore
from tests.threads.logs import listed, run_of, threads, told

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


@pytest.mark.parametrize("cursor", ["", "x", "1", "1.", "-1.2", "9" * 40 + ".1", "1.2 OR 1"])
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
