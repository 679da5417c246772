"""Traces over HTTP, as an operator reads them."""

import json
from pathlib import Path
from threading import current_thread
from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime.cli.clock import get_time
from copilot_runtime.extensions.scenarios.files import load_scenarios
from copilot_runtime.extensions.tracing.http.rest import (
    FeedbackResult,
    ImportResult,
    QueryResult,
    ShownTrace,
    TraceDeletion,
    TracePage,
    TraceStatsModel,
)
from copilot_runtime.extensions.tracing.mermaid import draw_sequence
from copilot_runtime.extensions.tracing.store import MemoryTraceStore, decode_span
from copilot_runtime.extensions.tracing.store.sqlite import SqliteTraceStore
from copilot_runtime.telemetry import NO_TELEMETRY, Span, semconv
from copilot_runtime.telemetry.telemetry import Attributes, LocalTelemetry
from tests.extensions.tracing.http.spans import (
    SECOND,
    agent,
    chat,
    serve,
    span,
    store_of,
    tool,
    trip,
)
from tests.in_one_test import in_one_test

A, B = "a" * 32, "b" * 32


def two() -> Any:
    """Return a store with two traces, of which the second began an hour later."""
    return store_of(
        trip(A, USER_NAME="ann"), [agent("poet", id="9", trace=B, start=3600, CONVERSATION_ID="t2")]
    )


def read(client: TestClient, path: str) -> Any:
    answer = client.get(f"/graphql/traces{path}")
    assert answer.status_code == 200, answer.text
    assert "no-store" in answer.headers["cache-control"]
    return answer.json()


def find(client: TestClient, query: str) -> list[str]:
    return [it["trace_id"] for it in read(client, f"?{query}")["traces"]]


def problem(client: TestClient, method: str, path: str, body: Any = None) -> tuple[int, str]:
    answer = client.request(method, f"/graphql/traces{path}", json=body)
    return answer.status_code, answer.json().get("message") or answer.json()["error"]


def test_what_a_chat_did_is_a_trace_that_can_be_found_by_its_run() -> None:
    body = {
        "threadId": "thread-7",
        "runId": "run-7",
        "messages": [{"id": "m", "role": "user", "content": "Hello, canary!"}],
        "tools": [],
        "context": [],
    }
    with serve(MemoryTraceStore()) as client:
        client.post("/graphql/agent/default/run", json=body)
        (found,) = read(client, "?run_id=run-7")["traces"]
        trace = client.get(f"/graphql/traces/{found['trace_id']}")
    assert (found["thread_id"], found["outcome"], found["model_calls"]) == (
        "thread-7",
        "finished",
        1,
    )
    assert [it["name"].split()[0] for it in trace.json()["spans"]] == ["invoke_agent", "chat"]
    assert "canary" not in trace.text  # no content is kept


def test_whoever_asks_for_no_kind_of_answer_gets_the_page() -> None:
    with serve(two()) as client:
        page = client.get("/traces", headers={"accept": "*/*"})  # as curl does
    assert (page.status_code, "<h1>Traces</h1>" in page.text) == (200, True)


def test_traces_are_listed_in_pages_the_newest_first() -> None:
    with serve(two()) as client:
        page = read(client, "?limit=1")
        TracePage.model_validate(page)
        assert [it["trace_id"] for it in page["traces"]] == [B]
        assert page["next"] == B
        rest = read(client, f"?limit=1&before={B}")
        assert [it["trace_id"] for it in rest["traces"]] == [A]
        assert rest["next"] is None


@in_one_test(
    ("query", "traces"),
    [
        ("thread_id=thread-1", [A]),
        ("resource_id=thread-1", [A]),
        ("run_id=run-1", [A]),
        ("agent=poet", [B]),
        ("user=ann", [A]),
        ("user=nobody", []),
        ("model=gpt-4o", [A]),
        ("model=gpt-4", []),
        ("has_error=true", [A]),
        ("has_error=false", [B]),
        ("min_duration=2.5", [A]),
        ("min_duration=2500ms", [A]),
        ("text=FLIGHTS", [A]),
        ("since=2026-01-01T12:30:00", [B]),
        ("until=2026-01-01T12:30:00Z", [A]),
        (f"since={1_767_268_800 + 1800}", [B]),
        ("since=5m", []),
        (f"trace_id={A}", [A]),
        (f"text={A[:8]}", [A]),
        ("rating=down", []),
        ("agent=nobody", []),
    ],
)
def test_traces_are_found_by_what_is_known_of_them(query: str, traces: list[str]) -> None:
    with serve(two()) as client:
        assert find(client, query) == traces


