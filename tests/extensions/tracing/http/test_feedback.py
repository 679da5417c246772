"""Who may say what of an answer: whoever asked for it, and operators."""

from functools import partial
from typing import Any

import pytest

from copilot_runtime.extensions.tracing.store import MemoryTraceStore, Record
from copilot_runtime.telemetry import LocalTelemetry, genai, semconv
from tests.extensions.tracing.http.spans import agent, serve, sign_in, span, store_of, tool, trip
from tests.in_one_test import in_one_test

A, B = "a" * 32, "b" * 32
OPERATORS = {"telemetry": {"operators": ["ann"]}}
NO_RUN = (404, "There is no such trace.")


def run_of(user: str | None, trace: str = A, *, run: str = "run-1", id: str = "1") -> Record:
    """Return the span of a run, as whoever asked for it."""
    who = {} if user is None else {"USER_NAME": user}
    return agent("planner", id=id, trace=trace, RUN_ID=run, **who)


def rate(
    store: MemoryTraceStore, user: str = "", /, *, about: dict[str, str], **more: Any
) -> tuple[int, str]:
    """Say that an answer is good; return the status and the trace, or what is wrong."""
    headers = {"x-user": user} if user else {}
    values: dict[str, Any] = {"authenticate": sign_in, "settings": OPERATORS, **more}
    with serve(store, **values) as client:
        body = {"rating": "up", **about}
        answer = client.post("/graphql/traces/feedback", json=body, headers=headers)
    content = answer.json()
    return answer.status_code, content.get("trace_id") or content.get("message")


async def read_ratings(store: MemoryTraceStore, trace: str = A) -> dict[str, str]:
    """Return the ratings of the spans that have one, by their ids."""
    spans = await store.get_trace(trace)
    rating = semconv.FEEDBACK_RATING
    return {it["span_id"]: it["attributes"][rating] for it in spans if rating in it["attributes"]}


@in_one_test("about", [{"run_id": "run-1"}, {"trace_id": A}])
def test_people_rate_the_answers_to_what_they_asked(about: dict[str, str]) -> None:
    assert rate(store_of([run_of("bob")]), "bob", about=about) == (201, A)


@in_one_test("about", [{"run_id": "run-1"}, {"trace_id": A}, {"run_id": "run-0"}])
@in_one_test("owner", ["bob", "ann", None])
@in_one_test("user", ["eve", "Bob"])
def test_an_answer_to_somebody_else_is_none(
    owner: str | None, user: str, about: dict[str, str]
) -> None:
    assert rate(store_of([run_of(owner)]), user, about=about) == NO_RUN


def test_who_is_not_signed_in_rates_no_answer_to_somebody() -> None:
    assert rate(store_of([run_of("bob")]), about={"run_id": "run-1"}) == NO_RUN
    assert rate(store_of([run_of(None)]), about={"run_id": "run-1"}) == (201, A)


def test_an_operator_rates_every_answer() -> None:
    assert rate(store_of([run_of("bob")]), "ann", about={"run_id": "run-1"}) == (201, A)


def test_a_run_whose_id_somebody_else_used_as_well_is_still_found() -> None:
    store = store_of([run_of("bob")], [run_of("eve", B)])
    assert rate(store, "bob", about={"run_id": "run-1"}) == (201, A)
    assert rate(store, "eve", about={"run_id": "run-1"}) == (201, B)


@pytest.mark.anyio
async def test_in_a_trace_of_several_runs_the_one_that_is_meant_is_rated() -> None:
    gateway = tool("ask", id="0")
    store = store_of([gateway, run_of("bob"), run_of("eve", run="run-2", id="2")])
    rate(store, "eve", about={"run_id": "run-2"})
    assert await read_ratings(store) == {"2": "up"}
    rate(store, "bob", about={"trace_id": A})
    assert await read_ratings(store) == {"1": "up", "2": "up"}
    assert rate(store, "eve", about={"trace_id": A, "run_id": "run-1"})[0] == 400


@pytest.mark.anyio
async def test_a_trace_of_another_program_is_rated_by_operators_alone() -> None:
    store = store_of([tool("ask", id="0"), tool("look", id="1", parent="0")])
    assert rate(store, "bob", about={"trace_id": A}) == NO_RUN
    assert rate(store, "ann", about={"trace_id": A}) == (201, A)
    assert await read_ratings(store) == {"0": "up"}


