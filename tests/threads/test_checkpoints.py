"""What agents store while they wait for people: of each key one, deleted by one."""

import asyncio
from contextlib import aclosing as closing
from importlib import import_module
from typing import Any

import pytest

from copilot_runtime.api.run_input import CheckpointKey
from copilot_runtime.threads import STORES, checkpoints
from copilot_runtime.threads.store import ThreadStore
from tests.in_one_test import in_one_test
from tests.threads.recorded import KEY, run_of, told

pytestmark = pytest.mark.anyio

HERE = CheckpointKey(*KEY, "agent")


async def load(store: ThreadStore, key: CheckpointKey = HERE) -> bytes | None:
    found = await store.find_checkpoint(key)
    return found and found.data


async def test_the_last_one_of_a_key_is_found(store: ThreadStore) -> None:
    await store.save_checkpoint(HERE, b"one")
    await store.save_checkpoint(HERE, b"two")

    assert await load(store) == b"two"


@in_one_test(
    "other",
    [HERE._replace(owner="bob"), HERE._replace(thread_id="u"), HERE._replace(name="another")],
)
async def test_nobody_finds_that_of_another_key(store: ThreadStore, other: CheckpointKey) -> None:
    await store.save_checkpoint(HERE, b"one")

    assert await load(store, other) is None
    assert not await store.delete_checkpoint(other)
    assert await load(store) == b"one"


async def test_a_version_that_was_replaced_deletes_nothing(store: ThreadStore) -> None:
    await store.save_checkpoint(HERE, b"one")
    old = await store.find_checkpoint(HERE)
    assert old is not None
    await store.save_checkpoint(HERE, b"two")

    assert not await store.delete_checkpoint(HERE, old.version)
    assert await load(store) == b"two"


async def test_of_many_that_delete_one_version_one_did(
    store: ThreadStore, place: tuple[str, tuple[Any, ...]]
) -> None:
    name, arguments = place
    module, _, attribute = STORES[name].partition(":")
    # what is in memory is there for one process only
    other: ThreadStore = (
        store if name == "memory" else getattr(import_module(module), attribute)(*arguments)
    )
    async with closing(other):
        await store.save_checkpoint(HERE, b"one")
        found = await other.find_checkpoint(HERE)
        assert found is not None
        stores = [store, other] * 10
        deleted = await asyncio.gather(
            *(one.delete_checkpoint(HERE, found.version) for one in stores)
        )

    assert sorted(deleted) == [False] * 19 + [True]


async def test_it_goes_with_its_thread(store: ThreadStore) -> None:
    await told(store, run_of())
    await store.save_checkpoint(HERE, b"one")
    await store.delete(KEY)

    assert await load(store) is None


async def test_one_without_a_thread_goes_when_it_is_old_or_one_of_too_many(
    store: ThreadStore, place: tuple[str, tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions = "copilot_runtime.threads.transactions"
    monkeypatch.setattr(f"{transactions}.MOST_WITHOUT_THREAD", 2)
    monkeypatch.setattr(checkpoints, "_MOST", 2)
    await told(store, run_of())
    without = [HERE._replace(thread_id=f"none-{number}") for number in range(3)]
    for key in without if place[0] == "memory" else [HERE, *without]:
        await store.save_checkpoint(key, b"one")
    left = [await load(store, key) for key in without]
    monkeypatch.setattr(f"{transactions}.LIFETIME", 0)
    if place[0] != "memory":
        await store.save_checkpoint(without[0], b"new")
        assert [await load(store, key) for key in (HERE, *without)] == [b"one", b"new", None, None]

    assert left == [None, b"one", b"one"]