def test_a_run_is_a_scenario_of_its_conversation_and_its_calls(tmp_path: Path) -> None:
    telemetry = LocalTelemetry(MemoryTraceStore(), keeps_content=True)
    says = ['Hello: "you"\n- 1 😀', "What time is it in Paris?"]
    messages = [
        {"id": "1", "role": "user", "content": says[0]},
        {"id": "2", "role": "assistant", "content": "Hello!"},
        {"id": "3", "role": "user", "content": says[1]},
    ]
    body = {"threadId": "t", "runId": "r", "messages": messages, "tools": [], "context": []}
    with serve(telemetry=telemetry, actions=[get_time]) as client:
        client.post("/graphql/agent/default/run", json=body)
        (found,) = find(client, "run_id=r")
        answer = client.get(f"/graphql/traces/{found}?format=scenario")
    (tmp_path / "chat.test.yml").write_text(answer.text)
    (place,) = load_scenarios([tmp_path])

    scenario = place.scenario
    calls = [(it.name, it.arguments) for it in scenario.expect.calls or ()]
    assert [turn.say for turn in scenario.conversation] == says
    assert calls == [("get_time", {"city": "Paris"})]
    assert "It answered: " in scenario.description


def test_a_scenario_has_the_answer_without_thoughts_and_names_the_settings_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    telemetry = LocalTelemetry(MemoryTraceStore(), keeps_content=True)
    messages = [{"id": "1", "role": "user", "content": "Think about the sea"}]
    body = {"threadId": "t", "runId": "r", "messages": messages, "tools": [], "context": []}
    with serve(telemetry=telemetry) as client:
        client.post("/graphql/agent/default/run", json=body)
        monkeypatch.setenv("COPILOT_CONFIG", "examples/the demo.yml")
        answer = client.get(f"/graphql/traces/{find(client, 'run_id=r')[0]}?format=scenario")

    line = answer.text.splitlines()[0]
    assert "description: 'It answered: I have thought about it." in answer.text
    assert line.endswith("copilot-runtime test FILE --config 'examples/the demo.yml'")


def sign_in(connection: Any) -> str:
    return "ann"


