"""What a span that ends adds to the metrics."""

import asyncio
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, Settings, action
from copilot_runtime.adapters.scripted import ScriptedAdapter
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api.events import Custom, Event, Interrupt, Usage
from copilot_runtime.base.errors import AgentNotFound, NetworkError, RateLimited, RunStalled
from copilot_runtime.event_order.verify import verify_events
from copilot_runtime.runtime import Runtime
from copilot_runtime.telemetry import LocalTelemetry, semconv
from copilot_runtime.testing import Client, call, say
from tests.extensions.tracing.metrics import names_of, points_of, values_of
from tests.in_one_test import in_one_test
from tests.runs import Says, run_input, runtime_of, runtime_with

pytestmark = pytest.mark.anyio

CHAT = {
    semconv.OPERATION_NAME: semconv.CHAT,
    semconv.PROVIDER_NAME: "openai",
    semconv.REQUEST_MODEL: "m",
    semconv.CONVERSATION_ID: "t",
    semconv.RESPONSE_TIME_TO_FIRST_CHUNK: 0.5,
    semconv.USAGE_INPUT_TOKENS: 100,
    semconv.USAGE_OUTPUT_TOKENS: 20,
    semconv.USAGE_CACHE_READ_TOKENS: 60,
    semconv.COST_DOLLARS: 0.25,
}


async def run(runtime: Runtime, **more: Any) -> None:
    """Start a run, and wait until nothing of it goes on."""
    started = await runtime.start(run_input(detached=True, **more))
    assert started.task is not None
    await asyncio.wait([started.task])


def measure(
    attributes: dict[str, Any],
    *,
    dialect: semconv.Dialect = "released",
    seconds: float = 2,
    **more: Any,
) -> LocalTelemetry:
    """End a span of this length, and return what it was counted by."""
    telemetry = LocalTelemetry(dialect=dialect)
    span = telemetry.start_span("x", attributes=attributes, start_time=10**9, **more)
    span.end(10**9 + int(seconds * 1e9))
    return telemetry


@action
def add(a: int, b: int) -> int:
    return a + b


@action
def break_down() -> None:
    raise ValueError("It is broken.")


async def test_a_run_with_two_tools_is_counted_once_in_each_metric() -> None:
    telemetry = LocalTelemetry()
    turns = [[*call("add", {"a": 1, "b": 2}), *call("break_down", {})], say("Three.")]
    await run(runtime_of(*turns, sources=[[add, break_down]], telemetry=telemetry))
    agent = {semconv.AGENT_NAME: "default"}
    (calls,) = points_of(telemetry, semconv.INVOKE_AGENT_TOOL_CALLS)
    (turns_of_run,) = points_of(telemetry, semconv.INVOKE_AGENT_INFERENCE_CALLS)
    assert (calls.attributes, calls.value, calls.count) == (agent, 2.0, 1)
    assert (turns_of_run.attributes, turns_of_run.value, turns_of_run.count) == (agent, 2.0, 1)
    (outcome,) = points_of(telemetry, semconv.RUN_COUNT)
    assert outcome.attributes == {**agent, semconv.RUN_OUTCOME: "finished"}
    tools = points_of(telemetry, semconv.EXECUTE_TOOL_DURATION)
    assert {
        tool.attributes[semconv.TOOL_NAME]: tool.attributes.get(semconv.ERROR_TYPE)
        for tool in tools
    } == {"add": None, "break_down": "ValueError"}
    assert len(tools) == 2
    (chat,) = points_of(telemetry, semconv.OPERATION_DURATION)
    assert chat.count == 2


def test_each_of_many_spans_is_measured_by_what_it_has() -> None:
    telemetry = LocalTelemetry()
    without_cost = {**CHAT}
    del without_cost[semconv.COST_DOLLARS]
    for attributes in (CHAT, without_cost, {**CHAT, semconv.COST_DOLLARS: 3}, without_cost):
        span = telemetry.start_span("x", attributes=attributes, start_time=10**9)
        span.end(3 * 10**9)

    (duration,) = points_of(telemetry, semconv.OPERATION_DURATION)
    assert (duration.value, duration.count) == (8.0, 4)
    (cost,) = points_of(telemetry, semconv.COST)
    assert (cost.value, cost.count) == (3.25, 2)


