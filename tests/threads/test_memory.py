"""Which threads a store without a file forgets."""

from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from copilot_runtime import CopilotRuntime
from copilot_runtime.base.errors import UnknownName
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.threads.recorder import Recorder
from copilot_runtime.threads.run_log import MemoryBus
from copilot_runtime.threads.store import Segment, Thread, ThreadKey, ThreadQuery
from tests.threads.recorded import listed, log_of, run_of, told

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


def bus_of(runtime: CopilotRuntime) -> object:
    return cast("Recorder", runtime.runtime.bus).inner


def test_the_bus_is_in_memory_unless_another_is_named() -> None:
    assert isinstance(bus_of(CopilotRuntime(settings=Settings(threads="memory"))), MemoryBus)


def test_an_unknown_bus_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownName) as caught:
        CopilotRuntime(settings=Settings(threads="memory", bus="memroy"))

    assert caught.value.message == ("No bus named 'memroy'. Known: memory. Did you mean 'memory'?")


def test_a_package_adds_a_bus_by_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[copilot_runtime.bus]\nacme = acme_bus:AcmeBus\n")
    (tmp_path / "acme_bus.py").write_text(
        "from copilot_runtime.threads.run_log import MemoryBus\nclass AcmeBus(MemoryBus): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = Settings(threads="memory", bus="acme", max_events_per_run=7, log_ttl=8)
    bus = bus_of(CopilotRuntime(settings=settings))

    assert (type(bus).__name__, isinstance(bus, MemoryBus)) == ("AcmeBus", True)
    assert isinstance(bus, MemoryBus)
    assert (bus.max_events, bus.ttl) == (7, 8)