def test_a_scenario_names_the_user_and_the_sources_that_the_answer_cited(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    for name, text in (("rooms", "The reading room has 40 seats."), ("boats", "Boats float.")):
        (tmp_path / "pages" / f"{name}.md").write_text(f"# The {name}\n\n{text}\n")
    telemetry = LocalTelemetry(MemoryTraceStore(), keeps_content=True)
    knowledge = {"sources": [str(tmp_path / "pages")], "storage": "memory"}
    messages = [{"id": "1", "role": "user", "content": "How many seats has the reading room?"}]
    body = {"threadId": "t", "runId": "r", "messages": messages, "tools": [], "context": []}
    with serve(
        telemetry=telemetry,
        settings={"knowledge": knowledge, "telemetry": {"operators": ["ann"]}},
        authenticate=sign_in,
    ) as client:
        client.post("/graphql/agent/default/run", json=body)
        (found,) = find(client, "run_id=r")
        answer = client.get(f"/graphql/traces/{found}?format=scenario")
    (tmp_path / "chat.test.yml").write_text(answer.text)
    (place,) = load_scenarios([tmp_path])

    assert place.scenario.user == "ann"
    assert place.scenario.expect.recalls is not None
    assert place.scenario.expect.recalls.resources == ("common.Document.rooms%2Emd/*",)


def test_ratings_lead_to_a_set_of_scenarios(tmp_path: Path) -> None:
    telemetry = LocalTelemetry(MemoryTraceStore(), keeps_content=True)
    with serve(telemetry=telemetry) as client:
        for run, rating in (("r1", "down"), ("r2", "up"), ("r3", "down")):
            messages = [{"id": run, "role": "user", "content": "Hello"}]
            body = {"threadId": run, "runId": run, "messages": messages, "tools": [], "context": []}
            client.post("/graphql/agent/default/run", json=body)
            client.post("/graphql/traces/feedback", json={"run_id": run, "rating": rating})
        answer = client.get("/graphql/traces?rating=down&format=scenario")
    (tmp_path / "bad.test.yml").write_text(answer.text)

    assert [it.scenario.name for it in load_scenarios([tmp_path])] == ["Hello", "Hello (2)"]
    assert {it.scenario.expect.calls for it in load_scenarios([tmp_path])} == {None}


def test_a_trace_without_content_is_no_scenario() -> None:
    with serve(two()) as client:
        status, words = problem(client, "GET", f"/{A}?format=scenario")
    assert (status, words.split(":")[0]) == (404, "No trace has a question")


@in_one_test("time", ["9999-12-31T23:59:59Z", "999999999999", str(2**63)])
def test_a_time_after_all_that_a_file_can_keep_is_one_without_traces(
    tmp_path: Path, time: str
) -> None:
    store = SqliteTraceStore(tmp_path / f"{time[:9]}.db", days=0)
    store.add(decode_span(agent("poet", id="1", trace=A)))
    graphql = "query($filter: TraceFilterInput) { traces(filter: $filter) { traces { traceId } } }"
    with serve(store) as client:
        for name, count in (("since", 0), ("until", 1)):
            filter = {name: time}
            body = {"query": graphql, "variables": {"filter": filter}}
            page = client.post("/graphql", json=body).json()["data"]["traces"]
            queried = client.post("/graphql/traces/query", json=filter).json()
            found = find(client, f"{name}={time}")
            assert read(client, f"/stats?{name}={time}")["traces"] == count
            assert [len(it) for it in (found, page["traces"], queried["traces"])] == [count] * 3


def test_a_trace_is_its_spans_by_their_start() -> None:
    with serve(two()) as client:
        trace = read(client, f"/{A}")
        ShownTrace.model_validate(trace)
        head = client.head(f"/graphql/traces/{A}")
    assert [span["span_id"] for span in trace["spans"]] == ["1", "2", "3", "4", "5"]
    assert trace["trace"] | {"models": ["gpt-4o"], "dollars": 0.005} == trace["trace"]
    assert (trace["trace"]["input_tokens"], trace["trace"]["errors"]) == (2500, 1)
    assert (head.status_code, head.content) == (200, b"")


def test_a_trace_is_drawn_as_text() -> None:
    with serve(two()) as client:
        text = client.get(f"/graphql/traces/{A}?format=text&width=80")
        diagram = client.get(f"/graphql/traces/{A}?format=mermaid")
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert "✗ execute_tool book" in text.text
    assert max(map(len, text.text.splitlines())) <= 80
    assert diagram.text.startswith("sequenceDiagram\n")


def test_a_large_trace_is_rendered_apart_from_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = [agent("a", id="0"), *(tool("t", id=f"{n}", parent="0") for n in range(1, 700))]
    threads: list[str] = []

    def draw(spans: Any) -> str:
        threads.append(current_thread().name)
        return draw_sequence(spans)

    monkeypatch.setattr("copilot_runtime.extensions.tracing.mermaid.draw_sequence", draw)
    with serve(store_of(many, trip(B))) as client:
        assert (
            "400 more calls are left out" in client.get(f"/graphql/traces/{A}?format=mermaid").text
        )
        assert client.get(f"/graphql/traces/{B}?format=mermaid").status_code == 200
        otlp = client.get(f"/graphql/traces/{A}?format=otlp").content
        assert "699x execute_tool t" in client.get(f"/graphql/traces/{A}?format=text").text
        assert read(client, "/stats")["spans"] == 705
        assert len(json.loads(otlp)["resourceSpans"][0]["scopeSpans"][0]["spans"]) == 700
        assert len(read(client, f"/{A}")["spans"]) == 700
    in_thread, at_once = threads
    assert in_thread != at_once


def test_statistics_count_by_agent_model_and_tool() -> None:
    with serve(two()) as client:
        stats = read(client, "/stats?thread_id=thread-1")
        TraceStatsModel.model_validate(stats)
    assert (stats["traces"], stats["failed"], stats["spans"]) == (1, 1, 5)
    assert [(it["name"], it["count"], it["errors"]) for it in stats["tools"]] == [
        ("book", 1, 1),
        ("find_flights", 1, 0),
    ]


def test_the_servers_own_work_is_no_user_who_has_not_signed_in() -> None:
    traces = (
        [agent("desk", id="1", trace=A, RUN_ID="r")],
        [span("tools/call", id="1", trace=B, kind=2)],
        [span("upsert_memory", id="1", trace="c" * 32, OPERATION_NAME="upsert_memory")],
        [span("ingest", id="1", trace="d" * 32), span("read", id="2", parent="1", trace="d" * 32)],
    )
    with serve(store_of(*traces)) as client:
        users = read(client, "/stats")["users"]
    assert [(it["name"], it["count"]) for it in users] == [("", 2), ("(server)", 2)]


def test_a_jmespath_finds_whole_traces() -> None:
    body = {"query": "[?status.code == `2`]", "limit": 5, "agent": "planner", "has_error": True}
    with serve(two()) as client:
        found = client.post("/graphql/traces/query", json=body).json()
        QueryResult.model_validate(found)
        every = client.post("/graphql/traces/query", json={}).json()
    assert [it["trace"]["trace_id"] for it in found["traces"]] == [A]
    assert len(found["traces"][0]["spans"]) == 5
    assert [it["trace"]["trace_id"] for it in every["traces"]] == [B, A]


def test_a_trace_that_was_deleted_is_gone() -> None:
    with serve(two()) as client:
        gone = client.delete(f"/graphql/traces/{A}")
        TraceDeletion.model_validate(gone.json())
        assert find(client, "") == [B]
        assert problem(client, "DELETE", f"/{A}") == (404, "There is no such trace.")
        assert problem(client, "GET", f"/{A}") == (404, "There is no such trace.")


class Counting(LocalTelemetry):
    """Takes note of what is counted and said."""

    def __init__(self, store: Any, *, keeps_content: bool = False) -> None:
        super().__init__(store, keeps_content=keeps_content)
        self.counts: list[tuple[str, float, Any]] = []
        self.events: list[tuple[str, Any, Any, str]] = []

    def record(self, metric: str, value: float, attributes: Attributes | None = None) -> None:
        if value:  # not what only begins to be counted
            self.counts.append((metric, value, attributes))

    def log_event(
        self,
        name: str,
        attributes: Attributes | None = None,
        *,
        span: Span | None = None,
        content: Attributes | None = None,
    ) -> None:
        assert span is not None
        self.events.append((name, attributes, content, span.span_id))


def test_feedback_is_noted_at_its_run_counted_and_said() -> None:
    telemetry = Counting(two(), keeps_content=True)
    up = {"run_id": "run-1", "rating": "up", "comment": "Well done."}
    with serve(telemetry=telemetry) as client:
        answer = client.post("/graphql/traces/feedback", json=up)
        FeedbackResult.model_validate(answer.json())
        first = read(client, f"/{A}")["spans"][0]
        client.post("/graphql/traces/feedback", json={"trace_id": A, "rating": "down"})
        second = read(client, f"/{A}")["spans"][0]
    rating = {semconv.FEEDBACK_RATING: "up"}
    assert (answer.status_code, answer.json()) == (201, {"trace_id": A, "rating": "up"})
    assert first["attributes"][semconv.FEEDBACK_RATING] == "up"
    assert first["content"] == {semconv.FEEDBACK_COMMENT: "Well done."}
    assert second["attributes"][semconv.FEEDBACK_RATING] == "down"  # the last one counts
    assert "content" not in second
    assert telemetry.counts[0] == (semconv.FEEDBACK_COUNT, 1, rating)
    comment = {semconv.FEEDBACK_COMMENT: "Well done."}
    assert telemetry.events[0] == (semconv.EVENT_FEEDBACK, rating, comment, "1")


def test_a_comment_is_not_kept_where_no_content_is() -> None:
    body = {"trace_id": A, "rating": "up", "comment": "Well done."}
    with serve(two()) as client:
        client.post("/graphql/traces/feedback", json=body)
        assert "content" not in read(client, f"/{A}")["spans"][0]
        assert read(client, f"/{A}")["trace"]["duration"] == 4.0


@in_one_test(
    ("method", "path", "body", "said"),
    [
        ("GET", "?limit=0", None, "limit is a number from 1 to 1000, such as 50."),
        ("GET", "?limit=many", None, "limit is a number from 1 to 1000, such as 50."),
        ("GET", "?has_error=maybe", None, "has_error is 'maybe'; it is true or false."),
        ("GET", "?min_duration=long", None, "such as 2.5 or 800ms"),
        ("GET", "?since=yesterday", None, "since is 'yesterday'; it is a time ago, such as 15m"),
        ("GET", f"?text={'x' * 1001}", None, "text has 1001 characters"),
        (
            "GET",
            f"/{A}?format=png",
            None,
            "format is 'png'; it is json, otlp, mermaid, scenario or text.",
        ),
        ("POST", "/query", {"query": "[?"}, "Invalid token"),
        ("POST", "/query", {"query": 7}, "query is a JMESPath, such as"),
        ("POST", "/query", {"agent": ["a"]}, "A filter has texts, numbers and booleans."),
        ("POST", "/query", {"limit": -1}, "limit is a number"),
        ("POST", "/query", [], "The request body is no JSON object."),
        ("POST", "/feedback", {"rating": "so so", "run_id": "r"}, "rating is up or down."),
        ("POST", "/feedback", {"rating": "up"}, "by trace_id or by run_id, and not by both"),
        ("POST", "/feedback", {"rating": 1, "run_id": "r"}, "rating is a text of at most 1000"),
    ],
)
def test_what_cannot_be_answered_is_explained(method: str, path: str, body: Any, said: str) -> None:
    with serve(two()) as client:
        status, message = problem(client, method, path, body)
    assert status == 400
    assert said in message


def test_a_trace_is_exported_and_imported_as_otlp() -> None:
    with serve(two()) as client:
        exported = read(client, f"/{A}?format=otlp")
        spans = read(client, f"/{A}")["spans"]
    for it in exported["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        it["spanId"] = it["spanId"].rjust(16, "0")
        if it.get("parentSpanId"):
            it["parentSpanId"] = it["parentSpanId"].rjust(16, "0")
    with serve(store_of()) as client:
        answer = client.post("/graphql/traces/import", json=exported)
        ImportResult.model_validate(answer.json())
        found = read(client, f"/{A}")["spans"]
        refused = problem(client, "POST", "/import", {"resourceSpans": 7})
    assert (answer.status_code, answer.json()["spans"]) == (201, 5)
    assert [it["name"] for it in found] == [it["name"] for it in spans]
    assert refused == (400, "The request body is no OTLP: resourceSpans is no list.")


def test_feedback_needs_a_run_that_is_known() -> None:
    with serve(two()) as client:
        body = {"rating": "up", "run_id": "run-0"}
        assert problem(client, "POST", "/feedback", body) == (404, "There is no such trace.")


@in_one_test("query", ["foo(@)", "[0].kind.length(@)", "[?name]"])
def test_traces_come_in_after_whatever_query_of_a_file(tmp_path: Path, query: str) -> None:
    store = SqliteTraceStore(tmp_path / "traces.db", days=0)
    for number in range(500):  # more than one look at the file brings
        store.add(decode_span(agent("poet", id="1", trace=f"{number:032x}")))
    with serve(store) as client:
        client.post("/graphql/traces/query", json={"query": query, "limit": 3})
        client.post("/graphql", json={"query": f'{{traces(query: "{query}") {{next}}}}'})
        store.add(decode_span(agent("poet", id="1", trace=A, start=3600)))
        assert client.get(f"/graphql/traces/{A}").status_code == 200
        assert [it["trace_id"] for it in read(client, "?limit=1")["traces"]] == [A]


def test_a_body_that_is_no_json_is_refused() -> None:
    with serve(two()) as client:
        answer = client.post("/graphql/traces/query", content=b"{")
    assert (answer.status_code, answer.json()["message"]) == (400, "The request body is no JSON.")


@in_one_test(
    ("method", "path", "allow"),
    [
        ("POST", "", "GET, HEAD"),
        ("PUT", f"/{A}", "GET, HEAD, DELETE"),
        ("GET", "/query", "POST"),
        ("HEAD", "/stream", "GET"),
    ],
)
def test_other_methods_are_refused(method: str, path: str, allow: str) -> None:
    with serve(two()) as client:
        answer = client.request(method, f"/graphql/traces{path}")
    assert (answer.status_code, answer.headers["allow"]) == (405, allow)


@in_one_test("telemetry", [NO_TELEMETRY, LocalTelemetry()])
def test_a_server_without_a_store_says_so_with_the_way_out(telemetry: Any) -> None:
    with serve(telemetry=telemetry) as client:
        status, message = problem(client, "GET", "")
    assert status == 404
    assert message.startswith("This server keeps no traces: set telemetry.store to memory")


def test_nothing_is_at_other_paths() -> None:
    with serve(two()) as client:
        assert problem(client, "GET", f"/{A}/spans")[0] == 404


def test_the_routes_are_described() -> None:
    with serve(two()) as client:
        paths = client.get("/openapi.json").json()["paths"]
    assert {path for path in paths if "traces" in path} == {
        f"/graphql/traces{rest}"
        for rest in (
            "",
            "/stats",
            "/stream",
            "/query",
            "/import",
            "/feedback",
            "/access",
            "/{trace}",
        )
    }
    assert paths["/graphql/traces/{trace}"].keys() == {"get", "delete"}


def test_a_very_long_trace_keeps_its_times() -> None:
    long = [chat("m", 1, 1, id="1", seconds=10.0)]
    with serve(store_of(long)) as client:
        assert read(client, "")["traces"][0]["end_time_unix_nano"] % SECOND == 0
