"""The span of the request by which a thread gets its title."""

import pytest

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import Gate
from copilot_runtime.agents.title import generate_title
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import NetworkError
from copilot_runtime.telemetry import LocalTelemetry, semconv, work_under
from copilot_runtime.testing import Client, say
from tests.telemetry.conventions import find_violations
from tests.telemetry.recorded import Spans

pytestmark = pytest.mark.anyio

HELLO = [TextMessage(id="m", role="user", content="Hi")]


@pytest.fixture
def spans() -> Spans:
    return Spans()


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
