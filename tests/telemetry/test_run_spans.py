"""Spans around runs: of runs that are left, of who asks, and of the names of threads."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager

import pytest
from starlette.requests import HTTPConnection
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings, action
from copilot_runtime.adapters.scripted import Gate
from copilot_runtime.agents.titles_and_summaries import generate_title
from copilot_runtime.api import hooks
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import AuthenticationFailed, NetworkError
from copilot_runtime.extensions.tracing.store.records import encode_span
from copilot_runtime.extensions.tracing.store.traces import count_spans
from copilot_runtime.telemetry import LocalTelemetry, Span, semconv, work_under
from copilot_runtime.testing import Client, say
from tests.extensions.knowledge.uploads.chat import ask, question
from tests.telemetry.recorded import Spans, find_violations
from tests.wire.client import PLAIN, chat, client_of
from tests.wire.upstream import HEAD, SILENCE, Upstream, call, finish, text, upstream

pytestmark = pytest.mark.anyio


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


@pytest.fixture
async def provider(anyio_backend: str) -> AsyncGenerator[Upstream]:
    del anyio_backend
    async with upstream() as provider:
        yield provider


class WholeTrace(Spans):
    """Spans until the run has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.is_whole = asyncio.Event()

    def add(self, span: Span) -> None:
        super().add(span)
        if span.operation == semconv.INVOKE_AGENT:
            self.is_whole.set()


@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("in_one_body", [True, False])
async def test_an_answer_that_nobody_waits_for_ends_its_spans(
    provider: Upstream, words: bool, in_one_body: bool
) -> None:
    provider.plays([HEAD, text("Hello"), SILENCE] if words else [SILENCE])
    spans = WholeTrace()
    runtime = CopilotRuntime(adapter=provider.adapter(), telemetry=LocalTelemetry(spans))
    async with client_of(runtime) as client:
        async with client.open(chat(query=PLAIN) if in_one_body else chat()) as exchange:
            await provider.until(asked=1)
            if words and not in_one_body:
                await exchange.head()
                await exchange.until(b'["Hello"]')
            exchange.hang_up()
        await spans.is_whole.wait()
    asked, root = spans.spans
    assert asked.operation == semconv.CHAT
    assert asked.attributes[semconv.RESPONSE_FINISH_REASONS] == ["error"]
    assert root.attributes[semconv.RUN_OUTCOME] == "stopped"
    assert (asked.status, root.status) == ("unset", "unset")
    assert asked.events == root.events == []
    has_first_chunk = semconv.RESPONSE_TIME_TO_FIRST_CHUNK in asked.attributes
    assert has_first_chunk or not (words and not in_one_body)


async def test_a_tool_that_nobody_waits_for_ends_its_span(provider: Upstream) -> None:
    began = asyncio.Event()

    @action
    async def dawdle() -> None:
        """Never end."""
        began.set()
        await asyncio.Event().wait()

    provider.plays([HEAD, call("{}", id="call_1", name="dawdle"), finish("tool_calls")])
    spans = WholeTrace()
    runtime = CopilotRuntime(
        adapter=provider.adapter(), actions=[dawdle], telemetry=LocalTelemetry(spans)
    )
    async with client_of(runtime) as client:
        async with client.open(chat()) as exchange:
            await exchange.head()
            await began.wait()
            exchange.hang_up()
        await spans.is_whole.wait()
    tool, root = spans.named("execute_tool dawdle"), spans.named("invoke_agent default")
    assert (tool.attributes[semconv.RUN_OUTCOME], tool.status) == ("stopped", "unset")
    assert (root.attributes[semconv.RUN_OUTCOME], root.status) == ("stopped", "unset")
    assert spans.of(semconv.CHAT)[0].attributes[semconv.RESPONSE_FINISH_REASONS] == ["tool_calls"]


HELLO = [TextMessage(id="m", role="user", content="Hi")]


@pytest.fixture
def telemetry(spans: Spans) -> LocalTelemetry:
    return LocalTelemetry(spans, keeps_content=True)


async def test_a_title_is_asked_for_in_the_trace_of_the_run(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    adapter = ScriptedAdapter(say("Hello."), say("Greetings"))
    runtime = CopilotRuntime(
        adapter, settings=Settings(threads="memory", thread_names=True), telemetry=telemetry
    )
    async with Client(runtime, protocol="agui") as client:
        await client.say("Hi")
    run = spans.named("invoke_agent default")
    answer, title = spans.of(semconv.CHAT)
    assert (answer.parent_id, title.parent_id) == (run.span_id, run.span_id)
    assert title.attributes[semconv.PROMPT_NAME] == "title"
    assert title.content[semconv.OUTPUT_MESSAGES][0]["parts"][0]["content"] == "Greetings"
    assert find_violations(title) == []
    assert run.attributes[semconv.RUN_TURNS] == 1


async def test_a_title_that_fails_is_an_error_of_its_span_alone(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    adapter = ScriptedAdapter(NetworkError("Down."))
    with work_under(telemetry.start_span("root")) as root:
        assert await generate_title(adapter, HELLO) is None
    (span,) = spans.spans
    assert (span.status, span.attributes[semconv.ERROR_TYPE]) == ("error", NetworkError.code)
    assert root.status == "unset"


async def test_a_title_that_takes_too_long_was_broken_off(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    gate = Gate()
    with work_under(telemetry.start_span("root")):
        adapter = ScriptedAdapter(say("Late"), gate=gate)
        assert await generate_title(adapter, HELLO, timeout=0.01) is None
    (span,) = spans.spans
    assert span.attributes[semconv.RESPONSE_FINISH_REASONS] == ["error"]
    assert span.status == "unset"
