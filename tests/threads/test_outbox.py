"""The outbox of every store: an entry is claimed by one process, until its time is over."""

import asyncio
from contextlib import aclosing as closing
from importlib import import_module
from typing import Any

import pytest

from copilot_runtime.threads import STORES
from copilot_runtime.threads.outbox import Claim, Outbox, OutboxEntry
from copilot_runtime.threads.store import ThreadStore

pytestmark = pytest.mark.anyio

ENTRY = OutboxEntry("e1", "ann", b"one")


@pytest.fixture
def outbox(store: ThreadStore) -> Outbox:
    assert store.outbox is not None
    return store.outbox


async def test_an_entry_is_claimed_once_it_is_due(outbox: Outbox) -> None:
    await outbox.add(ENTRY, 10.0)
    await outbox.add(OutboxEntry("e2", "ann", b"two"), 30.0)

    claims = [[*await outbox.claim(Claim(now, now + 15, 9, 9))] for now in (9.0, 10.0, 11.0, 25.0)]

    assert claims == [[], [ENTRY], [], [ENTRY]]


async def test_of_many_that_claim_an_entry_one_gets_it(
    store: ThreadStore, outbox: Outbox, place: tuple[str, tuple[Any, ...]]
) -> None:
    name, arguments = place
    module, _, attribute = STORES[name].partition(":")
    # what is in memory is there for one process only
    other: ThreadStore = (
        store if name == "memory" else getattr(import_module(module), attribute)(*arguments)
    )
    async with closing(other):
        assert other.outbox is not None
        await outbox.add(ENTRY, 10.0)
        claims = [box.claim(Claim(10.0, 20.0, 9, 9)) for box in [outbox, other.outbox] * 5]
        claimed = [entry for found in await asyncio.gather(*claims) for entry in found]

    assert claimed == [ENTRY]


async def test_the_many_of_one_owner_do_not_hold_up_those_of_another(outbox: Outbox) -> None:
    for number in range(9):
        await outbox.add(OutboxEntry(f"a{number}", "ann", b""), float(number))
    await outbox.add(OutboxEntry("b", "bob", b""), 20.0)
    claim = Claim(30.0, 40.0, 9, share=2)

    names = [[entry.id for entry in await outbox.claim(claim)] for _ in range(2)]
    left = await outbox.claim(claim._replace(share=9, busy=["ann"]))
    names.append([entry.id for entry in await outbox.claim(claim._replace(limit=3, share=9))])

    assert names == [["a0", "b", "a1"], ["a2", "a3"], ["a4", "a5", "a6"]]
    assert not left


async def test_a_deleted_entry_is_not_changed_back(outbox: Outbox) -> None:
    await outbox.add(ENTRY, 10.0)
    await outbox.update(ENTRY._replace(data=b"new"), 0.0)
    changed = await outbox.claim(Claim(10.0, 20.0, 9, 9))
    await outbox.delete("e1")
    await outbox.update(ENTRY, 0.0)

    assert [*changed] == [ENTRY._replace(data=b"new")]
    assert not await outbox.claim(Claim(99.0, 100.0, 9, 9))