async def test_a_subagents_calls_are_its_own() -> None:
    telemetry = LocalTelemetry()
    shop = DirectAgent(ScriptedAdapter(call("add", {"a": 1, "b": 2}), say("Three.")))
    runtime = CopilotRuntime(
        ScriptedAdapter(call("shop", {})),
        actions=[add],
        agents={"shop": shop},
        settings=Settings(threads="memory", hand_over="always"),
        telemetry=telemetry,
    )
    async with Client(runtime) as client:
        await client.say("Hi")
    calls = values_of(telemetry, semconv.INVOKE_AGENT_INFERENCE_CALLS, semconv.AGENT_NAME)
    assert calls == {"default": 1.0, "shop": 2.0}
    tools = values_of(telemetry, semconv.INVOKE_AGENT_TOOL_CALLS, semconv.AGENT_NAME)
    assert tools == {"default": 1.0, "shop": 1.0}


async def test_a_run_that_fails_is_counted_with_its_error() -> None:
    telemetry = LocalTelemetry()
    await run(runtime_with(Says(NetworkError("Down.")), telemetry=telemetry))
    (duration,) = points_of(telemetry, semconv.INVOKE_AGENT_DURATION)
    assert duration.attributes == {
        semconv.AGENT_NAME: "default",
        semconv.ERROR_TYPE: NetworkError.code,
    }
    assert values_of(telemetry, semconv.RUN_COUNT, semconv.RUN_OUTCOME) == {"failed": 1.0}
    assert points_of(telemetry, semconv.INVOKE_AGENT_INFERENCE_CALLS) == []


@in_one_test(
    ("error", "word"),
    [
        (NetworkError("Down."), "NETWORK_ERROR"),
        (RateLimited("Slowly."), "RATE_LIMITED"),
        (RunStalled("Silent."), "TIMEOUT"),
    ],
)
async def test_limits_of_a_provider_and_its_silence_have_words_of_their_own(
    error: NetworkError, word: str
) -> None:
    telemetry = LocalTelemetry()
    await run(runtime_with(Says(error), telemetry=telemetry))
    (duration,) = points_of(telemetry, semconv.INVOKE_AGENT_DURATION)
    assert duration.attributes[semconv.ERROR_TYPE] == word


@in_one_test(
    "question",
    [Interrupt(interrupt_id="i", value="Sure?"), Custom(name="on_interrupt", value="Sure?")],
)
async def test_a_run_that_asks_a_person_is_interrupted(question: Event) -> None:
    telemetry = LocalTelemetry()
    for event in (question, Custom(name="progress", value=1)):
        await run(runtime_with(Says(event), stages=[verify_events], telemetry=telemetry))
    outcomes = values_of(telemetry, semconv.RUN_COUNT, semconv.RUN_OUTCOME)
    assert outcomes == {"interrupted": 1.0, "finished": 1.0}


async def test_a_run_that_fails_after_a_question_has_failed() -> None:
    telemetry = LocalTelemetry()
    question = Interrupt(interrupt_id="i", value="Sure?")
    agent = Says(question, NetworkError("Down."))
    await run(runtime_with(agent, stages=[verify_events], telemetry=telemetry))
    assert values_of(telemetry, semconv.RUN_COUNT, semconv.RUN_OUTCOME) == {"failed": 1.0}


async def test_names_of_agents_that_do_not_exist_are_no_attributes() -> None:
    telemetry = LocalTelemetry()
    runtime = runtime_of(say("Hi"), telemetry=telemetry)
    for name in ("one", "two"):
        with pytest.raises(AgentNotFound):
            await run(runtime, agent=name)
    assert values_of(telemetry, semconv.RUN_COUNT, semconv.AGENT_NAME) == {"_OTHER": 2.0}


async def test_usage_is_counted_as_the_provider_gave_it() -> None:
    telemetry = LocalTelemetry()
    usage = Usage(model="m-1", input_tokens=100, output_tokens=20)
    await run(runtime_of([*say("Hi"), usage], telemetry=telemetry))
    assert values_of(telemetry, semconv.TOKEN_USAGE, semconv.TOKEN_TYPE) == {
        "input": 100.0,
        "output": 20.0,
    }
    (chat,) = points_of(telemetry, semconv.TIME_TO_FIRST_CHUNK)
    assert chat.attributes[semconv.RESPONSE_MODEL] == "m-1"


def test_released_names_are_those_that_dashboards_know() -> None:
    telemetry = measure(CHAT)
    assert names_of(telemetry) == {
        semconv.OPERATION_DURATION,
        semconv.TIME_TO_FIRST_CHUNK,
        semconv.TOKEN_USAGE,
        semconv.COST,
    }
    (duration,) = points_of(telemetry, semconv.OPERATION_DURATION)
    assert duration.value == 2.0
    assert duration.attributes == {
        name: CHAT[name]
        for name in (semconv.OPERATION_NAME, semconv.PROVIDER_NAME, semconv.REQUEST_MODEL)
    }


