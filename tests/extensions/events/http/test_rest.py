"""Events over HTTP: pages, streams that go on where they were, and what clients publish."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import HTTPConnection
from starlette.types import Message

from copilot_runtime import ChatRequest, CopilotRuntime, DemoAdapter, Events, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.api import RunInput
from copilot_runtime.api.events import RunFailed, RunFinished
from copilot_runtime.base.errors import ErrorReport, StoreFailed
from copilot_runtime.extensions.events.http.access import PublishQuota, TooManyEvents
from copilot_runtime.extensions.events.publisher import EventPublisher, RunEvents, build_run_event
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.events import (
    MemoryEventLog,
    ResourceEvent,
    ResourceEvents,
)
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.resources import Resource
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

PUBLIC = Identifier("common.Note", "public")
OF_ANN = Identifier("common.Note", "secret", "common.User.ann")
OF_BOB = Identifier("common.Note", "secret", "common.User.bob")
RUN: dict[str, Any] = {
    "threadId": "t1",
    "runId": "r1",
    "state": {},
    "tools": [],
    "context": [],
    "messages": [{"id": "1", "role": "user", "content": "Hi"}],
    "forwardedProps": {},
}


def read_user(connection: HTTPConnection) -> str | None:
    return connection.headers.get("x-user")


def make_runtime(store: str = "memory", *, has_users: bool = True, **more: Any) -> CopilotRuntime:
    return CopilotRuntime(
        DemoAdapter(pace=0),
        authenticate=read_user if has_users else None,
        settings=Settings(threads="memory", events={"store": store, **more}),  # type: ignore[arg-type]
    )


class Client(httpx.AsyncClient):
    """A client of one runtime, at its URL."""

    def __init__(self, runtime: CopilotRuntime, user: str = "") -> None:
        headers = {"x-user": user} if user else {}
        transport = httpx.ASGITransport(runtime.app())
        super().__init__(transport=transport, base_url="http://127.0.0.1/graphql", headers=headers)

    async def read(self, **query: Any) -> Any:
        answer = await self.get("/events", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()


def put(*resources: Identifier, source: str = "shop", **detail: Any) -> ResourceEvent:
    return ResourceEvent(
        detail_type="ORDER_PLACED", resources=resources, source=source, detail=detail
    )


def list_resources(page: Mapping[str, Any]) -> list[list[str]]:
    return [event["resources"] for event in page["events"]]


async def test_a_page_has_events_and_where_to_go_on() -> None:
    runtime = make_runtime()
    await runtime.get(ResourceEvents).publish(put(PUBLIC, sum=12.5), put(PUBLIC))
    async with Client(runtime) as client:
        first = await client.read(limit=1)
        second = await client.read(after=first["cursor"])

    (event,) = first["events"]
    assert event == {
        "id": event["id"],
        "time": event["time"],
        "source": "shop",
        "detail_type": "ORDER_PLACED",
        "resources": ["common.Note.public"],
        "detail": {"sum": 12.5},
        "cursor": first["cursor"],
    }
    assert (first["last"], second["last"]) == (False, True)
    assert len(second["events"]) == 1


async def test_people_get_events_of_what_they_may_read() -> None:
    runtime = make_runtime()
    await runtime.get(ResourceEvents).publish(
        put(OF_ANN, total=1), put(OF_ANN, OF_BOB, total=2), put(OF_BOB)
    )
    await runtime.get(ResourceEvents).publish(ResourceEvent(detail_type="STARTED", resources=()))

    async with Client(runtime, "ann") as ann, Client(runtime) as nobody:
        page = await ann.read()
        of_nobody = await nobody.read()

    assert list_resources(page) == [[str(OF_ANN)], [str(OF_ANN)]]
    assert [event.get("detail") for event in page["events"]] == [{"total": 1}, None]
    assert of_nobody["events"] == []
    assert of_nobody["last"]


@in_one_test(
    ("query", "count"),
    [
        ("source=shop", 2),
        ("source=shop,other", 3),
        ("source=shop&source=other", 3),
        ("type=ORDER_PLACED", 3),
        ("type=RESOURCE_PUT", 0),
        ("prefix=common.Note.public", 2),
        ("prefix=cld:common.Note.public", 2),
        ("prefix=common.Note.publi", 0),
    ],
)
async def test_events_are_chosen_by_source_type_and_prefix(query: str, count: int) -> None:
    runtime = make_runtime()
    other = Identifier("common.Note", "public2")
    await runtime.get(ResourceEvents).publish(put(PUBLIC), put(other), put(PUBLIC, source="other"))
    async with Client(runtime) as client:
        page = (await client.get(f"/events?{query}")).json()
    assert len(page["events"]) == count


@in_one_test(
    ("query", "status", "part"),
    [
        ("after=nonsense", 400, "is no cursor"),
        ("limit=many", 400, "limit is a number"),
        ("limit=0", 400, "limit is a number"),
        ("limit=501", 400, "limit is a number from 1 to 500"),
        ("prefix=common.Note", 400, "names no resource"),
        (f"prefix={'x' * 3000}", 400, "at most 2000 characters"),
        (f"source={','.join('x' * 60)}", 400, "at most 50 sources"),
        ("after=00000000-7", 410, "not of this log"),
    ],
)
async def test_what_cannot_be_meant_is_refused(query: str, status: int, part: str) -> None:
    async with Client(make_runtime()) as client:
        answer = await client.get(f"/events?{query}")
    assert answer.status_code == status
    assert part in answer.json()["message"]


async def test_a_cursor_that_is_too_old_says_from_where_to_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runtime = make_runtime(max_events=2)
    await runtime.get(ResourceEvents).publish(put(PUBLIC))
    async with Client(runtime) as client:
        cursor = (await client.read())["cursor"]
        await runtime.get(ResourceEvents).publish(*(put(PUBLIC) for _ in range(3)))
        gone = await client.get("/events", params={"after": cursor})
        page = await client.read(after=gone.json()["oldest"])

    assert (gone.status_code, gone.json()["errors"][0]["extensions"]["code"]) == (
        410,
        "CURSOR_GONE",
    )
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(page["events"]) == 2


async def publish(client: Client, resource: Identifier, **detail: Any) -> httpx.Response:
    return await client.post(
        "/events",
        json={"detail_type": "NOTED", "resources": [str(resource)], "detail": detail},
    )


async def test_a_busy_publisher_is_limited_and_displaces_no_events_of_others() -> None:
    runtime = make_runtime(max_events=300)
    await runtime.get(ResourceEvents).publish(put(OF_ANN, total=1))
    async with Client(runtime, "ann") as ann, Client(runtime, "bob") as bob:
        cursor = (await ann.read())["cursor"]
        answers = [await publish(bob, OF_BOB) for _ in range(400)]
        of_ann = await publish(ann, OF_ANN)
        page = await ann.read(after=cursor, limit=500)
        everything = await ann.read()

    assert [answer.status_code for answer in answers] == [201] * 100 + [429] * 300
    error = answers[-1].json()["errors"][0]
    assert error["extensions"]["code"] == "LIMIT_EXCEEDED"
    assert re.search(r"too many events.*Publish again in \d+ seconds", answers[-1].text)
    assert of_ann.status_code == 201
    assert len(page["events"]) == 1
    assert everything["events"][0]["detail"] == {"total": 1}


async def test_many_users_together_do_not_fill_the_log() -> None:
    runtime = make_runtime(max_events=300)
    statuses: list[int] = []
    for number in range(4):
        async with Client(runtime, f"user{number}") as client:
            of_user = Identifier("common.Note", "n", f"common.User.user{number}")
            statuses += [(await publish(client, of_user)).status_code for _ in range(60)]
    assert statuses == [201] * 150 + [429] * 90


async def test_large_events_are_counted_by_their_bytes() -> None:
    runtime = make_runtime(max_bytes=1)
    async with Client(runtime, "ann") as client:
        answers = [await publish(client, OF_ANN, text="x" * 60_000) for _ in range(20)]
    assert [answer.status_code for answer in answers] == [201] * 17 + [429] * 3


async def test_a_share_grows_again() -> None:
    now = 0.0
    quota = PublishQuota(2000, 10**9, lambda: now)
    event = put(OF_ANN)
    for _ in range(200):
        quota.spend("ann", event)
    with pytest.raises(TooManyEvents, match="too many events") as caught:
        quota.spend("ann", event)
    assert "in 18 seconds" in str(caught.value.hint)
    now = 18.0
    quota.spend("ann", event)
    with pytest.raises(TooManyEvents):
        quota.spend("ann", event)
    now = 4000.0
    quota.spend("bob", event)
    for _ in range(200):
        quota.spend("ann", event)


async def test_a_cursor_is_valid_on_the_next_server(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path}/events.db"
    first = make_runtime(store)
    async with Client(first) as client:
        cursor = (await client.read())["cursor"]
        await first.get(ResourceEvents).publish(put(PUBLIC, number=1))
    await first.aclose()

    second = make_runtime(store)
    async with Client(second) as client:
        page = await client.read(after=cursor)
    await second.aclose()
    assert [event["detail"] for event in page["events"]] == [{"number": 1}]


async def test_run_events_go_to_the_owner_of_the_conversation() -> None:
    runtime = make_runtime()
    async with Client(runtime, "ann") as ann, Client(runtime, "bob") as bob:
        await ann.post("/agent/default/run", json=RUN)
        page = await ann.read(source="runs")
        of_bob = await bob.read()
    await runtime.aclose()

    conversation = "common.User.ann/common.Conversation.t1"
    detail = {"thread_id": "t1", "run_id": "r1", "agent": "default"}
    assert [(it["detail_type"], it["resources"], it["detail"]) for it in page["events"]] == [
        ("RUN_STARTED", [conversation], detail),
        ("RUN_FINISHED", [conversation], detail),
    ]
    assert of_bob["events"] == []


async def test_the_event_of_a_failed_run_has_its_error_code() -> None:
    class Failing(DemoAdapter):
        async def stream(self, request: ChatRequest) -> Events:
            for event in say("One moment", id=request.message_id):
                yield event
            raise StoreFailed("no disk")

    runtime = CopilotRuntime(
        Failing(),
        settings=Settings(threads="memory", events={"store": "memory"}),  # type: ignore[arg-type]
    )
    async with Client(runtime) as client:
        await client.post("/agent/default/run", json=RUN)
        found: list[Any] = []
        while not found:  # it is published after the answer has ended
            await asyncio.sleep(0)
            page = await client.read(prefix="common.Conversation.t1", type="RUN_FAILED")
            found = page["events"]
    await runtime.aclose()

    assert [event["detail"]["code"] for event in found] == ["STORE_FAILED"]


@in_one_test(("code", "type"), [("CANCELLED", "RUN_STOPPED"), ("RUN_INTERRUPTED", "RUN_FAILED")])
def test_a_stopped_run_has_not_failed(code: str, type: str) -> None:
    run = RunInput(thread_id="t1", run_id="r1", messages=[], user="ann")
    event = build_run_event(run, RunFailed(error=ErrorReport(code=code, message="It ended.")))
    assert event is not None
    assert event.detail_type == type
    assert event.detail.get("code") == (code if type == "RUN_FAILED" else None)


async def test_a_run_without_a_conversation_has_no_public_event() -> None:
    events = ResourceEvents(MemoryEventLog())
    publisher = EventPublisher(events)
    RunEvents(publisher).publish(RunInput(thread_id="", run_id="r1", messages=[]), RunFinished())
    await publisher.aclose()
    assert (await events.read()).events == []


async def test_a_conversation_without_an_owner_is_visible_to_callers_who_know_its_name() -> None:
    runtime = make_runtime(has_users=False)
    async with Client(runtime) as client:
        await client.post("/agent/default/run", json=RUN)
        by_name = await client.read(prefix="common.Conversation.t1")
        while len(by_name["events"]) < 2:
            await asyncio.sleep(0)  # events are published in the background
            by_name = await client.read(prefix="common.Conversation.t1")
        in_all = await client.read()
        of_another = await client.read(prefix="common.Conversation.t")
    await runtime.aclose()

    assert [len(page["events"]) for page in (by_name, in_all, of_another)] == [2, 0, 0]


async def test_knowledge_brings_events_along_by_itself() -> None:
    knowledge = Knowledge("memory")
    runtime = CopilotRuntime(knowledge=knowledge, settings=Settings(threads="memory"))
    await knowledge.resources.put(Resource(PUBLIC, "text"))
    await knowledge.resources.delete(PUBLIC)
    async with Client(runtime) as client:
        page = await client.read()
    await runtime.aclose()

    assert runtime.get(ResourceEvents) is knowledge.events
    assert isinstance(knowledge.events.log, MemoryEventLog)
    assert [(it["source"], it["detail_type"]) for it in page["events"]] == [
        ("resources", "RESOURCE_PUT"),
        ("resources", "RESOURCE_DELETE"),
    ]


@in_one_test("store", ["", "none"])
async def test_without_a_log_there_is_nothing_to_read(store: str) -> None:
    runtime = make_runtime(store)
    async with Client(runtime) as client:
        answer = await client.get("/events")
    assert answer.status_code == 404
    assert runtime.find(ResourceEvents) is None


# what clients publish


async def test_a_client_tells_of_what_it_may_write() -> None:
    runtime = make_runtime()
    body = {"detail_type": "ORDER_PLACED", "resources": [str(OF_ANN)], "detail": {"sum": 3}}
    async with Client(runtime, "ann") as ann, Client(runtime, "bob") as bob:
        answer = await ann.post("/events", json=body)
        refusal = await bob.post("/events", json=body)
        page = await ann.read()

    (event,) = page["events"]
    assert (answer.status_code, answer.json()) == (201, {"success": True, "id": event["id"]})
    assert (event["source"], event["detail"]) == ("client", {"sum": 3})
    assert (refusal.status_code, refusal.json()["message"]) == (403, "Access denied")


@in_one_test(
    ("body", "part"),
    [
        ("[", "no JSON."),
        ("[]", "no JSON object"),
        ({"resources": ["common.Note.a"]}, "detail_type is a text"),
        ({"detail_type": 1, "resources": ["common.Note.a"]}, "detail_type is a text"),
        ({"detail_type": "X", "resources": "common.Note.a"}, "resources is a list"),
        ({"detail_type": "X", "resources": [1]}, "resources is a list"),
        *(
            ({"detail_type": "X", "resources": ["common.Note.a"], "source": source}, part)
            for source, part in (
                ("plans", "the server's own"),
                ("Plans", "the server's own"),
                (" plans", "without spaces"),
                ("pl\u0430ns", "in ASCII"),
            )
        ),
        ({"detail_type": "X", "resources": []}, "about 1 to 100 resources"),
        ({"detail_type": "X", "resources": ["a"]}, "names no resource"),
        ({"detail_type": "X", "resources": ["common.User.ann/a.B.c"], "detail": []}, "an object"),
        (
            {"detail_type": "X", "resources": ["common.User.ann/a.B.c"], "source": "plans"},
            "are the server's own",
        ),
        (
            {"detail_type": "", "resources": ["common.User.ann/a.B.c"]},
            "of an event has 1 to 200 printable characters, and this is ''.",
        ),
    ],
)
async def test_what_is_no_event_is_refused(body: Any, part: str) -> None:
    async with Client(make_runtime(), "ann") as ann:
        content = body if isinstance(body, str) else json.dumps(body)
        answer = await ann.post(
            "/events", content=content, headers={"content-type": "application/json"}
        )
        page = await ann.read()
    assert answer.status_code == 400
    assert part in answer.json()["message"]
    assert page["events"] == []


async def test_other_methods_are_not_allowed() -> None:
    async with Client(make_runtime()) as client:
        answer = await client.delete("/events")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")


# streams


class Watcher:
    """Reads a stream of server-sent events, one frame at a time."""

    def __init__(self) -> None:
        self.status = 0
        self.is_gone = asyncio.Event()
        self._bodies = asyncio.Queue[bytes]()

    async def receive(self) -> Message:
        await self.is_gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self._bodies.put_nowait(message["body"])

    async def next(self) -> dict[str, str]:
        """Return the fields of the next frame."""
        body = (await self._bodies.get()).decode()
        return dict(line.split(": ", 1) for line in body.strip().split("\n") if line)


@asynccontextmanager
async def watch(
    runtime: CopilotRuntime, query: str = "", user: str = "", last_id: str = ""
) -> AsyncGenerator[Watcher, None]:
    headers = [(b"host", b"127.0.0.1"), (b"accept", b"text/event-stream")]
    headers += [(b"x-user", user.encode())] if user else []
    headers += [(b"last-event-id", last_id.encode())] if last_id else []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/graphql/events",
        "raw_path": b"/graphql/events",
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 80),
    }
    watcher = Watcher()
    answering = asyncio.create_task(runtime.app()(scope, watcher.receive, watcher.send))
    try:
        yield watcher
    finally:
        watcher.is_gone.set()
        await answering


async def test_a_stream_begins_now_and_tells_where_it_is() -> None:
    runtime = make_runtime()
    await runtime.get(ResourceEvents).publish(put(PUBLIC, number=1))
    end = await runtime.get(ResourceEvents).find_end()
    async with watch(runtime) as watcher:
        assert await watcher.next() == {"id": end}
        await runtime.get(ResourceEvents).publish(put(PUBLIC, number=2))
        frame = await watcher.next()

    assert json.loads(frame["data"])["detail"] == {"number": 2}
    assert frame["id"] == await runtime.get(ResourceEvents).find_end()


async def test_a_stream_goes_on_where_its_reader_was() -> None:
    runtime = make_runtime()
    await runtime.get(ResourceEvents).publish(*(put(PUBLIC, number=number) for number in range(3)))
    async with watch(runtime, "after=0") as watcher:
        first = await watcher.next()
    async with watch(runtime, "after=0", last_id=first["id"]) as watcher:
        second = await watcher.next()

    found = [json.loads(frame["data"])["detail"]["number"] for frame in (first, second)]
    assert found == [0, 1]


async def test_a_stream_tells_its_place_also_where_nothing_is_for_its_reader() -> None:
    runtime = make_runtime()
    async with watch(runtime, user="ann") as watcher:
        await watcher.next()
        await runtime.get(ResourceEvents).publish(put(OF_BOB))
        frame = await watcher.next()
        await runtime.get(ResourceEvents).publish(put(OF_ANN), put(OF_BOB))
        event, place = await watcher.next(), await watcher.next()

    end = await runtime.get(ResourceEvents).find_end()
    assert [*frame] == ["id"]
    assert json.loads(event["data"])["resources"] == [str(OF_ANN)]
    assert place == {"id": end}


async def test_a_stream_from_a_cursor_that_is_gone_never_begins() -> None:
    async with watch(make_runtime(), last_id="00000000-1") as watcher:
        await watcher.next()
        assert watcher.status == 410


async def test_a_reader_that_does_not_keep_up_learns_where_to_go_on() -> None:
    runtime = make_runtime(max_events=2)
    await runtime.get(ResourceEvents).publish(put(PUBLIC))
    async with watch(runtime) as watcher:
        await watcher.next()
        await runtime.get(ResourceEvents).publish(*(put(PUBLIC) for _ in range(9)))
        frame = await watcher.next()

    assert frame["event"] == "error"
    assert json.loads(frame["data"])["oldest"]


async def test_streams_end_with_the_server() -> None:
    runtime = make_runtime()
    async with watch(runtime) as watcher:
        await watcher.next()
        runtime.runtime.close_admission()
        assert await watcher.next() == {}
