"""What a page asks of the model reaches the adapter through both doors, where it may ask."""

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.api import Parameters
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.transports.body import has_more_values
from tests.in_one_test import in_one_test
from tests.wire.client import PLAIN, chat, user
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


def asked_by(
    door: str,
    properties: dict[str, Any],
    *,
    defaults: Any = None,
    settings: Mapping[str, Any] = {"page_models": ["other"]},
    **more: Any,
) -> Parameters:
    """Return what the adapter is asked for a page with these properties.

    `more` is beside them in the request: for v1 in its `data`. `defaults` are the server's.
    """
    adapter = ScriptedAdapter(say("Hello"))
    runtime = CopilotRuntime(
        adapter=adapter,
        parameters=defaults,
        settings=Settings(threads="memory", shared_state=False, **settings),
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
@in_one_test(
    "odd",
    [
        *("a text", [], None, {"temperature": "hot", "seed": True, "stop": "END", "model": ""}),
        *({"seed": 2**60, "reasoningEffort": ["low"]}, {"topP": 1e300, "responseSchema": []}),
    ],
)
def test_what_is_not_of_its_kind_is_passed_over(door: str, odd: Any) -> None:
    assert asked_by(door, {"forwardedParameters": odd}) == Parameters()


@doors
@in_one_test(
    ("allowed", "model"),
    [
        ((), None),
        (("another",), None),
        (("oth",), None),
        (("OTHER",), None),
        (("a", "other"), "other"),
        (("oth*",), "other"),
        (("*",), "other"),
    ],
)
def test_a_page_chooses_only_a_model_that_the_settings_allow(
    door: str, allowed: tuple[str, ...], model: str | None
) -> None:
    wishes = {"forwardedParameters": {"model": "other", "seed": 7}}

    asked = asked_by(door, wishes, settings={"page_models": allowed})

    assert asked == Parameters(model=model, seed=7)


@doors
def test_a_model_that_is_not_allowed_is_said_in_the_log(
    door: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    asked_by(door, {"forwardedParameters": {"model": "huge"}})
    assert "page_models does not have the model 'huge'" in caplog.text


def test_a_hook_of_the_server_may_choose_any_model() -> None:
    adapter = ScriptedAdapter(say("Hello"))
    chosen = Parameters(model="for-ann")
    runtime = CopilotRuntime(
        adapter=adapter,
        hooks=Hooks(before_request=lambda run: replace(run, parameters=chosen)),
        settings=Settings(threads="memory"),
    )
    with TestClient(runtime.app()) as client:
        client.post("/graphql/agent/default/run", json=run_input())
    assert adapter.requests[0].parameters == chosen


@doors
def test_the_servers_parameters_hold_until_the_page_asks_for_others(door: str) -> None:
    defaults: dict[str, Any] = {"model": "mine", "temperature": 0.2, "max_tokens": 500}
    wishes = {"forwardedParameters": {"model": "huge", "temperature": 0, "seed": 7}}

    assert asked_by(door, {}, defaults=defaults) == Parameters(**defaults)
    assert asked_by(door, wishes, defaults=defaults) == Parameters(
        model="mine", temperature=0, max_tokens=500, seed=7
    )


@doors
def test_parameters_of_the_constructor_count_more_than_those_of_the_settings(door: str) -> None:
    settings = {"parameters": {"temperature": 0.9, "top_p": 0.5}}
    assert asked_by(door, {}, settings=settings) == Parameters(temperature=0.9, top_p=0.5)
    assert asked_by(door, {}, defaults={"temperature": 0}, settings=settings) == Parameters(
        temperature=0, top_p=0.5
    )


@doors
def test_an_agent_has_parameters_of_its_own(door: str) -> None:
    model = ScriptedAdapter(say("Hello"))
    clerk = DirectAgent(model, parameters={"model": "small", "temperature": 0.1})
    runtime = CopilotRuntime(
        model,
        parameters={"temperature": 0.9, "max_tokens": 500},
        agents={"clerk": clerk},
        settings=Settings(threads="memory"),
    )
    with TestClient(runtime.app()) as client:
        if door == "graphql":
            client.post("/graphql", json=chat(query=PLAIN, agentSession={"agentName": "clerk"}))
        else:
            client.post("/graphql/agent/clerk/run", json=run_input())
    (request,) = model.requests
    assert request.parameters == Parameters(model="small", temperature=0.1)


TEXTS = st.text(st.sampled_from(['"', "\\", ",", "[", "{", "a", "\n", "\ud800"]))
VALUES = st.recursive(
    st.one_of(st.none(), st.integers(), TEXTS),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(TEXTS, inner)),
)


def count(value: Any) -> int:
    """Return how many brackets open and how many commas stand in the JSON of a value."""
    if not isinstance(value, list | dict):
        return 0
    members = [*value.values()] if isinstance(value, dict) else value
    return 1 + max(len(members) - 1, 0) + sum(map(count, members))


@given(value=VALUES, indent=st.sampled_from([None, 1]), ascii=st.booleans())
def test_commas_and_brackets_in_texts_are_no_values(
    value: Any, indent: int | None, ascii: bool
) -> None:
    data = json.dumps(value, indent=indent, ensure_ascii=ascii).encode(errors="surrogatepass")

    assert [has_more_values(data, most) for most in range(count(value) + 2)] == [
        *[True] * count(value),
        False,
        False,
    ]


@in_one_test(
    "start",
    [b'"', b'"' * 3_000_000, b'"\\', b" ", b'"a,', b'\\"', b'"\\",' * 600_000],
    ids=["text", "quotes", "backslash", "space", "commas", "not in a text", "escapes"],
)
def test_what_is_no_json_is_read_through_once(start: bytes) -> None:
    began = process_time()
    has_more_values(start + b"," * 300_000 + b" " * (4_000_000 - len(start)), 250_000)
    has_more_values(start + b" ," * 2_000_000, 1_900_000)

    assert process_time() - began < 5  # and not for hours
