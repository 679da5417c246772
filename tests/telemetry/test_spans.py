"""What is traced of a run: its agent, its requests to the model, its calls of tools."""

import asyncio
import random
from dataclasses import replace
from typing import Any

import orjson
import pytest

from copilot_runtime import action
from copilot_runtime.adapters.scripted import ScriptedAdapter
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import ActionContext, Adapter, ChatRequest, RunInput
from copilot_runtime.api.events import Events, Usage
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.base.dataclass_copy import copy_with
from copilot_runtime.base.errors import AgentNotFound, NetworkError, Refused
from copilot_runtime.runtime import Runtime
from copilot_runtime.telemetry import (
    NO_SPAN,
    LocalTelemetry,
    Span,
    find_current_span,
    parse_traceparent,
    semconv,
)
from copilot_runtime.telemetry.content import truncate
from copilot_runtime.telemetry.genai import MAX_NAME
from copilot_runtime.testing import call, say
from copilot_runtime.threads.run_log import MemoryBus
from tests.in_one_test import in_one_test
from tests.runs import Says, forever, run_input, runtime_of, runtime_with
from tests.telemetry.recorded import Spans, run

pytestmark = pytest.mark.anyio


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def telemetry(spans: Spans) -> LocalTelemetry:
    return LocalTelemetry(spans, keeps_content=True)


@action
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    find_current_span().set_attributes({semconv.SKILL_NAME: "sums"})
    return a + b


@action
def break_down() -> None:
    raise ValueError("It is broken.")


