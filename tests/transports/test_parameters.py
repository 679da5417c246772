"""What a page asks of the model reaches the adapter through both doors."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.interfaces import Parameters
from tests.wire.documents import PLAIN, chat, user
from tests.wire_agui.http import run_input

WISHES = {
    "model": "other",
    "temperature": 0,
    "maxTokens": 9.0,
    "stop": ["END"],
    "toolChoice": "none",
    "parallelToolCalls": False,
    "topP": 0.5,
    "seed": 7,
    "frequencyPenalty": 0.1,
    "presencePenalty": -0.1,
    "reasoningEffort": "low",
    "responseSchema": {"type": "object"},
    "responseName": "answer",
}
ASKED = Parameters(
    model="other",
    temperature=0,
    max_tokens=9,
    stop=["END"],
    tool_choice="none",
    parallel_tool_calls=False,
    top_p=0.5,
    seed=7,
    frequency_penalty=0.1,
    presence_penalty=-0.1,
    reasoning_effort="low",
    response_schema={"type": "object"},
    response_name="answer",
)


def asked_by(door: str, properties: dict[str, Any], **more: Any) -> Parameters:
    """Return what the adapter is asked for a page with these properties.

    `more` is beside them in the request: for v1 in its `data`.
    """
    adapter = ScriptedAdapter(say("Hello"))
    runtime = CopilotRuntime(
        adapter=adapter, settings=Settings(threads="memory", shared_state=False)
    )
    with TestClient(runtime.app()) as client:
        if door == "graphql":
            body = chat(user("Hi"), query=PLAIN, **more)
            body["variables"]["properties"] = properties
            answer = client.post("/graphql", json=body)
        else:
            body = run_input(forwardedProps=properties, **more)
            answer = client.post("/graphql/agent/default/run", json=body)
    assert "Hello" in answer.text
    return adapter.requests[0].parameters


doors = pytest.mark.parametrize("door", ["graphql", "agui"])


@doors
def test_every_wish_of_a_page_reaches_the_adapter(door: str) -> None:
    assert asked_by(door, {"forwardedParameters": WISHES}) == ASKED


def test_a_client_of_v1_has_a_place_of_its_own_for_six_of_them() -> None:
    six = {
        "model": "other",
        "temperature": 0,
        "maxTokens": 9,
        "stop": ["END"],
        "toolChoice": "function",
        "toolChoiceFunctionName": "f",
    }
    asked = Parameters(
        model="other",
        temperature=0,
        max_tokens=9,
        stop=["END"],
        tool_choice="function",
        tool_choice_name="f",
    )

    assert asked_by("graphql", {}, forwardedParameters=six) == asked


def test_what_a_page_says_in_its_properties_wins_over_that_place() -> None:
    properties = {"forwardedParameters": {"temperature": 1, "seed": 7}}
    place = {"temperature": 0, "model": "other"}

    asked = asked_by("graphql", properties, forwardedParameters=place)

    assert asked == Parameters(model="other", temperature=1, seed=7)


def test_a_client_of_ag_ui_asks_in_its_forwarded_props_and_nowhere_else() -> None:
    asked = asked_by("agui", {"model": "Volvo"}, forwardedParameters={"model": "other"})

    assert asked == Parameters()


@doors
def test_a_property_that_happens_to_be_called_so_is_no_wish(door: str) -> None:
    assert asked_by(door, {"model": "Volvo", "temperature": 21, "seed": 3}) == Parameters()


@doors
@pytest.mark.parametrize(
    "odd",
    [
        *("a text", [], None, {"temperature": "hot", "seed": True, "stop": "END", "model": ""}),
        *({"seed": 2**60, "reasoningEffort": ["low"]}, {"topP": 1e300, "responseSchema": []}),
    ],
)
def test_what_is_not_of_its_kind_is_passed_over(door: str, odd: Any) -> None:
    assert asked_by(door, {"forwardedParameters": odd}) == Parameters()
