"""One adapter and the actions at hand: turns, calls, results and when a run ends."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from copilot_runtime import action
from copilot_runtime.adapters.scripted import Gate, ScriptedAdapter, call, say
from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import Action, Agent, ChatRequest, Parameters
from copilot_runtime.api.events import (
    ActionExecutionEnd,
    ActionExecutionResult,
    Event,
    Events,
    TextMessageContent,
)
from copilot_runtime.api.messages import ActionExecutionMessage, ResultMessage
from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.http.client import Upstream
from tests.agents.remote import (
    FINISHED,
    STARTED,
    Reply,
    asked,
    frame,
    graph_agent,
    remote_agent,
    text,
)
from tests.in_one_test import in_one_test
from tests.runs import forever, run_input

pytestmark = pytest.mark.anyio

BROWSER = Action(name="paint")


@action
async def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}"


async def said(adapter: ScriptedAdapter, *actions: Action, **more: Any) -> list[Event]:
    agent = DirectAgent(adapter, max_turns=3, action_timeout=more.pop("action_timeout", 60.0))
    return [event async for event in agent.run(run_input(actions=actions, **more))]


def result(name: str, text: str, call_id: str = "") -> ActionExecutionResult:
    return ActionExecutionResult(call_id=call_id or f"call-{name}", name=name, result=text)


def results(events: Sequence[Event]) -> list[str]:
    return [event.result for event in events if isinstance(event, ActionExecutionResult)]


async def test_a_text_is_passed_on_as_it_is() -> None:
    assert await said(ScriptedAdapter(say(["Hel", "lo"]))) == say(["Hel", "lo"])


async def test_a_client_that_asks_again_itself_gets_one_turn() -> None:
    adapter = ScriptedAdapter(call("greet", {"name": "Ada"}), say("never"))

    assert await said(adapter, greet, follow_up="client") == [
        *call("greet", {"name": "Ada"}),
        result("greet", "Hello Ada"),
    ]
    assert len(adapter.requests) == 1


async def test_the_model_is_asked_again_with_the_results_until_it_calls_nothing() -> None:
    adapter = ScriptedAdapter(
        call("greet", {"name": "Ada"}, id="c1"), call("greet", {"name": "Bob"}, id="c2"), say("Ok.")
    )
    run = {"parameters": Parameters(temperature=0, tool_choice="required")}
    events = await said(adapter, greet, **run)

    assert results(events) == ["Hello Ada", "Hello Bob"]
    assert events[-3:] == say("Ok.")
    assert adapter.requests[2].messages[1:] == [
        ActionExecutionMessage(id="c1", name="greet", arguments='{"name":"Ada"}'),
        ResultMessage(id="result-c1", call_id="c1", name="greet", result="Hello Ada"),
        ActionExecutionMessage(id="c2", name="greet", arguments='{"name":"Bob"}'),
        ResultMessage(id="result-c2", call_id="c2", name="greet", result="Hello Bob"),
    ]
    assert [request.parameters.tool_choice for request in adapter.requests] == [
        "required",
        None,
        None,
    ]
    assert adapter.requests[2].parameters.temperature == 0


async def test_calls_of_one_turn_run_at_the_same_time_and_answer_in_their_order() -> None:
    both_there, second_done = asyncio.Barrier(2), asyncio.Event()

    @action
    async def first() -> str:
        """Meet the second, and let it end before."""
        await both_there.wait()
        await second_done.wait()
        return "one"

    @action
    async def second() -> str:
        """Meet the first, and end before it."""
        await both_there.wait()
        second_done.set()
        return "two"

    turn = [*call("first"), *call("second")]
    events = await said(ScriptedAdapter(turn), first, second, follow_up="client")

    assert events == [*turn, result("first", "one"), result("second", "two")]


async def test_a_result_comes_before_the_next_call_when_it_is_ready() -> None:
    gate, done = Gate(), asyncio.Event()

    @action
    async def quick() -> str:
        """Answer at once."""
        done.set()
        return "ready"

    adapter = ScriptedAdapter([*call("quick", id="A1"), *call("quick", id="A2")], gate=gate)
    events = asyncio.create_task(said(adapter, quick, follow_up="client"))
    gate.release(3)
    await done.wait()
    await gate.wait_for_event()
    while any(task.get_name() == "action:quick" for task in asyncio.all_tasks()):
        await asyncio.wait([t for t in asyncio.all_tasks() if t.get_name() == "action:quick"])
    gate.release(3)

    assert await events == [
        *call("quick", id="A1"),
        result("quick", "ready", "A1"),
        *call("quick", id="A2"),
        result("quick", "ready", "A2"),
    ]


async def test_a_browser_action_ends_the_run() -> None:
    adapter = ScriptedAdapter(call("paint", {"color": "red"}), say("never"))

    assert await said(adapter, BROWSER) == call("paint", {"color": "red"})


async def test_a_server_action_beside_a_browser_action_is_answered_before_the_run_ends() -> None:
    turn = [*call("greet", {"name": "Ada"}), *call("paint")]
    adapter = ScriptedAdapter(turn, say("never"))
    events = await said(adapter, greet, BROWSER)

    assert [event for event in events if event in turn] == turn
    assert results(events) == ["Hello Ada"]


async def test_an_unknown_action_is_an_answer_to_the_model_that_names_the_known_ones() -> None:
    events = await said(ScriptedAdapter(call("great"), say("Sorry.")), greet, BROWSER)

    assert results(events) == [
        '{"error":{"code":"UNKNOWN_ACTION","message":'
        '"There is no action \'great\'. Known: greet, paint."},"result":""}'
    ]
    assert events[-3:] == say("Sorry.")


async def test_a_direct_result_is_the_answer_to_the_person() -> None:
    @action(return_direct=True)
    def answer() -> str:
        """Answer for the model."""
        return "42"

    events = await said(ScriptedAdapter(call("answer"), say("never")), answer)

    assert events == [
        *call("answer"),
        result("answer", "42"),
        *say("42", id="direct-call-answer"),
    ]


async def test_a_direct_action_that_fails_is_left_to_the_model() -> None:
    @action(return_direct=True)
    def answer() -> str:
        """Answer for the model."""
        raise RuntimeError("no idea")

    events = await said(ScriptedAdapter(call("answer"), say("Sorry.")), answer)

    assert events[-3:] == say("Sorry.")


async def test_a_model_that_never_stops_calling_is_stopped() -> None:
    adapter = ScriptedAdapter(*[call("greet", {"name": "Ada"})] * 9)

    with pytest.raises(LimitExceeded, match="3 times in a row"):
        await said(adapter, greet)
    assert len(adapter.requests) == 3


async def test_an_answer_of_thousands_of_calls_is_ended_and_its_actions_are_cancelled() -> None:
    at_work: set[int] = set()
    began = asyncio.Queue[int]()
    ended = asyncio.Event()

    async def work(values: Any, _context: object) -> None:
        at_work.add(values["n"])
        began.put_nowait(values["n"])
        try:
            await asyncio.Event().wait()
        finally:
            at_work.remove(values["n"])
            if not at_work:
                ended.set()

    class Model(ScriptedAdapter):
        async def stream(self, request: ChatRequest) -> Events:
            async for event in super().stream(request):
                yield event
                if isinstance(event, ActionExecutionEnd):
                    await began.get()

    calls = [event for n in range(5_000) for event in call("work", {"n": n}, id=f"c{n}")]

    with pytest.raises(LimitExceeded, match="One answer calls more than 256 actions"):
        await said(Model(calls), Action(name="work", run=work))
    assert at_work == {*range(256)}
    await ended.wait()


@in_one_test("arguments", ['{"name":', "[]", '{"name":1}', "{}", "\x00"])
async def test_malformed_arguments_are_an_answer_to_the_model(arguments: str) -> None:
    events = await said(ScriptedAdapter(call("greet", arguments), say("Sorry.")), greet)

    assert '"code":"INVALID_ARGUMENTS"' in results(events)[0]
    assert events[-3:] == say("Sorry.")


async def test_an_action_that_hangs_is_an_answer_and_does_not_hold_up_the_others() -> None:
    @action(timeout=0.01)
    async def hang() -> None:
        """Never end."""
        await forever()

    turn = [*call("hang"), *call("greet", {"name": "Ada"})]
    adapter = ScriptedAdapter(turn, say("Sorry."))
    hung, greeting = results(await said(adapter, hang, greet))

    assert "did not finish within 0.01 s" in hung
    assert greeting == "Hello Ada"


async def test_an_agent_closed_early_cancels_its_actions_and_its_adapter() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @action
    async def hang() -> None:
        """Wait until cancelled."""
        try:
            begun.set()
            await forever()
        finally:
            cancelled.set()

    adapter = ScriptedAdapter([*call("hang"), *say(["one", "two"])])
    events = DirectAgent(adapter).run(run_input(actions=[hang]))
    async for event in events:
        if isinstance(event, TextMessageContent):
            break
    await begun.wait()
    await events.aclose()

    await cancelled.wait()


async def test_the_model_is_offered_what_it_may_call() -> None:
    hidden = [Action(name="off", available="disabled"), Action(name="far", available="remote")]
    adapter = ScriptedAdapter(say("Ok."))
    await said(adapter, greet, BROWSER, *hidden)

    assert [offer.name for offer in adapter.requests[0].actions] == ["greet", "paint"]


COUNT = 3_000
CHUNK = {
    "event": "on_chat_model_stream",
    "run_id": "m",
    "metadata": {"langgraph_node": "answer"},
    "data": {"chunk": {"type": "AIMessageChunk", "id": "run-1", "content": "Hi"}},
}
PIECE = {"type": "TextMessageContent", "messageId": "m", "content": "x"}
BLOCKS: dict[str, bytes] = {
    "agui": b"".join(map(frame, [STARTED, *text("m", *"x" * COUNT), FINISHED])),
    "langgraph": b"event: events\ndata: %b\n\n" % json.dumps(CHUNK).encode() * COUNT,
    "remote": json.dumps(PIECE).encode() + b"\n" + (json.dumps(PIECE).encode() + b"\n") * COUNT,
}


AGENTS: dict[str, Callable[[], Agent]] = {
    "agui": lambda: AguiAgent("http://127.0.0.1:9/agent"),
    "langgraph": graph_agent,
    "remote": remote_agent,
}


@in_one_test("name", BLOCKS)
async def test_others_have_their_turn_within_a_block_of_thousands_of_events(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(*_: object) -> Reply:
        return Reply([BLOCKS[name]])

    monkeypatch.setattr(Upstream, "open", answer)
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    events = [event async for event in AGENTS[name]().run(asked())]
    other.cancel()

    assert len(events) > COUNT
    assert turns > COUNT / 100