def test_where_nobody_signs_in_whoever_knows_a_run_rates_it_from_anywhere() -> None:
    away = {"base_url": "http://192.0.2.1", "authenticate": None}
    assert rate(store_of(trip()), about={"run_id": "run-1"}, **away) == (201, A)


def test_a_complaint_is_listed_and_found_by_its_rating() -> None:
    store = store_of([run_of("bob")], [run_of("bob", B, run="run-2")])
    rate(store, "bob", about={"run_id": "run-2", "rating": "down"})
    graphql = """{
      down: traces(filter: {rating: "down"}) { traces { traceId rating } }
      up: traces(filter: {rating: "up"}) { traces { traceId } }
    }"""
    with serve(store) as client:
        every = client.get("/graphql/traces").json()["traces"]
        found = client.get("/graphql/traces?rating=DOWN").json()["traces"]
        whole = client.post("/graphql/traces/query", json={"rating": "down"}).json()["traces"]
        wrong = client.get("/graphql/traces?rating=bad")
        answer = client.post("/graphql", json={"query": graphql}).json()["data"]
    assert {it["trace_id"]: it["rating"] for it in every} == {A: "", B: "down"}
    assert [it["trace_id"] for it in found] == [B]
    assert answer == {
        "down": {"traces": [{"traceId": B, "rating": "down"}]},
        "up": {"traces": []},
    }
    assert [it["trace"]["rating"] for it in whole] == ["down"]
    assert (wrong.status_code, wrong.json()["message"]) == (
        400,
        "rating is 'bad'; it is up or down.",
    )


def test_what_is_said_twice_counts_once() -> None:
    telemetry = LocalTelemetry(store_of([run_of("bob")]), keeps_content=True)
    with serve(telemetry=telemetry, authenticate=sign_in) as client:
        for body in ({"rating": "up"}, {"rating": "up"}, {"rating": "up", "comment": "Yes."}):
            body = {"run_id": "run-1", **body}
            client.post("/graphql/traces/feedback", json=body, headers={"x-user": "bob"})
    families = {family.metric.name: family.points for family in telemetry.metrics.collect()}
    assert [point.value for point in families[semconv.FEEDBACK_COUNT]] == [2, 0]


@pytest.mark.anyio
async def test_a_rating_is_an_evaluation_of_the_last_answer_however_often_it_changes() -> None:
    chats = [
        span("chat", id=id, parent=above, start=start, OPERATION_NAME="chat", RESPONSE_ID=answer)
        for id, above, start, answer in [
            ("2", "1", 1, "first"),
            ("3", "1", 2, "last"),
            ("4", "3", 3, "of a sub-agent"),
        ]
    ]
    store = store_of([run_of("bob"), *chats])
    for rating in ("up", "down", "up", "down"):
        rate(store, "bob", about={"run_id": "run-1", "rating": rating})
    (run, *_) = await store.get_trace(A)
    noted, judged = run["events"]
    assert (noted["name"], judged["name"]) == ("copilot.feedback", "gen_ai.evaluation.result")
    assert judged["attributes"] == {
        semconv.EVALUATION_NAME: "feedback",
        semconv.EVALUATION_SCORE_VALUE: 0.0,
        semconv.EVALUATION_SCORE_LABEL: "down",
        semconv.RESPONSE_ID: "last",
    }


def test_whoever_asked_stands_at_the_run() -> None:
    telemetry = LocalTelemetry()
    begin = partial(
        genai.start_run_span, telemetry, agent="default", thread_id="t", run_id="r", protocol="agui"
    )
    assert begin(user="bob").attributes["user.name"] == "bob"
    assert "user.name" not in begin().attributes


@in_one_test("body", [b"", b"[]", b'{"rating": "so so", "run_id": "r"}'])
def test_bad_feedback_is_refused_to_everybody(body: bytes) -> None:
    with serve(store_of(trip()), authenticate=sign_in) as client:
        answer = client.post("/graphql/traces/feedback", content=body)
    assert answer.status_code == 400


def test_other_methods_than_post_are_refused() -> None:
    with serve(store_of(trip()), authenticate=sign_in) as client:
        answer = client.get("/graphql/traces/feedback")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
