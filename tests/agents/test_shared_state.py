"""The state an application shares: what the model is told of it, and how it changes it."""

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from copilot_runtime.adapters.scripted import ScriptedAdapter, call, say
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import Action, AgentInput, ContextItem, Parameters
from copilot_runtime.api.events import ActionExecutionResult, AgentState, Event
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import ToolsRefused
from tests.in_one_test import in_one_test
from tests.runs import run_input

pytestmark = pytest.mark.anyio

SNAPSHOT, DELTA = "AGUISendStateSnapshot", "AGUISendStateDelta"


async def said(
    adapter: ScriptedAdapter, state: Any = None, *, shared_state: bool = True, **more: Any
) -> list[Event]:
    agent = DirectAgent(adapter, shared_state=shared_state)
    agents = {more.get("agent") or "default": AgentInput(state=state)}
    return [event async for event in agent.run(run_input(agents=agents, **more))]


async def states(state: Any, *calls: tuple[str, Mapping[str, Any]]) -> tuple[list[Any], list[Any]]:
    """Return the states and the results that these calls, all of one turn, lead to."""
    turn = [
        event
        for number, (name, arguments) in enumerate(calls)
        for event in call(name, arguments, id=f"c{number}")
    ]
    events = await said(ScriptedAdapter(turn, say("Done.")), state)
    return (
        [event.state for event in events if isinstance(event, AgentState)],
        [
            orjson.loads(event.result)
            for event in events
            if isinstance(event, ActionExecutionResult)
        ],
    )


def offered(adapter: ScriptedAdapter) -> list[str]:
    return [action.name for action in adapter.requests[0].actions]


def system_message(adapter: ScriptedAdapter) -> str | None:
    first = adapter.requests[0].messages[0]
    assert isinstance(first, TextMessage)
    return first.content if first.role == "system" else None


async def test_a_snapshot_is_the_state_before_its_result():
    turn = call(SNAPSHOT, {"snapshot": {"counter": 7}}, id="c")
    events = await said(ScriptedAdapter(turn, say("Done.")), {})

    result = '{"success":true,"snapshot":{"counter":7}}'
    assert events == [
        *turn,
        AgentState(agent="default", state={"counter": 7}, thread_id="t", run_id="r"),
        ActionExecutionResult(call_id="c", name=SNAPSHOT, result=result),
        *say("Done."),
    ]


async def test_a_delta_changes_what_it_names():
    state = {"list": ["a"], "kept": {"deep": 1}}
    delta = [
        {"op": "add", "path": "/list/-", "value": "b"},
        {"op": "replace", "path": "/kept/deep", "value": 2},
    ]
    changed, results = await states(state, (DELTA, {"delta": delta}))

    assert changed == [{"list": ["a", "b"], "kept": {"deep": 2}}]
    assert results == [{"success": True, "delta": delta}]
    assert state == {"list": ["a"], "kept": {"deep": 1}}


async def test_calls_of_one_turn_build_on_each_other():
    changed, _ = await states(
        {},
        (SNAPSHOT, {"snapshot": {"n": 1}}),
        (DELTA, {"delta": [{"op": "add", "path": "/m", "value": 2}]}),
        (DELTA, {"delta": [{"op": "remove", "path": "/n"}]}),
    )
    assert changed == [{"n": 1}, {"n": 1, "m": 2}, {"m": 2}]


async def test_json_in_json_is_understood():
    changed, _ = await states(
        {},
        (SNAPSHOT, {"snapshot": '{"n": 1}'}),
        (DELTA, {"delta": '[{"op": "replace", "path": "/n", "value": 2}]'}),
    )
    assert changed == [{"n": 1}, {"n": 2}]


