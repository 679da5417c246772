"""Events in GraphQL, by the rule of REST."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from graphql import build_schema, find_breaking_changes
from starlette.testclient import TestClient, WebSocketTestSession

from copilot_runtime import CopilotRuntime
from copilot_runtime.extensions.knowledge.events.hub import ResourceEvents
from copilot_runtime.transports.graphql.schema import sdl
from tests.extensions.events.http.test_rest import OF_ANN, OF_BOB, PUBLIC, make_runtime, put
from tests.in_one_test import in_one_test

PROTOCOL = "graphql-transport-ws"
FIELDS = "id source time detailType resources detail cursor"
PAGE = f"query($after: String!) {{ events(after: $after) {{ events {{ {FIELDS} }} cursor last }} }}"
PUBLISH = "mutation($event: PublishEventInput!) { publishEvent(event: $event) { success id } }"


@contextmanager
def serve(**more: Any) -> Generator[tuple[TestClient, CopilotRuntime]]:
    runtime = make_runtime(**more)
    with TestClient(runtime.app()) as client:
        yield client, runtime


def ask(client: TestClient, query: str, user: str = "", /, **variables: Any) -> Any:
    headers = {"x-user": user} if user else {}
    body = {"query": query, "variables": variables}
    return client.post("/graphql", json=body, headers=headers).json()


@contextmanager
def subscribe(
    client: TestClient, arguments: str = "", user: str = ""
) -> Generator[WebSocketTestSession]:
    headers = {"x-user": user} if user else {}
    with client.websocket_connect("/graphql", subprotocols=[PROTOCOL], headers=headers) as socket:
        socket.send_json({"type": "connection_init"})
        assert socket.receive_json()["type"] == "connection_ack"
        query = f"subscription {{ events{arguments} {{ {FIELDS} }} }}"
        socket.send_json({"id": "1", "type": "subscribe", "payload": {"query": query}})
        yield socket


def receive(socket: WebSocketTestSession) -> Any:
    return socket.receive_json()["payload"]["data"]["events"]


def publish(client: TestClient, runtime: CopilotRuntime, *events: Any) -> None:
    assert client.portal and runtime.get(ResourceEvents)
    client.portal.call(runtime.get(ResourceEvents).publish, *events)


def test_a_page_goes_on_behind_a_cursor() -> None:
    with serve() as (client, runtime):
        publish(client, runtime, put(PUBLIC, sum=1), put(OF_BOB), put(PUBLIC, sum=2))
        first = ask(client, PAGE, after="0")["data"]["events"]
        second = ask(client, PAGE, after=first["events"][0]["cursor"])["data"]["events"]
    assert [event["detail"] for event in first["events"]] == [{"sum": 1}, {"sum": 2}]
    assert second == {**first, "events": first["events"][1:]}
    assert first["events"][0]["detailType"] == "ORDER_PLACED"


def test_a_subscription_replays_and_then_follows() -> None:
    arguments = '(after: "0", sources: ["shop"], detailTypes: ["ORDER_PLACED"])'
    with serve() as (client, runtime):
        publish(client, runtime, put(PUBLIC, sum=1), put(PUBLIC, source="other"), put(OF_BOB))
        with subscribe(client, arguments, "ann") as socket:
            first = receive(socket)
            publish(client, runtime, put(OF_BOB), put(OF_ANN, sum=2))
            second = receive(socket)
        with subscribe(client, f'(after: "{first["cursor"]}")', "ann") as socket:
            again = [receive(socket), receive(socket)]

    assert [it["detail"] for it in (first, second)] == [{"sum": 1}, {"sum": 2}]
    assert [it["source"] for it in again] == ["other", "shop"]


def test_a_subscription_to_a_prefix_gets_nothing_of_a_longer_name() -> None:
    with serve() as (client, runtime):
        publish(client, runtime, put(OF_ANN), put(PUBLIC))
        with subscribe(client, '(after: "0", prefix: "cld:common.User.ann")', "ann") as socket:
            assert receive(socket)["resources"] == [str(OF_ANN)]


@in_one_test(
    ("arguments", "message"),
    [
        ('(after: "x")', "'x' is no cursor."),
        ('(prefix: "common")', "'common' names no resource."),
        ('(after: "00000000-1")', "The cursor '00000000-1' is not of this log of events."),
    ],
)
def test_what_cannot_be_followed_is_an_error(arguments: str, message: str) -> None:
    with serve() as (client, _), subscribe(client, arguments) as socket:
        answer = socket.receive_json()
    assert answer["type"] in ("error", "next")
    assert message in str(answer["payload"])


def test_a_client_publishes_what_it_may_write() -> None:
    event = {"detailType": "ORDER_PLACED", "resources": [str(OF_ANN)], "detail": {"sum": 3}}
    with serve() as (client, _):
        done = ask(client, PUBLISH, "ann", event=event)["data"]["publishEvent"]
        denied = ask(client, PUBLISH, "bob", event=event)
        (found,) = ask(client, PAGE, "ann", after="0")["data"]["events"]["events"]
        reserved = ask(client, PUBLISH, "ann", event={**event, "source": "runs"})
    assert done == {"success": True, "id": found["id"]}
    assert found["source"] == "client"
    assert denied["errors"][0]["message"] == "Access denied"
    assert "are the server's own" in reserved["errors"][0]["message"]


def test_a_request_asks_for_few_fields() -> None:
    fields = " ".join(f"a{number}: events {{ cursor }}" for number in range(11))
    with serve() as (client, _):
        answer = ask(client, f"{{ {fields} }}")
    assert "10 fields of events" in str(answer["errors"])


def test_a_runtime_without_events_has_no_such_fields() -> None:
    with serve(store="none") as (client, _):
        assert "Cannot query field 'events'" in str(ask(client, "{ events { cursor } }"))


def test_events_only_add_to_the_schema() -> None:
    for parts in ({}, {"knowledge": True}, {"plans": True, "traces": True}):
        before, after = build_schema(sdl(**parts)), build_schema(sdl(**parts, events=True))
        assert find_breaking_changes(before, after) == []
