"""Traces in GraphQL, by the rule of REST."""

from typing import Any

import pytest
from graphql import build_schema, find_breaking_changes
from starlette.testclient import TestClient

from copilot_runtime.extensions.tracing.http import live
from copilot_runtime.telemetry.telemetry import LocalTelemetry
from copilot_runtime.transports.graphql.schema import sdl
from tests.extensions.tracing.http.spans import agent, serve, sign_in, store_of, trip
from tests.in_one_test import in_one_test

A, B = "a" * 32, "b" * 32
PROTOCOL = "graphql-transport-ws"
LIST = """
query($filter: TraceFilterInput, $query: String = "", $limit: Int = 50, $before: String = "") {
  traces(filter: $filter, query: $query, limit: $limit, before: $before) {
    next
    traces { traceId agent spanCount errors inputTokens dollars startTimeUnixNano }
  }
}
"""
OPERATORS = {"telemetry": {"operators": ["ann"]}}


def two() -> Any:
    return store_of(
        trip(A, USER_NAME="ann"), [agent("poet", id="9", trace=B, start=3600, CONVERSATION_ID="t2")]
    )


def ask(client: TestClient, query: str, user: str = "", /, **variables: Any) -> Any:
    headers = {"x-user": user} if user else {}
    body = {"query": query, "variables": variables}
    return client.post("/graphql", json=body, headers=headers).json()


def find(client: TestClient, **variables: Any) -> tuple[list[str], str | None]:
    page = ask(client, LIST, **variables)["data"]["traces"]
    return [it["traceId"] for it in page["traces"]], page["next"]


def test_traces_are_listed_found_and_queried() -> None:
    with serve(two()) as client:
        (_, first) = ask(client, LIST)["data"]["traces"]["traces"]
        assert first == {
            "traceId": A,
            "agent": "planner",
            "spanCount": 5,
            "errors": 1,
            "inputTokens": 2500.0,
            "dollars": 0.005,
            "startTimeUnixNano": "1767268800000000000",
        }
        assert find(client, limit=1) == ([B], B)
        assert find(client, limit=1, before=B) == ([A], None)
        assert find(client, filter={"hasError": True, "minDuration": 2.5}) == ([A], None)
        assert find(client, filter={"user": "ann"}) == ([A], None)
        assert find(client, query="length(@) > `1`") == ([A], None)


def test_a_trace_has_its_spans_and_pictures() -> None:
    query = f'{{ trace(id: "{A}") {{ spans mermaid waterfall(width: 60) summary {{ name }} }} }}'
    with serve(two()) as client:
        trace = ask(client, query)["data"]["trace"]
        assert ask(client, '{ trace(id: "none") { mermaid } }') == {"data": {"trace": None}}
    assert [span["span_id"] for span in trace["spans"]] == ["1", "2", "3", "4", "5"]
    assert trace["mermaid"].startswith("sequenceDiagram")
    assert "execute_tool book" in trace["waterfall"]


def test_statistics_are_those_of_rest() -> None:
    query = (
        "{ traceStats(filter: {}) { traces failed models { name count p50 } tools { errors } } }"
    )
    with serve(two()) as client:
        stats = ask(client, query)["data"]["traceStats"]
    assert stats["models"] == [{"name": "gpt-4o", "count": 2, "p50": 1.0}]
    assert (stats["traces"], stats["failed"], stats["tools"]) == (
        2,
        1,
        [{"errors": 1}, {"errors": 0}],
    )


@in_one_test("user", ["", "bob"])
def test_others_learn_nothing(user: str) -> None:
    queries = [LIST, f'{{ trace(id: "{A}") {{ mermaid }} }}', "{ traceStats { traces } }"]
    with serve(two(), authenticate=sign_in, settings=OPERATORS) as client:
        for query in queries:
            answer = ask(client, query, user)
            assert [it["message"] for it in answer["errors"]] == [
                "Traces are for operators of this server."
            ]
            assert A not in str(answer)
        assert "errors" not in ask(client, LIST, "ann")


def test_what_is_wrong_is_explained() -> None:
    with serve(two()) as client:
        for variables, said in (
            ({"limit": 0}, "limit is 0; it is a number from 1 to 1000."),
            ({"filter": {"since": "once"}}, "since is 'once'"),
        ):
            assert said in ask(client, LIST, **variables)["errors"][0]["message"]


def test_a_runtime_whose_traces_nobody_may_read_has_no_such_fields() -> None:
    with serve(two(), authenticate=sign_in) as client:
        assert "Cannot query field 'traces'" in str(ask(client, "{ traces { next } }"))


def test_traces_only_add_to_the_schema() -> None:
    for knowledge in (False, True):
        before, after = (
            build_schema(sdl(knowledge=knowledge, traces=traces)) for traces in (False, True)
        )
        assert find_breaking_changes(before, after) == []


def subscribe(client: TestClient, query: str, headers: dict[str, str] | None = None) -> Any:
    socket = client.websocket_connect(
        "ws://127.0.0.1:8000/graphql", [PROTOCOL], headers=headers or {}
    )
    socket.__enter__()
    socket.send_json({"type": "connection_init"})
    assert socket.receive_json()["type"] == "connection_ack"
    socket.send_json({"type": "subscribe", "id": "1", "payload": {"query": query}})
    return socket


def test_a_subscription_tells_spans_as_they_begin_and_end() -> None:
    telemetry = LocalTelemetry(two())
    with serve(telemetry=telemetry, base_url="http://127.0.0.1:8000") as client:
        socket = subscribe(client, "subscription { spans { phase span } }")
        while not telemetry._listeners:  # pyright: ignore[reportPrivateUsage]  # it has begun
            pass
        telemetry.start_span("chat").end()
        spans = [socket.receive_json()["payload"]["data"]["spans"] for _ in range(2)]
        socket.__exit__(None, None, None)
    assert [(it["phase"], it["span"]["name"]) for it in spans] == [
        ("start", "chat"),
        ("end", "chat"),
    ]


def test_a_subscription_of_others_is_refused() -> None:
    with serve(two(), authenticate=sign_in, settings=OPERATORS) as client:
        socket = subscribe(client, "subscription { spans { phase } }", {"x-user": "bob"})
        answer = socket.receive_json()
        socket.__exit__(None, None, None)
    assert "Traces are for operators" in str(answer)


def test_a_subscription_that_does_not_keep_up_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_WAITING", 1)
    telemetry = LocalTelemetry(two())
    with serve(telemetry=telemetry) as client:
        socket = subscribe(client, "subscription { spans { phase } }")
        while not telemetry._listeners:  # pyright: ignore[reportPrivateUsage]  # it has begun
            pass
        for _ in range(50):
            telemetry.start_span("many").end()
        while "did not keep up" not in (answer := str(socket.receive_json())):
            assert "start" in answer or "end" in answer
        socket.__exit__(None, None, None)


def test_a_request_asks_for_a_few_fields_of_traces_at_most() -> None:
    many = " ".join(f"t{number}: traces {{ next }}" for number in range(6))
    with serve(two()) as client:
        answer = ask(client, f"{{ {many} }}")
        assert [error["message"] for error in answer["errors"]] == [
            "A request may ask for 5 fields of traces."
        ]
        assert ask(client, f"{{ {many.partition(' t5')[0]} }}").get("errors") is None