@in_one_test(
    ("name", "arguments", "reason"),
    [
        (
            DELTA,
            {"delta": [{"op": "add", "path": "/a/b", "value": 1}]},
            "The state stays as it is: add /a/b: ",
        ),
        (DELTA, {"delta": [{"op": "replace", "path": "/n"}]}, "The state stays as it is: "),
        (
            DELTA,
            {"delta": [{"op": "copy", "from": "", "path": "/n"}]},
            "delta.0.op: none of add, replace, remove",
        ),
        (DELTA, {"delta": ["add"]}, "delta.0.op: none of"),
        (DELTA, {"delta": "n = 2"}, "delta: not a list"),
        (DELTA, {}, "delta: not a list"),
        (SNAPSHOT, {}, "snapshot: missing"),
    ],
)
async def test_a_change_that_cannot_be_made_is_told_to_the_model(
    name: str, arguments: Mapping[str, Any], reason: str
):
    right = (DELTA, {"delta": [{"op": "add", "path": "/m", "value": 2}]})
    changed, results = await states({"n": 1}, (name, arguments), right)

    assert results[0]["error"]["code"] == "INVALID_ARGUMENTS"
    assert results[0]["error"]["message"].startswith(reason)
    assert changed == [{"n": 1, "m": 2}]


async def test_the_state_of_an_agent_has_its_name():
    turn = call(SNAPSHOT, {"snapshot": {}})
    events = await said(ScriptedAdapter(turn, say("Done.")), {}, agent="cook")
    assert [event.agent for event in events if isinstance(event, AgentState)] == ["cook"]


async def test_the_model_is_told_the_state_and_the_context():
    adapter = ScriptedAdapter(say("Hi"))
    context = [ContextItem("user name", "Ada"), ContextItem("page", '"home"')]
    await said(adapter, {"dish": "Käse"}, context=context)

    assert system_message(adapter) == (
        '## Context from the application\n\nuser name:\nAda\n\npage:\n"home"\n\n'
        "## Application State\n\nThis is state from the application that you can edit by calling "
        'AGUISendStateSnapshot or AGUISendStateDelta.\n\n```json\n{\n  "dish": "Käse"\n}\n```'
    )
    assert offered(adapter) == [SNAPSHOT, DELTA]


async def test_an_empty_state_may_be_filled_and_needs_no_words():
    adapter = ScriptedAdapter(say("Hi"))
    await said(adapter, {})
    assert (offered(adapter), system_message(adapter)) == ([SNAPSHOT, DELTA], None)


@in_one_test(
    "options",
    [
        {"shared_state": False},
        {"follow_up": "client"},
        {"parameters": Parameters(tool_choice="function", tool_choice_name="suggest")},
        {"parameters": Parameters(tool_choice="none")},
        {"actions": [Action(name=SNAPSHOT)]},
        {"state": None},
    ],
)
async def test_the_model_has_no_way_to_the_state(options: dict[str, Any]):
    adapter = ScriptedAdapter(say("Hi"))
    options = {"state": {"n": 1}, **options}
    await said(adapter, **options)

    assert DELTA not in offered(adapter)
    assert system_message(adapter) is None


async def test_a_client_without_a_state_gets_no_actions_for_it():
    adapter = ScriptedAdapter(say("Hi"))
    async for _ in DirectAgent(adapter).run(run_input()):
        pass
    assert offered(adapter) == []


async def test_the_context_of_a_v1_client_is_in_its_own_message_already():
    adapter = ScriptedAdapter(say("Hi"))
    await said(adapter, context=[ContextItem("user name", "Ada")], follow_up="client")
    assert system_message(adapter) is None


async def test_a_model_that_takes_no_tools_is_asked_again_without_those_for_the_state():
    refusal = ToolsRefused("gemma2:2b does not support tools")
    adapter = ScriptedAdapter(refusal, say("Hi"), say("Hi"))
    agent = DirectAgent(adapter, max_turns=1)
    agents = {"default": AgentInput(state={"dish": "Käse"})}

    for _ in range(2):
        events = [event async for event in agent.run(run_input(agents=agents))]
        assert events == [*say("Hi")]

    assert [len(request.actions) for request in adapter.requests] == [2, 0, 0]
    told = adapter.requests[-1].messages[0]
    assert isinstance(told, TextMessage)
    assert told.content == (
        "## Application State\n\nThis is state from the application.\n\n"
        '```json\n{\n  "dish": "Käse"\n}\n```'
    )


async def test_with_tools_of_the_page_the_refusal_of_all_tools_stays():
    adapter = ScriptedAdapter(ToolsRefused("gemma2:2b does not support tools"), say("Hi"))
    with pytest.raises(ToolsRefused):
        await said(adapter, {"n": 1}, actions=[Action(name="mark")])
    assert len(adapter.requests) == 1
