"""The span of the hook that says whose a request is."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest
from starlette.requests import HTTPConnection
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.api import hooks
from copilot_runtime.base.errors import AuthenticationFailed
from copilot_runtime.extensions.tracing.store.records import encode_span
from copilot_runtime.extensions.tracing.store.traces import count_spans
from copilot_runtime.telemetry import LocalTelemetry, semconv
from tests.extensions.knowledge.uploads.chat import ask, question
from tests.telemetry.conventions import find_violations
from tests.telemetry.recorded import Spans


def sign_in(connection: HTTPConnection) -> str:
    if user := connection.headers.get("x-user"):
        return user
    raise AuthenticationFailed("Please sign in.")


@pytest.fixture
def spans() -> Spans:
    return Spans()


@contextmanager
def serve(spans: Spans) -> Generator[TestClient]:
    runtime = CopilotRuntime(
        ScriptedAdapter(say("One."), say("Two.", id="m2")),
        authenticate=sign_in,
        settings=Settings(threads="memory"),
        telemetry=LocalTelemetry(spans),
    )
    with TestClient(runtime.app()) as client:
        yield client


def test_the_hook_that_lets_somebody_in_is_below_the_run_of_the_request(spans: Spans) -> None:
    with serve(spans) as client:
        client.get("/graphql/threads", headers={"x-user": "ann"})
        ask(client, question("Hi"))
        ask(client, question("Hi", id="q2"), run="r2", thread="t2")
    found = spans.of(semconv.EXECUTE_HOOK)
    runs = sorted(spans.of(semconv.INVOKE_AGENT), key=lambda span: span.start_time)
    assert [span.name for span in found] == ["execute_hook authenticate"] * 2
    assert [span.parent_id for span in found] == [run.span_id for run in runs]
    assert [find_violations(span) for span in found] == [[], []]
    # what a list shows of a run that goes on: its own span is kept when it ends
    summary = count_spans(found[0].trace_id, [encode_span(found[0])])
    assert (summary.agent, summary.thread_id) == (
        "default",
        runs[0].attributes[semconv.CONVERSATION_ID],
    )
    assert found[0].attributes[semconv.HOOK_NAME] == "sign_in"
    assert found[0].attributes[semconv.HOOK_RESULT] == "success"
    assert found[0].start_time <= found[0].end_time <= runs[0].start_time


def test_who_is_sent_away_leaves_no_trace(spans: Spans) -> None:
    with serve(spans) as client:
        assert client.get("/graphql/threads").status_code == 401
    assert spans.spans == []


def test_the_hook_of_a_socket_that_has_long_been_open_is_in_no_trace(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "_LONGEST_PAUSE", -1)
    with serve(spans) as client:
        ask(client, question("Hi"))
    assert spans.of(semconv.EXECUTE_HOOK) == []
    assert len(spans.of(semconv.INVOKE_AGENT)) == 1