async def test_a_run_is_a_tree_of_the_agent_its_model_and_its_tools(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    turns = [call("add", {"a": 1, "b": 2}), say("Three.")]
    await run(runtime_of(*turns, sources=[[add]], telemetry=telemetry))
    root = spans.named("invoke_agent default")
    assert [span.name for span in spans.spans] == ["chat", "execute_tool add", "chat", root.name]
    assert {span.trace_id for span in spans.spans} == {root.trace_id}
    assert {span.parent_id for span in spans.spans} == {"", root.span_id}
    assert root.attributes[semconv.CONVERSATION_ID] == "t"
    assert root.attributes[semconv.RUN_OUTCOME] == "finished"
    assert root.attributes[semconv.RUN_TURNS] == 2


async def test_a_call_says_what_it_got_and_gave_in_its_content_alone(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    turns = [call("add", {"a": 1, "b": 2}), say("Three.")]
    await run(runtime_of(*turns, sources=[[add]], telemetry=telemetry))
    tool = spans.named("execute_tool add")
    assert tool.content[semconv.TOOL_CALL_RESULT] == "3"
    assert tool.content[semconv.TOOL_CALL_ARGUMENTS] == {"a": 1, "b": 2}
    assert tool.attributes[semconv.TOOL_DESCRIPTION] == "Add two numbers."
    assert tool.attributes[semconv.SKILL_NAME] == "sums"
    assert semconv.TOOL_CALL_ARGUMENTS not in tool.attributes


async def test_without_content_nothing_of_it_is_kept(spans: Spans) -> None:
    turns = [call("add", {"a": 1, "b": 2}), say("Three.")]
    await run(runtime_of(*turns, sources=[[add]], telemetry=LocalTelemetry(spans)))
    assert all(not span.content for span in spans.spans)


async def test_a_tool_that_fails_fails_its_span_and_no_other(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    turns = [call("break_down", {}), say("I am sorry.")]
    await run(runtime_of(*turns, sources=[[break_down]], telemetry=telemetry))
    failed = [span for span in spans.spans if span.status == "error"]
    assert [span.name for span in failed] == ["execute_tool break_down"]
    assert failed[0].attributes[semconv.ERROR_TYPE] == "ValueError"
    assert failed[0].message == "It is broken."


async def test_a_tool_may_add_to_its_own_span(spans: Spans, telemetry: LocalTelemetry) -> None:
    @action
    def note(context: ActionContext) -> str:
        context.span.add_event("copilot.noted", {"copilot.step.name": "first"})
        return "done"

    await run(runtime_of(call("note", {}), say("."), sources=[[note]], telemetry=telemetry))
    (event,) = spans.named("execute_tool note").events
    assert event.name == "copilot.noted"


async def test_a_tool_that_writes_nonsense_on_its_span_does_its_work(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    @action
    def note(context: ActionContext) -> str:
        context.span.set_attributes({semconv.OPERATION_NAME: {}, semconv.TOOL_NAME: [object()]})
        return "done"

    await run(runtime_of(call("note", {}), say("."), sources=[[note]], telemetry=telemetry))
    assert spans.named("execute_tool note").content[semconv.TOOL_CALL_RESULT] == "done"
    assert spans.named("invoke_agent default").attributes[semconv.RUN_OUTCOME] == "finished"


async def test_tokens_and_the_first_word_are_on_the_request_and_summed_on_the_agent(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    class Counting(ScriptedAdapter):
        async def stream(self, request: ChatRequest) -> Events:
            async for event in super().stream(request):
                yield event
            yield Usage(model="m-1", input_tokens=10, output_tokens=3, stop_reason="stop")

    adapter = Counting(call("add", {"a": 1, "b": 2}), say("Three."))
    await run(Runtime(DirectAgent(adapter), {}, MemoryBus(), sources=[[add]], telemetry=telemetry))
    first, second = [span for span in spans.spans if span.operation == semconv.CHAT]
    assert first.attributes[semconv.RESPONSE_MODEL] == "m-1"
    assert second.attributes[semconv.RESPONSE_FINISH_REASONS] == ["stop"]
    assert 0 < first.attributes[semconv.RESPONSE_TIME_TO_FIRST_CHUNK] <= first.duration
    root = spans.named("invoke_agent default")
    assert root.attributes[semconv.USAGE_INPUT_TOKENS] == 20
    assert root.attributes[semconv.USAGE_OUTPUT_TOKENS] == 6


async def test_a_model_that_fails_fails_the_run_by_the_same_code(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    class Failing(Adapter):
        async def stream(self, request: ChatRequest) -> Events:
            raise NetworkError("The model is not there.")
            yield

    await run(Runtime(DirectAgent(Failing()), {}, MemoryBus(), telemetry=telemetry))
    errors = {span.name: span.attributes[semconv.ERROR_TYPE] for span in spans.spans}
    assert errors == {"chat": "NETWORK_ERROR", "invoke_agent default": "NETWORK_ERROR"}


async def test_a_run_that_is_stopped_is_no_error(spans: Spans, telemetry: LocalTelemetry) -> None:
    runtime = runtime_with(Says(forever), telemetry=telemetry)
    started = await runtime.start(run_input(detached=True))
    assert started.task is not None
    runtime.stop(started.log_id)
    await asyncio.wait([started.task])
    root = spans.named("invoke_agent default")
    assert (root.status, root.attributes[semconv.RUN_OUTCOME]) == ("unset", "stopped")


async def test_a_run_that_a_hook_refuses_is_traced(spans: Spans, telemetry: LocalTelemetry) -> None:
    def refuse(run: RunInput) -> None:
        raise Refused("Not today.")

    runtime = runtime_of(say("."), hooks=Hooks(before_request=refuse), telemetry=telemetry)
    with pytest.raises(Refused):
        await run(runtime)
    assert spans.named("invoke_agent default").attributes[semconv.RUN_OUTCOME] == "refused"


async def test_a_name_that_somebody_invents_takes_little_room(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    with pytest.raises(AgentNotFound):
        await run(runtime_of(say("."), telemetry=telemetry), agent="a" * 1_000_000)
    [root] = spans.spans
    assert root.attributes[semconv.AGENT_NAME] == "a" * MAX_NAME
    assert len(root.name) < 2 * MAX_NAME


async def test_a_trace_that_began_elsewhere_goes_on(
    spans: Spans, telemetry: LocalTelemetry
) -> None:
    runtime = runtime_of(say("."), telemetry=telemetry)
    await run(runtime, parent=parse_traceparent(PARENT))
    root = spans.named("invoke_agent default")
    assert (root.trace_id, root.parent_id) == tuple(PARENT.split("-")[1:3])


@in_one_test(
    "header",
    [
        "",
        "00",
        PARENT.upper(),
        PARENT.replace("00-", "ff-", 1),
        f"{PARENT}-more",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
    ],
)
def test_a_header_that_names_no_span_is_ignored(header: str) -> None:
    assert parse_traceparent(header) is None


@in_one_test("state", ["a=1\r\nEvil: 1", "a=\x00", "a=ü", "a" * 513])
def test_a_state_that_no_header_could_carry_is_left_out(state: str) -> None:
    context = parse_traceparent(PARENT, state)
    assert context is not None
    assert context.state == ""


def test_a_header_is_written_as_it_was_read() -> None:
    context = parse_traceparent(f" {PARENT} ", "vendor=1")
    assert context is not None
    assert (context.traceparent, context.state) == (PARENT, "vendor=1")


async def test_a_listener_that_fails_ends_nothing(spans: Spans, telemetry: LocalTelemetry) -> None:
    heard: list[str] = []

    def listen(span: Span, phase: str) -> None:
        heard.append(f"{phase} {span.name}")
        raise RuntimeError("I am broken.")

    end = telemetry.listen(listen)
    await run(runtime_of(say("."), telemetry=telemetry))
    end()
    assert heard == [
        "start invoke_agent default",
        "start chat",
        "end chat",
        "end invoke_agent default",
    ]
    assert len(spans.spans) == 2


def test_a_copy_with_a_span_has_all_else_of_the_original(telemetry: LocalTelemetry) -> None:
    span = telemetry.start_span("s")
    original = run_input(user="ada", agent="a", properties={"a": 1})
    copy = copy_with(original, span=span)
    assert copy == original
    assert copy is not original
    assert (copy.span, original.span) == (span, NO_SPAN)
    context = original.action_context("c")
    assert copy_with(context, span=span) == replace(context, span=span)


def measure(value: Any) -> int:
    return len(orjson.dumps(value).decode())


def test_what_is_short_enough_stays_as_it_is() -> None:
    value = {"a": [1, 2.5, True, None, "text"], "b": {"c": "d"}}
    assert truncate(value, 100) is value


def test_a_text_tells_how_much_of_it_is_gone() -> None:
    assert truncate("x" * 100, 40) == "x" * 24 + "…[+76]"


def test_long_texts_are_cut_before_short_ones() -> None:
    short = {"role": "user", "parts": [{"type": "text", "content": "Hi"}]}
    long = {"role": "user", "parts": [{"type": "text", "content": "a" * 1000}]}
    first, second = truncate([short, long], 300)
    assert first == short
    assert second["parts"][0]["content"].startswith("aaaa")


def test_a_long_list_loses_its_middle() -> None:
    cut = truncate(["one", *(str(number) for number in range(1000)), "last"], 200)
    assert (cut[0], cut[-1]) == ("one", "last")
    assert any(item.startswith("…[+") for item in cut)


def test_a_long_list_of_objects_stays_one_of_objects() -> None:
    cut = truncate([{"number": number} for number in range(1000)], 500)
    assert {"type": "omitted", "count": 1000 - len(cut) + 1} in cut


def test_an_object_with_many_members_loses_the_last() -> None:
    cut = truncate({f"key{number}": number for number in range(1000)}, 300)
    assert cut["key0"] == 0
    assert cut["…"] == f"+{1000 - len(cut) + 1}"


def test_what_is_nested_too_deeply_or_no_json_is_left_out() -> None:
    deep: Any = "bottom"
    for _ in range(100):
        deep = [deep]
    assert "…" in orjson.dumps(truncate(deep, 1000)).decode()
    assert truncate({"a": object(), "b": 1}, 1000) == {"a": "…", "b": 1}


@in_one_test("characters", [40, 100, 1000])
def test_whatever_comes_the_rest_is_short_enough(characters: int) -> None:
    draw = random.Random(characters)

    def make(depth: int) -> Any:
        kind = draw.random()
        if depth > 3 or kind < 0.3:
            return "".join(draw.choices('ab"\\\n\x01é🙂', k=draw.randrange(200)))
        if kind < 0.4:
            return draw.randrange(10**6)
        if kind < 0.7:
            return [make(depth + 1) for _ in range(draw.randrange(6))]
        names = ("".join(draw.choices('ab"', k=draw.choice((3, 300)))) for _ in range(4))
        return {name: make(depth + 1) for name in names}

    for _ in range(30):
        assert measure(truncate(make(0), characters)) <= characters