def test_head_names_are_those_to_come() -> None:
    telemetry = measure(CHAT, dialect="head")
    assert names_of(telemetry) == {
        semconv.INFERENCE_DURATION,
        semconv.INFERENCE_TIME_TO_FIRST_CHUNK,
        semconv.INFERENCE_USAGE["input_tokens"],
        semconv.INFERENCE_USAGE["output_tokens"],
        semconv.INFERENCE_USAGE["cache_read.input_tokens"],
        semconv.INFERENCE_INPUT_TOKENS,
        semconv.INFERENCE_OUTPUT_TOKENS,
        semconv.COST,
    }
    assert values_of(
        telemetry, semconv.INFERENCE_USAGE["cache_read.input_tokens"], semconv.TOKEN_MODALITY
    ) == {"unknown": 60.0}


def test_dual_has_both() -> None:
    both = names_of(measure(CHAT, dialect="dual"))
    assert both == names_of(measure(CHAT)) | names_of(measure(CHAT, dialect="head"))


def test_where_a_provider_says_no_usage_head_counts_nothing_of_an_unknown_kind() -> None:
    telemetry = measure({semconv.OPERATION_NAME: semconv.CHAT}, dialect="head")
    for kind in ("input_tokens", "output_tokens"):
        assert values_of(telemetry, semconv.INFERENCE_USAGE[kind], semconv.TOKEN_MODALITY) == {
            "unknown": 0.0
        }
    assert points_of(telemetry, semconv.INFERENCE_INPUT_TOKENS) == []


@in_one_test("dialect", ["released", "head"])
def test_what_is_no_inference_keeps_its_name(dialect: semconv.Dialect) -> None:
    attributes = {semconv.OPERATION_NAME: semconv.EMBEDDINGS, semconv.USAGE_INPUT_TOKENS: 7}
    telemetry = measure(attributes, dialect=dialect)
    assert values_of(telemetry, semconv.OPERATION_DURATION) == {None: 2.0}
    assert values_of(telemetry, semconv.TOKEN_USAGE, semconv.TOKEN_TYPE) == {"input": 7.0}


def test_a_call_by_mcp_is_a_tool_and_an_operation() -> None:
    telemetry = measure(
        {
            semconv.OPERATION_NAME: semconv.EXECUTE_TOOL,
            semconv.TOOL_NAME: "find",
            semconv.MCP_METHOD_NAME: "tools/call",
        }
    )
    assert names_of(telemetry) == {
        semconv.EXECUTE_TOOL_DURATION,
        semconv.MCP_CLIENT_OPERATION_DURATION,
    }


def test_a_call_that_an_mcp_client_makes_is_not_counted_as_two_tools() -> None:
    telemetry = measure(
        {semconv.OPERATION_NAME: semconv.EXECUTE_TOOL, semconv.MCP_METHOD_NAME: "tools/call"},
        kind="server",
    )
    assert names_of(telemetry) == {semconv.MCP_SERVER_OPERATION_DURATION}


def test_a_workflow_has_a_duration_and_a_hook_has_none() -> None:
    workflow = {
        semconv.OPERATION_NAME: semconv.INVOKE_WORKFLOW,
        semconv.WORKFLOW_NAME: "w",
    }
    assert values_of(
        measure(workflow), semconv.INVOKE_WORKFLOW_DURATION, semconv.WORKFLOW_NAME
    ) == {"w": 2.0}
    assert names_of(measure({semconv.OPERATION_NAME: semconv.EXECUTE_HOOK})) == set()


def test_what_another_process_wrote_for_a_number_is_left_out() -> None:
    telemetry = measure({**CHAT, semconv.USAGE_INPUT_TOKENS: "many", semconv.COST_DOLLARS: True})
    assert values_of(telemetry, semconv.TOKEN_USAGE, semconv.TOKEN_TYPE) == {"output": 20.0}
    assert points_of(telemetry, semconv.COST) == []


def test_spans_that_were_left_out_are_counted() -> None:
    class Full:
        dropped = 3
        is_failing = False

        def add(self, span: Any) -> None: ...
        async def flush(self) -> None: ...
        async def aclose(self) -> None: ...

    assert values_of(LocalTelemetry(Full()), semconv.TELEMETRY_DROPPED) == {None: 3.0}
