"""Clients of AG-UI 1.0 and those of before it: each gets what its schemas take, of one thread."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from copilot_runtime import Events, RunInput, Settings
from copilot_runtime.adapters.demo.adapter import DemoAdapter
from copilot_runtime.adapters.scripted import Gate, ScriptedAdapter, call
from copilot_runtime.api.events import ActionExecutionResult, Usage
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.api.messages import MediaPart, ResultMessage, TextMessage, TextPart
from copilot_runtime.base.errors import Cancelled
from tests.in_one_test import in_one_test
from tests.referee import FEATURES, find_faults
from tests.wire.upstream import upstream
from tests.wire_agui.http import Browser, Event, Exchange, connect_input, text_of, user
from tests.wire_agui.server import Parrot, browsing

pytestmark = pytest.mark.anyio

ABORTED = {"type": "RUN_ERROR", "message": "Run stopped by user", "code": "abort"}
CANCELLED = {"type": "cancelled"}
TOOL = {"name": "setColor", "description": "", "parameters": {"type": "object"}}
URL = "https://files.example/cat.png"
IMAGE = {"type": "image", "source": {"type": "url", "value": URL}}
PARTS = [{"type": "text", "text": "A cat."}, IMAGE]
PARTS_AS_TEXT = (
    '[{"type":"text","text":"A cat."},'
    f'{{"type":"image","source":{{"type":"url","value":"{URL}"}}}}]'
)


class Plays:
    """An agent that yields these events in its first run, and records what it is asked."""

    def __init__(self, *events: Any) -> None:
        self.events: Sequence[Any] = events
        self.runs: list[RunInput] = []

    async def run(self, run: RunInput) -> Events:
        self.runs.append(run)
        events, self.events = self.events, ()
        for event in events:
            yield event


def agent_that(*events: Any) -> dict[str, Any]:
    return {"agents": {"default": Plays(*events)}}


async def ask_1(browser: Browser, operation: str = "run", **fields: Any) -> list[Event]:
    """Ask as a client of AG-UI 1.0 does, which leaves out what it has nothing for."""
    fields = {"messages": [user()], "runId": "r", **fields}
    body = {"threadId": "t", "protocolVersion": "1.0", **fields}
    return (await browser.ask("POST", f"/agent/default/{operation}", body)).events()


async def connect_1(browser: Browser) -> list[Event]:
    return await ask_1(browser, "connect", runId="connect", messages=[])


@asynccontextmanager
async def stopped(browser: Browser, model: Parrot, **fields: Any) -> AsyncGenerator[Exchange, None]:
    """Run, stop the run in the middle of a text, and yield what is left of it."""
    gate = model.gate = Gate()
    async with browser.running(**fields) as exchange:
        gate.release(2)
        await exchange.until("TEXT_MESSAGE_CONTENT")
        await browser.stop()
        model.gate = None
        yield exchange


@in_one_test("version", [None, "1.0", "0.9", "1.7", "2.0", "next"])
async def test_every_run_begins_with_the_version_that_the_server_speaks(version: str | None):
    fields = {} if version is None else {"protocolVersion": version}
    async with browsing() as browser:
        live = (await browser.run(**fields)).events()
        replayed = (await browser.connect()).events()

    assert live[0]["protocolVersion"] == replayed[0]["protocolVersion"] == "1.0"


@in_one_test("version", [1.0, ["1.0"], {}])
@in_one_test("operation", ["run", "connect", "suggest"])
async def test_a_version_that_is_no_text_is_refused(version: Any, operation: str):
    body = {**connect_input("t"), "protocolVersion": version}
    async with browsing() as browser:
        answer = await browser.ask("POST", f"/agent/default/{operation}", body)

    assert answer.status == 400
    assert answer.json()["details"] == "protocolVersion must be a string."


async def test_versions_that_somebody_makes_up_fill_neither_the_log_nor_the_memory(
    caplog: pytest.LogCaptureFixture,
):
    async with browsing() as browser:
        for number in range(50):
            body = {**connect_input("t"), "protocolVersion": f"{number + 2}.{'x' * 10_000}"}
            assert (await browser.ask("POST", "/agent/default/connect", body)).status == 200

    lines = [line.getMessage() for line in caplog.records if "AG-UI" in line.getMessage()]
    assert len(lines) <= 32
    assert max(map(len, lines), default=0) < 100


@in_one_test("version", ["1.0", "1.1", "1.10", "2.0", "of tomorrow"])
async def test_a_run_that_is_stopped_ends_as_cancelled_with_everything_closed(version: str):
    model = Parrot("one ", "two")
    async with (
        browsing(model) as browser,
        stopped(browser, model, protocolVersion=version) as run,
    ):
        events = await run.rest()

    assert [event["type"] for event in events[-2:]] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert events[-1] == {
        "type": "RUN_FINISHED",
        "threadId": "t",
        "runId": "r",
        "outcome": CANCELLED,
    }


@in_one_test("version", [None, "0.9", "0.0"])
async def test_a_client_of_before_1_0_gets_a_stop_as_it_always_did(version: str | None):
    model = Parrot("one ", "two")
    fields = {} if version is None else {"protocolVersion": version}
    async with browsing(model) as browser, stopped(browser, model, **fields) as run:
        events = await run.rest()

    assert [event["type"] for event in events[-2:]] == ["TEXT_MESSAGE_END", "RUN_ERROR"]
    assert events[-1] == ABORTED


async def test_a_call_that_a_stop_cut_off_is_closed_and_answered_before_the_end():
    gate = Gate()
    model = ScriptedAdapter(call("setColor", {"color": "red"}, id="c"), gate=gate)
    async with (
        browsing(model) as browser,
        browser.running(protocolVersion="1.0", tools=[TOOL]) as run,
    ):
        gate.release(2)
        await run.until("TOOL_CALL_ARGS")
        await browser.stop()
        events = await run.rest()

    types = [event["type"] for event in events[-3:]]
    assert types == ["TOOL_CALL_END", "TOOL_CALL_RESULT", "RUN_FINISHED"]
    assert events[-1]["outcome"] == CANCELLED


@in_one_test("store", ["memory", "sqlite"])
async def test_each_client_is_shown_a_stopped_run_in_its_own_words(store: str, tmp_path: Any):
    model = Parrot("one ", "two")
    place = store if store == "memory" else f"sqlite:{tmp_path}/threads.db"
    async with browsing(model, settings=Settings(threads=place)) as browser:
        async with stopped(browser, model) as run:
            await run.rest()
        last_before = (await browser.connect()).events()[-1]
        last_1 = (await connect_1(browser))[-1]
        await browser.run(run="r2", messages=[user("Again", "user-2")])
        before = (await browser.connect()).events()
        now = await connect_1(browser)

    assert (last_before, last_1["outcome"]) == (ABORTED, CANCELLED)
    ends = [event for event in before if event["type"].startswith("RUN_") and "input" not in event]
    assert [end["type"] for end in ends] == ["RUN_FINISHED", "RUN_FINISHED"]
    assert [end.get("outcome") for end in ends] == [None, None]
    outcomes = [event.get("outcome") for event in now if event["type"] == "RUN_FINISHED"]
    assert outcomes == [CANCELLED, None]


async def test_a_reader_of_a_run_under_way_is_told_of_its_stop_in_its_own_words():
    model = Parrot("one ", "two")
    gate = model.gate = Gate()
    body = {**connect_input("t"), "protocolVersion": "1.0"}
    async with browsing(model) as browser, browser.running() as run:
        gate.release(2)
        await run.until("TEXT_MESSAGE_CONTENT")
        async with browser.open("POST", "/agent/default/connect", body) as reader:
            await reader.until("TEXT_MESSAGE_CONTENT")
            await browser.stop()
            ends = ((await run.rest())[-1], (await reader.rest())[-1]["outcome"])

    assert ends == (ABORTED, CANCELLED)


async def test_a_run_that_is_stopped_before_it_began_begins_and_is_cancelled():
    async def stop(run: RunInput) -> None:
        raise Cancelled("The run was stopped before it began.")

    async with browsing(hooks=Hooks(before_request=stop)) as browser:
        now = await ask_1(browser)
        before = (await browser.run()).events()

    assert [event["type"] for event in now] == ["RUN_STARTED", "RUN_FINISHED"]
    assert now[-1]["outcome"] == CANCELLED
    assert before == [{**ABORTED, "message": "The run was stopped before it began."}]


async def test_a_success_names_the_calls_that_wait_for_the_page():
    model = ScriptedAdapter(
        [*call("setColor", {}, id="c1"), *call("setColor", {}, id="c2")],
        [*call("setColor", {}, id="c3")],
    )
    async with browsing(model) as browser:
        now = await ask_1(browser, tools=[TOOL])
        before = (await browser.run(run="r2", tools=[TOOL])).events()
        replayed = await connect_1(browser)

    pending = {"type": "success", "pendingToolCallIds": ["c1", "c2"]}
    assert now[-1]["outcome"] == pending
    assert "outcome" not in before[-1]
    ends = [event["outcome"] for event in replayed if event["type"] == "RUN_FINISHED"]
    assert ends == [pending, {"type": "success", "pendingToolCallIds": ["c3"]}]


async def test_a_success_without_such_calls_names_none():
    done = ActionExecutionResult(call_id="c", name="look", result="3")
    async with browsing(**agent_that(*call("look", {}, id="c"), done)) as browser:
        events = await ask_1(browser)

    assert "outcome" not in events[-1]


async def test_tools_and_context_may_be_missing():
    async with browsing() as browser:
        events = await ask_1(browser)

    assert text_of(events) == "You said Hi"


async def test_a_part_that_nobody_knows_is_left_out_and_the_rest_is_read():
    agent = Plays()
    text = {"type": "text", "text": "Look"}
    strange = [
        {"type": "hologram", "depth": 3},
        {"type": "image", "source": {"type": "satellite", "value": "x"}},
    ]
    async with browsing(agents={"default": agent}) as browser:
        events = await ask_1(browser, messages=[user([strange[0], text, strange[1]])])

    assert events[-1]["type"] == "RUN_FINISHED"
    assert agent.runs[0].messages == [
        TextMessage(id="user-1", role="user", content="Look", parts=(TextPart(text="Look"),))
    ]


async def test_a_file_at_a_provider_is_shown_to_each_client_as_it_knows_it():
    agent = Plays()
    source = {"type": "file", "value": "file-1", "provider": "openai", "mimeType": "image/png"}
    sent = [{"type": "image", "id": "p", "source": source, "metadata": {"a": 1}}]
    async with browsing(agents={"default": agent}) as browser:
        now = await ask_1(browser, messages=[user(sent)])
        before = (await browser.connect()).events()

    (message,) = agent.runs[0].messages
    assert isinstance(message, TextMessage)
    assert message.parts == (
        MediaPart(
            kind="image",
            source="id",
            value="file-1",
            mime_type="image/png",
            metadata={"a": 1},
            id="p",
            provider="openai",
        ),
    )
    assert now[0]["input"]["messages"][0]["content"] == sent
    assert before[0]["input"]["messages"][0]["content"] == [
        {"type": "binary", "mimeType": "image/png", "id": "file-1"}
    ]


async def test_a_result_in_parts_reaches_the_agent_in_parts():
    agent = Plays()
    asked = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        user(),
        {"id": "a", "role": "assistant", "toolCalls": [asked]},
        {"id": "t", "role": "tool", "toolCallId": "c", "content": PARTS},
    ]
    async with browsing(agents={"default": agent}) as browser:
        now = await ask_1(browser, messages=messages)
        before = (await browser.connect()).events()

    assert agent.runs[0].messages[-1] == ResultMessage(
        id="t",
        call_id="c",
        name="look",
        result=PARTS_AS_TEXT,
        parts=(TextPart(text="A cat."), MediaPart(kind="image", source="url", value=URL)),
    )
    assert now[0]["input"]["messages"][-1]["content"] == PARTS
    assert before[0]["input"]["messages"][-1]["content"] == PARTS_AS_TEXT


@in_one_test("store", ["memory", "sqlite"])
async def test_a_result_in_parts_is_a_list_for_clients_of_1_0_and_text_before(
    store: str, tmp_path: Any
):
    place = store if store == "memory" else f"sqlite:{tmp_path}/threads.db"
    result = ActionExecutionResult(
        call_id="c",
        name="look",
        result=PARTS_AS_TEXT,
        parts=[TextPart(text="A cat."), MediaPart(kind="image", source="url", value=URL)],
    )
    events = [*call("look", {}, id="c"), result]
    settings = Settings(threads=place)
    async with browsing(**agent_that(*events), settings=settings) as browser:
        live = await ask_1(browser)
        shown = [live, await connect_1(browser), (await browser.connect()).events()]

    contents = [
        event["content"] for run in shown for event in run if event["type"] == "TOOL_CALL_RESULT"
    ]
    assert contents == [PARTS, PARTS, PARTS_AS_TEXT]


async def test_counts_that_nobody_knows_are_absent_and_those_of_a_model_are_added_up():
    known = Usage(model="m", provider="p", input_tokens=3, output_tokens=4, cached_tokens=0)
    events = [
        Usage(model="m", provider="p", input_tokens=1, output_tokens=2, cache_write_tokens=1),
        Usage(model="n", output_tokens=2),
        Usage(model="silent"),
        known,
    ]
    async with browsing(**agent_that(*events)) as browser:
        end = (await ask_1(browser))[-1]

    assert end["usage"] == [
        {
            "provider": "p",
            "model": "m",
            "inputTokens": 4,
            "outputTokens": 6,
            "cachedInputTokens": 0,
            "cacheWriteInputTokens": 1,
            "totalTokens": 10,
        },
        {"model": "n", "outputTokens": 2},
    ]


@in_one_test("fields", [{}, {"protocolVersion": "1.0"}], ids=["before", "1.0"])
async def test_a_referee_from_outside_finds_no_fault_live_and_later(fields: dict[str, str]):
    model = Parrot("one ", "two")
    async with browsing(model) as browser:
        async with stopped(browser, model, **fields) as run:
            streams = [await run.rest()]
        for number in (2, 3):
            message = user("Again", f"user-{number}")
            answer = await browser.run(run=f"r{number}", messages=[message], **fields)
            streams.append(answer.events())
        body = {**connect_input("t"), **fields}
        answer = await browser.ask("POST", "/agent/default/connect", body)
        streams.append(answer.events())

    assert [find_faults(events) for events in streams] == [[]] * 4


async def show_everything(run: RunInput) -> AsyncIterator[dict[str, Any]]:
    """Show each of the seven features of AG-UI's dojo, as an agent that speaks AG-UI."""
    rule = {"state_key": "text", "tool": "write", "tool_argument": "text"}
    yield {"type": "STATE_SNAPSHOT", "snapshot": {"text": "", "steps": []}}
    yield {"type": "CUSTOM", "name": "PredictState", "value": [rule]}
    for id, name in (("c-1", "write"), ("c-2", "show_chart")):
        yield {"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": name}
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": '{"text": "Hi"}'}
        yield {"type": "TOOL_CALL_END", "toolCallId": id}
    done = {"messageId": "m-1", "toolCallId": "c-1", "content": "written"}
    yield {"type": "TOOL_CALL_RESULT", **done}
    change = [{"op": "add", "path": "/steps/-", "value": "written"}]
    yield {"type": "STATE_DELTA", "delta": change}
    yield {"type": "TEXT_MESSAGE_START", "messageId": "m-2", "role": "assistant"}
    yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m-2", "delta": "Shall I send it?"}
    yield {"type": "TEXT_MESSAGE_END", "messageId": "m-2"}
    asked = {"id": "i-1", "reason": "approval", "message": "Send it?"}
    yield {"type": "RUN_FINISHED", "outcome": {"type": "interrupt", "interrupts": [asked]}}


