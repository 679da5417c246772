"""What a client of CopilotKit v1 is told of an agent at work."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from copilot_runtime import Action, Events, RunInput
from copilot_runtime.agents.v1_state import track_v1_state
from copilot_runtime.api import AgentInput
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    AgentState,
    Custom,
    Event,
    Interrupt,
    MessagesSnapshot,
    RunFinished,
    StepFinished,
    StepStarted,
)
from copilot_runtime.api.messages import ActionExecutionMessage, ResultMessage, TextMessage
from copilot_runtime.base.errors import IncompleteStream
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

Told = list[tuple[str, bool, bool, Any]]


def a_run(**options: Any) -> RunInput:
    known: dict[str, Any] = {"agent": "cook", "follow_up": "client"}
    return RunInput(thread_id="t", run_id="r", messages=[], **{**known, **options})


HERE = AgentState(agent="cook", state={}, thread_id="t", run_id="r")


async def told(run: RunInput, *said: Event | Exception, is_handoff: bool = False) -> list[Event]:
    async def agent() -> Events:
        for event in said:
            if isinstance(event, Exception):
                raise event
            yield event

    events: list[Event] = []
    try:
        async for event in track_v1_state(agent(), run, is_handoff=is_handoff):
            events.append(event)
    except Exception as error:
        events.append(Custom(name="raised", value=str(error)))
    return events


def states(events: Sequence[Event]) -> Told:
    """Return node, active, running and state of every state."""
    return [
        (event.node, event.active, event.running, event.state)
        for event in events
        if isinstance(event, AgentState)
    ]


def state(value: Any) -> AgentState:
    return AgentState(agent="cook", state=value)


def call(name: str, *pieces: str) -> list[Event]:
    args = [ActionExecutionArgs(call_id="c", delta=piece) for piece in pieces]
    return [ActionExecutionStart(call_id="c", name=name), *args, ActionExecutionEnd(call_id="c")]


async def test_steps_are_the_nodes_of_an_agent_that_no_longer_runs_when_it_has_ended():
    run = a_run(agents={"cook": AgentInput(state={"dishes": 0})})

    events = await told(
        run, StepStarted(name="boil"), state({"dishes": 1}), StepFinished(name="boil")
    )

    assert states(events) == [
        ("boil", True, True, {"dishes": 0}),
        ("boil", True, True, {"dishes": 1}),
        ("boil", False, True, {"dishes": 1}),
        ("boil", False, False, {"dishes": 1}),
    ]


async def test_an_agent_that_says_where_it_is_is_believed():
    said = replace(HERE, node="fry", state={"messages": [1]}, active=False)

    events = await told(a_run(), said, AgentState(agent="cook", node="", state={"a": 1}))

    assert events[0] == said
    assert states(events)[1] == ("fry", False, True, {"a": 1})


async def test_a_state_of_no_thread_is_one_of_this_run():
    events = await told(a_run(), AgentState(agent="cook", node="fry", state={}))

    assert events[0] == replace(HERE, node="fry")


async def test_an_agent_that_ends_at_work_has_not_said_its_last_word():
    events = await told(a_run(), replace(HERE, node="fry"))

    assert states(events) == [("fry", True, True, {}), ("fry", False, False, {})]


async def test_an_agent_that_says_whether_it_goes_on_has_the_last_word():
    said = replace(HERE, node="__end__", active=False)

    events = await told(a_run(), said)

    assert events == [said]


async def test_an_agent_without_a_state_shows_none():
    assert states(await told(a_run(), *call("own", "{}"))) == []


async def test_messages_in_a_state_are_those_of_the_chat_and_left_out():
    events = await told(a_run(), state({"messages": [{"role": "user"}], "dish": "soup"}))

    assert states(events)[0][3] == {"dish": "soup"}


async def test_a_snapshot_of_the_messages_is_part_of_the_states_after_it():
    messages = [
        TextMessage(id="u", role="user", content="Soup?"),
        ActionExecutionMessage(id="c", name="boil", arguments='{"water": 2}', parent_id="a"),
        ResultMessage(id="x", call_id="c", name="boil", result="hot"),
        TextMessage(id="e", role="assistant", content=""),
    ]

    events = await told(a_run(), MessagesSnapshot(messages=messages))

    assert states(events)[-1][3] == {
        "messages": [
            {"id": "u", "role": "user", "content": "Soup?"},
            {"id": "c", "name": "boil", "arguments": {"water": 2}, "parentMessageId": "a"},
            {"id": "x", "result": "hot", "actionExecutionId": "c", "actionName": "boil"},
        ]
    }


@in_one_test(
    ("said", "running"),
    [
        (call("paint", "{}"), True),
        (
            [*call("paint", "{}"), ActionExecutionResult(call_id="c", name="paint", result="")],
            False,
        ),
        (call("its_own", "{}"), False),
        ([Interrupt(interrupt_id="i", value="Go on?")], True),
        ([Custom(name="on_interrupt", value="Go on?")], True),
        ([*call("paint", "{}"), Custom(name="Exit", value=True)], False),
    ],
)
async def test_an_agent_runs_on_while_the_browser_or_a_person_has_to_act(
    said: list[Event], running: bool
):
    run = a_run(actions=[Action(name="paint")])

    events = await told(run, state({"a": 1}), *said)

    assert states(events)[-1][2] is running


@in_one_test("error", [IncompleteStream("It broke off"), ValueError("It broke off")])
async def test_an_agent_that_fails_no_longer_runs(error: Exception):
    events = await told(a_run(), state({"a": 1}), error)

    assert states(events)[-1] == ("", False, False, {"a": 1})
    assert events[-1] == Custom(name="raised", value="It broke off")


@in_one_test("said", [[Interrupt(interrupt_id="i", value="Go on?")], call("paint")])
async def test_who_was_handed_over_to_and_waits_says_who_it_is_even_without_a_state(
    said: list[Event],
):
    run = a_run(actions=[Action(name="paint")])

    assert states(await told(run, *said)) == []
    assert states(await told(run, *said, is_handoff=True)) == [("", False, True, {})]


async def test_the_last_state_comes_before_the_result_of_the_run():
    events = await told(a_run(), state({"a": 1}), RunFinished(result=3))

    assert [event.type for event in events] == ["agent_state", "agent_state", "run_finished"]


async def test_an_announced_argument_is_shown_in_the_state_while_it_is_written():
    rule = {"state_key": "recipe", "tool": "write", "tool_argument": "text"}
    said = [Custom(name="PredictState", value=[rule]), *call("write", '{"text": "Bo', 'il"', "}")]

    events = await told(a_run(), state({"a": 1}), *said)

    assert [one[3] for one in states(events)][1:-1] == [
        {"a": 1, "recipe": "Bo"},
        {"a": 1, "recipe": "Boil"},
    ]


@in_one_test("rules", [None, 7, [3], [{"tool": "write"}], [{"state_key": 1}]])
async def test_a_rule_that_cannot_be_read_predicts_nothing(rules: Any):
    said = [Custom(name="PredictState", value=rules), *call("write", '{"text": "Bo', '"}')]

    assert states(await told(a_run(), *said)) == []


async def test_a_long_argument_is_not_read_anew_for_every_piece():
    rule = {"state_key": "recipe", "tool": "write", "tool_argument": "text"}
    pieces = ['{"text": "', *["salt "] * 20_000, '"}']
    said = [Custom(name="PredictState", value=[rule]), *call("write", *pieces)]

    shown = [one[3]["recipe"] for one in states(await told(a_run(), *said))]

    assert shown[-1] == "salt " * 20_000
    assert len(shown) < 1_000


async def test_an_argument_of_no_name_is_all_arguments():
    rule = {"state_key": "recipe", "tool": "write", "tool_argument": ["text"]}
    said = [Custom(name="PredictState", value=[rule]), *call("write", '{"text": "Boil"}')]

    events = await told(a_run(), state({}), *said)

    assert states(events)[1][3] == {"recipe": {"text": "Boil"}}


async def test_a_question_of_langgraph_is_one_of_copilotkit():
    asked = Custom(name="on_interrupt", value='{"question":"ok?"}')
    again = Interrupt(interrupt_id="i", value={"id": "i", "reason": "input"})

    events = await told(a_run(), asked, again)

    [question] = [event for event in events if isinstance(event, Interrupt)]
    assert (question.value, question.messages) == ('{"question":"ok?"}', ())


async def test_a_question_may_come_with_messages_and_a_call():
    messages = [
        {"id": "m", "role": "assistant", "content": "Choose"},
        {"id": "c", "name": "pick", "arguments": {"of": 2}},
        {"id": "x", "actionExecutionId": "c", "actionName": "pick", "result": [1]},
        {"nonsense": True},
        3,
    ]
    value = {"value": "pick", "messages": messages}

    asked = Custom(name="CopilotKitLangGraphInterruptEvent", value=value)

    [question] = await told(a_run(), asked)

    assert isinstance(question, Interrupt)
    assert question.value == "pick"
    assert question.messages == [
        TextMessage(id="m", role="assistant", content="Choose"),
        ActionExecutionMessage(id="c", name="pick", arguments='{"of":2}'),
        ResultMessage(id="x", call_id="c", name="pick", result="[1]"),
    ]


@in_one_test("options", [{"agent": None}, {"follow_up": "server"}])
async def test_all_other_runs_stay_as_they_are(options: dict[str, Any]):
    said = [StepStarted(name="boil"), state({"a": 1}), Custom(name="on_interrupt", value=1)]

    assert await told(a_run(**options), *said) == said
