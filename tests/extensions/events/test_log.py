"""Events are read again from a cursor: also after a restart, and while others write."""

import asyncio
import sqlite3
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from copilot_runtime.base.errors import ConfigurationFailed, LimitExceeded, Misuse, StoreFailed
from copilot_runtime.extensions.knowledge.access import Access
from copilot_runtime.extensions.knowledge.events import (
    START,
    CursorGone,
    EventFilter,
    EventLog,
    MemoryEventLog,
    NoEventLog,
    ResourceEvent,
    ResourceEvents,
)
from copilot_runtime.extensions.knowledge.events.sqlite import SqliteEventLog
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex
from copilot_runtime.storage import MemoryStorage
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

A = Identifier("common.Message", "a")
BELOW_A = Identifier("plan.Task", "t", "common.Message.a")
AB = Identifier("common.Message", "ab")


@pytest.fixture(params=["memory", "sqlite"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[EventLog, None]:
    made = MemoryEventLog(5) if request.param == "memory" else make_log(tmp_path)
    async with aclosing(made):
        yield made


def make_log(folder: Path, max_events: int = 5) -> SqliteEventLog:
    return SqliteEventLog(folder / "below" / "events.db", max_events=max_events)


def put(*resources: Identifier, source: str = "resources", id: str = "") -> ResourceEvent:
    event = ResourceEvent(detail_type="RESOURCE_PUT", resources=resources, source=source)
    return replace(event, id=id) if id else event


def make_events(count: int, of: str = "note") -> list[ResourceEvent]:
    return [put(Identifier("common.Note", f"{of}{number}")) for number in range(count)]


def names(events: Sequence[ResourceEvent]) -> list[str]:
    return [str(it) for event in events for it in event.resources]


async def test_a_reader_gets_what_stands_behind_its_cursor(log: EventLog) -> None:
    stored = await log.append(put(A), put(AB), put(BELOW_A))

    page = await log.read(stored[0].cursor)

    assert page.events == stored[1:]
    assert [event.cursor for event in page.events] == [event.cursor for event in stored[1:]]
    assert (page.cursor, page.is_last) == (stored[2].cursor, True)
    assert (await log.read(page.cursor)).events == []


@in_one_test("kind", ["memory", "sqlite"])
async def test_the_oldest_go_when_all_are_too_large(kind: str, tmp_path: Path) -> None:
    most = 500_000
    file = tmp_path / "events.db"
    log = (
        MemoryEventLog(max_bytes=most) if kind == "memory" else SqliteEventLog(file, max_bytes=most)
    )
    async with aclosing(log):
        first = (await log.append(put(A)))[0]
        for number in range(60):
            large = ResourceEvent(
                detail_type="NOTED", resources=(A,), detail={"n": number, "text": "x" * 50_000}
            )
            await log.append(large)
        page = await log.read()
        with pytest.raises(CursorGone):
            await log.read(first.cursor)

    numbers = [event.detail["n"] for event in page.events]
    assert numbers == [*range(60)][-len(numbers) :]
    assert 6 <= len(numbers) <= 9
    if kind == "sqlite":
        assert file.stat().st_size < 2 * most


async def test_an_event_comes_back_as_it_was(log: EventLog) -> None:
    event = ResourceEvent(
        detail_type="ORDER_PLACED",
        resources=(Identifier("shop.Order", "7 €.5/x", "common.User.ann"),),
        source="shop",
        detail={"sum": 12.5, "items": ["tea", None], "note": "\u2028"},
    )
    await log.append(event)

    assert (await log.read()).events == [event]


async def test_pages_follow_each_other(log: EventLog) -> None:
    await log.append(*make_events(5))

    first = await log.read(limit=2)
    second = await log.read(first.cursor, limit=2)
    third = await log.read(second.cursor, limit=2)

    assert names([*first.events, *second.events, *third.events]) == names(make_events(5))
    assert (first.is_last, second.is_last, third.is_last) == (False, False, True)


@in_one_test(
    ("filter", "found"),
    [
        (EventFilter(prefix="common.Message.a"), [str(A), str(BELOW_A)]),
        (EventFilter(prefix="cld:common.Message.a"), [str(A), str(BELOW_A)]),
        (EventFilter(prefix="common.Message.ab"), [str(AB)]),
        (EventFilter(prefix="common.Message"), []),
        (EventFilter(sources=["plans"]), [str(AB)]),
        (EventFilter(sources=["plans", "resources"], prefix=str(BELOW_A)), [str(BELOW_A)]),
        (EventFilter(detail_types=["RESOURCE_DELETE"]), []),
    ],
)
async def test_a_reader_gets_what_it_wants(
    log: EventLog, filter: EventFilter, found: list[str]
) -> None:
    stored = await log.append(put(A), put(AB, source="plans"), put(BELOW_A, A))

    page = await log.read(START, filter)

    assert sorted({*names(page.events)}) == sorted(found)
    assert (page.cursor, page.is_last) == (stored[-1].cursor, True)


async def test_the_oldest_events_make_room(log: EventLog) -> None:
    stored = await log.append(*make_events(3))
    stored = [*stored, *await log.append(*make_events(4, "later"))]

    assert names((await log.read()).events) == names(stored[2:])
    assert names((await log.read(stored[1].cursor)).events) == names(stored[2:])


async def test_a_cursor_before_the_oldest_event_says_where_to_go_on(log: EventLog) -> None:
    stored = await log.append(*make_events(7))

    with pytest.raises(CursorGone, match="not kept any more") as error:
        await log.read(stored[0].cursor)

    assert error.value.oldest == stored[1].cursor
    assert stored[1].cursor in str(error.value.hint)
    assert names((await log.read(error.value.oldest)).events) == names(stored[2:])


async def test_cursors_of_another_log_or_of_the_future_are_refused(log: EventLog) -> None:
    (last,) = await log.append(put(A))
    number = int(last.cursor.rpartition("-")[2])
    for cursor in ("00000000-1", f"{last.cursor.rpartition('-')[0]}-{number + 1}"):
        with pytest.raises(CursorGone, match="not of this log"):
            await log.read(cursor)


@in_one_test("cursor", ["", "x", "-1", "a-b", "a--1", "a-²", f"a-{'9' * 5000}", "1"])
async def test_what_is_no_cursor_is_refused(log: EventLog, cursor: str) -> None:
    with pytest.raises(Misuse, match="is no cursor"):
        await log.read(cursor)


async def test_an_event_is_stored_once(log: EventLog) -> None:
    await log.append(put(A, id="one"))
    assert await log.append(put(A, id="one")) == []
    events = ResourceEvents(log)
    with events.subscribe() as subscription:
        await events.publish(put(A, id="one"), put(AB, id="two"))

    assert names((await log.read()).events) == [str(A), str(AB)]
    assert [event.id async for event in subscription] == ["two"]


async def test_a_follower_gets_old_events_and_then_new_ones(log: EventLog) -> None:
    events = ResourceEvents(log)
    await events.publish(put(A))

    async with aclosing(events.follow(START)) as following:
        assert (await anext(following)).resources == (A,)
        waiting = asyncio.ensure_future(anext(following))
        await asyncio.sleep(0)
        await events.publish(put(AB))
        assert (await waiting).resources == (AB,)


async def test_a_follower_without_a_cursor_gets_what_happens_from_now_on(log: EventLog) -> None:
    events = ResourceEvents(log)
    await events.publish(put(A))
    async with aclosing(events.follow_pages()) as pages:
        assert names((await anext(pages)).events) == []
        await events.publish(put(AB))
        assert names((await anext(pages)).events) == [str(AB)]


async def test_a_slow_reader_learns_that_it_missed_something(log: EventLog) -> None:
    events = ResourceEvents(log)
    await events.publish(*make_events(3))
    async with aclosing(events.follow(START)) as following:
        for _ in range(3):
            await anext(following)
        await events.publish(*make_events(9, "later"))
        with pytest.raises(CursorGone):
            await anext(following)


async def test_events_of_more_resources_than_one_may_have_are_split(tmp_path: Path) -> None:
    async with aclosing(make_log(tmp_path)) as log:
        resources = ResourceIndex(MemoryStorage(), ResourceEvents(log))
        ids = [Identifier("common.Note", f"n{number}") for number in range(250)]
        await resources.put_many(Resource(id, "text") for id in ids)

        page = await log.read()

    assert [len(event.resources) for event in page.events] == [100, 100, 50]
    assert names(page.events) == [*map(str, ids)]


async def test_read_events_are_not_stored(log: EventLog) -> None:
    resources = ResourceIndex(MemoryStorage(), ResourceEvents(log), source="tests")
    await resources.put(Resource(A, "text"))
    with resources.events.subscribe() as subscription:
        await resources.get([A])
    await resources.delete(A)

    assert [event.detail_type async for event in subscription] == ["RESOURCE_GET"]
    kept = (await log.read()).events
    assert [(event.source, event.detail_type) for event in kept] == [
        ("tests", "RESOURCE_PUT"),
        ("tests", "RESOURCE_DELETE"),
    ]


class Denied(Access):
    """Lets nobody read tasks, and counts how often it is asked."""

    def __init__(self) -> None:
        self.questions = 0

    @property
    def key(self) -> str:
        return "denied"

    @property
    def immediate(self) -> Access:
        return self

    def allows(self, uri: str) -> bool:
        self.questions += 1
        return "plan" not in uri


async def test_users_get_no_events_of_resources_that_they_may_not_read(log: EventLog) -> None:
    events, access = ResourceEvents(log), Denied()
    detail = {"outcome": "finished"}
    await events.publish(
        *(
            ResourceEvent(detail_type="TASK_ENDED", resources=resources, detail=detail)
            for resources in ((BELOW_A,), (A, BELOW_A), (A,))
        ),
        ResourceEvent(detail_type="SERVER_STARTED", resources=()),
    )

    page = await events.read(START, EventFilter(access=access))
    narrow = await events.read(START, EventFilter(access=access, prefix="common.Message.a"))

    assert [(event.resources, event.detail) for event in page.events] == [
        ((A,), {}),
        ((A,), detail),
    ]
    assert names(narrow.events) == [str(A), str(A)]
    assert access.questions == 4
    assert len((await events.read()).events) == 4


@in_one_test(
    "event",
    [
        ResourceEvent(detail_type="", resources=()),
        ResourceEvent(detail_type="X", resources=(), source="a\nb"),
        ResourceEvent(detail_type="X" * 201, resources=()),
        ResourceEvent(detail_type="X", resources=(), id=""),
    ],
)
async def test_names_of_events_are_short_and_printable(log: EventLog, event: ResourceEvent) -> None:
    with pytest.raises(Misuse, match="of an event has 1 to 200 printable characters"):
        await ResourceEvents(log).publish(event)


async def test_huge_events_are_refused_with_a_way_out(log: EventLog) -> None:
    events = ResourceEvents(log)
    with pytest.raises(LimitExceeded, match="70011 bytes"):
        detail = {"text": "x" * 70_000}
        await events.publish(ResourceEvent(detail_type="X", resources=(A,), detail=detail))
    with pytest.raises(LimitExceeded, match="101 resources"):
        await events.publish(put(*(A,) * 101))
    assert (await log.read()).events == []


async def test_without_a_log_nothing_can_be_read() -> None:
    events = ResourceEvents()
    await events.publish(put(A))
    with pytest.raises(NoEventLog, match="keeps no events"):
        await events.read()
    with pytest.raises(NoEventLog):
        await events.find_end()
    with pytest.raises(NoEventLog):
        await anext(events.follow())
    await events.aclose()


async def test_a_page_ends_where_too_much_is_unwanted() -> None:
    log = MemoryEventLog()
    await log.append(*make_events(1500), put(A))
    wanted = EventFilter(prefix=str(A))

    first = await log.read(START, wanted)
    second = await log.read(first.cursor, wanted)

    assert (first.events, first.is_last) == ([], False)
    assert (names(second.events), second.is_last) == ([str(A)], True)
    async with aclosing(ResourceEvents(log).follow(START, wanted)) as following:
        assert (await anext(following)).resources == (A,)


async def test_a_page_of_a_file_ends_where_too_much_is_unwanted(tmp_path: Path) -> None:
    async with aclosing(make_log(tmp_path, 10_000)) as log:
        await log.append(*make_events(6000), put(A))
        first = await log.read(START, EventFilter(prefix=str(A)))
        second = await log.read(first.cursor, EventFilter(prefix=str(A)))
    assert (first.events, first.is_last) == ([], False)
    assert (names(second.events), second.is_last) == ([str(A)], True)


# files


async def test_a_cursor_is_valid_after_a_restart(tmp_path: Path) -> None:
    async with aclosing(make_log(tmp_path)) as log:
        (first,) = await log.append(put(A))
    async with aclosing(make_log(tmp_path)) as log:
        (second,) = await log.append(put(AB))
        assert (await log.read(first.cursor)).events == [second]
        await log.aclose()
        assert (await log.read(first.cursor)).events == [second]


async def test_two_processes_follow_each_other(tmp_path: Path) -> None:
    async with aclosing(make_log(tmp_path)) as one, aclosing(make_log(tmp_path)) as other:
        end = await one.find_end()
        async with aclosing(ResourceEvents(one).follow(end)) as following:
            waiting = asyncio.ensure_future(anext(following))
            await other.append(put(AB))
            assert (await waiting).resources == (AB,)


async def test_many_processes_open_a_new_file_at_once_and_lose_nothing(tmp_path: Path) -> None:
    logs = [make_log(tmp_path, 1000) for _ in range(4)]
    await asyncio.gather(
        *(log.append(event) for at, log in enumerate(logs) for event in make_events(25, f"of{at}x"))
    )
    page = await logs[0].read(limit=1000)
    for log in logs:
        await log.aclose()
    assert len({*names(page.events)}) == len(page.events) == 100


async def write_until_killed(path: str) -> None:
    """Append events, and print each cursor once it is stored."""
    log, number = SqliteEventLog(path), 0
    while True:
        events = make_events(3, f"{number}x")
        stored = await log.append(*events)
        print(stored[-1].cursor, flush=True)  # noqa: T201
        number += 1


async def test_a_process_that_is_killed_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    acknowledged: list[str] = []
    for lines in (1, 7, 23):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, str(path), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        for _ in range(lines):
            acknowledged.append((await process.stdout.readline()).decode().strip())
        process.kill()
        acknowledged += (await process.stdout.read()).decode().split()
        await process.wait()

    async with aclosing(SqliteEventLog(path)) as log:
        page = await log.read(limit=1_000_000)
        behind_first = await log.read(acknowledged[0], limit=1_000_000)

    cursors = [event.cursor for event in page.events]
    assert set(acknowledged) <= set(cursors)
    assert len(page.events) % 3 == 0  # what is appended together is there together
    assert [event.cursor for event in behind_first.events] == cursors[3:]


async def test_processes_write_side_by_side_while_one_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, str(path), stdout=asyncio.subprocess.PIPE
        )
        for _ in range(3)
    ]
    acknowledged: list[str] = []
    for count, process in zip((3, 30, 60), processes, strict=True):
        assert process.stdout is not None
        for _ in range(count):
            acknowledged.append((await process.stdout.readline()).decode().strip())
        process.kill()
        acknowledged += (await process.stdout.read()).decode().split()
        await process.wait()

    async with aclosing(SqliteEventLog(path)) as log:
        page = await log.read(limit=1_000_000)

    cursors = [event.cursor for event in page.events]
    assert len(acknowledged) == len({*acknowledged})
    assert {*acknowledged} <= {*cursors}
    assert len({event.id for event in page.events}) == len(cursors)


async def test_a_file_of_another_program_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.commit()
    connection.close()
    before = path.read_bytes()

    with pytest.raises(ConfigurationFailed, match="no log of events of this version"):
        await SqliteEventLog(path).append(put(A))

    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    path.write_text("These are my notes. " * 100)
    with pytest.raises(ConfigurationFailed, match="is no log of events") as error:
        await SqliteEventLog(path).read()
    assert str(path) not in error.value.public


async def test_a_put_succeeds_if_its_event_cannot_be_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = SqliteEventLog(tmp_path)  # a folder
    resources = ResourceIndex(MemoryStorage(), ResourceEvents(log))

    assert await resources.put(Resource(A, "text"))

    assert "Events of 1 resources are lost" in caplog.text
    with pytest.raises(StoreFailed):
        await resources.events.publish(put(A))


if __name__ == "__main__":
    asyncio.run(write_until_killed(sys.argv[1]))