@in_one_test("fields", [{}, {"protocolVersion": "1.0"}], ids=["before", "1.0"])
async def test_a_referee_from_outside_sees_all_seven_features(fields: dict[str, str]):
    async with browsing(agents={"it": show_everything}) as browser:
        live = (await browser.run(agent="it", **fields)).events()
        body = {**connect_input("t"), **fields}
        again = (await browser.ask("POST", "/agent/it/connect", body)).events()

    assert [find_faults(events, FEATURES) for events in (live, again)] == [[], []]


async def test_counts_that_are_no_counts_are_absent():
    strange: Any = ["3", -1, 2.0, "many", None]
    names = ["input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens"]
    usage = Usage(model="m", **dict(zip(names, strange, strict=False)))
    async with browsing(**agent_that(usage)) as browser:
        end = (await ask_1(browser))[-1]

    assert end["usage"] == [{"model": "m", "inputTokens": 3, "cachedInputTokens": 2}]


@in_one_test(
    ("reason", "word"),
    [("stop", "stop"), ("tool_calls", "tool-calls"), ("refusal", "content-filter")],
)
async def test_why_the_model_stopped_is_said_in_the_words_of_node(reason: str, word: str):
    usage = Usage(model="m", input_tokens=1, stop_reason=reason)
    async with browsing(**agent_that(usage)) as browser:
        now = (await ask_1(browser))[-1]
        before = (await browser.connect()).events()[-1]

    assert before["finishReason"] == before["usage"][0]["finishReason"] == word
    assert now["metadata"] == {"finishReason": word}
    assert "finishReason" not in now
    assert "finishReason" not in now["usage"][0]


async def test_two_answers_in_a_thread_have_two_ids_though_the_provider_repeats_its_own():
    """The client sends only its last message, so that the first answer is not in its request."""
    async with upstream() as provider, browsing(provider.adapter()) as browser:
        for number in (1, 2):
            await ask_1(browser, runId=f"r{number}", messages=[user(id=f"user-{number}")])
        events = await connect_1(browser)
        messages = (await browser.ask("GET", "/threads/t/messages")).json()["messages"]

    starts = [event["messageId"] for event in events if event["type"] == "TEXT_MESSAGE_START"]
    assert len({*starts}) == 2
    assert [message["role"] for message in messages] == ["user", "assistant"] * 2


async def test_the_demo_counts_no_tokens_that_it_does_not_know():
    async with browsing(DemoAdapter()) as browser:
        end = (await ask_1(browser))[-1]

    known = {"provider", "model", "inputTokens", "outputTokens", "totalTokens"}
    assert end["usage"][0].keys() <= known
