"""A browser that leaves ends every span of its run, and none of them as a failure."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from copilot_runtime import CopilotRuntime, action
from copilot_runtime.telemetry import LocalTelemetry, Span, semconv
from tests.telemetry.recorded import Spans
from tests.wire.client import client_of
from tests.wire.documents import PLAIN, chat
from tests.wire.upstream import HEAD, SILENCE, Upstream, call, finish, text, upstream

pytestmark = pytest.mark.anyio


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
