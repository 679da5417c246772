"""What a browser sends reaches the run, and what it asks about agents is answered."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from copilot_runtime import Caller, CopilotRuntime, EmptyAdapter, Events, RunInput, Settings
from copilot_runtime.api import AgentInput, ContextItem, Parameters, Resume
from copilot_runtime.api.events import (
    AgentState,
    Interrupt,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import ResultMessage
from copilot_runtime.api.run_input import GuardrailRules
from tests.in_one_test import in_one_test
from tests.wire.client import AGENTS, HEADERS, STATE, WHEN, Answer, Client, chat, client_of, merge

pytestmark = pytest.mark.anyio


class Listener:
    """An agent that keeps what it was asked, and shows a state, a text and a question."""

    description = "Keeps what it was asked."

    def __init__(self) -> None:
        self.runs: list[RunInput] = []

    async def run(self, run: RunInput) -> Events:
        self.runs.append(run)
        yield AgentState(agent="listener", node="ear", state={"heard": 1}, thread_id=run.thread_id)
        yield TextMessageStart(message_id="m1")
        yield TextMessageContent(message_id="m1", content="I hear.")
        yield TextMessageEnd(message_id="m1")
        yield Interrupt(interrupt_id="i1", value="Go on?")

    async def load_state(
        self, thread_id: str, caller: Caller
    ) -> tuple[dict[str, Any], list[Any]] | None:
        return ({"heard": 1}, []) if thread_id == "known" else None


class Silent:
    async def run(self, run: RunInput) -> Events:
        return
        yield  # an agent is a generator, even one that says nothing


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
async def agents(listener: Listener) -> AsyncGenerator[Client, None]:
    runtime = CopilotRuntime(
        adapter=EmptyAdapter(),
        agents={"listener": listener, "silent": Silent()},
        properties={"tenant": "ours", "userId": "nobody"},
        settings=Settings(threads="memory", page_models=("other",)),
    )
    async with client_of(runtime) as client:
        yield client


def talk(**more: Any) -> dict[str, Any]:
    return chat(agentSession={"agentName": "listener"}, **more)


def result_v1(call: str, result: str) -> dict[str, Any]:
    fields = {"actionExecutionId": call, "actionName": "getTime", "result": result}
    return {"id": f"result-{call}", "createdAt": WHEN, "resultMessage": fields}


def response(answer: Answer) -> dict[str, Any]:
    return merge(answer.payloads())["generateCopilotResponse"]


async def test_every_part_of_a_request_reaches_the_run(agents: Client, listener: Listener) -> None:
    body = talk(
        context=[{"description": "Where", "value": "in a test"}],
        agentStates=[{"agentName": "listener", "state": '{"a":1}', "config": '{"b":2}'}],
        metaEvents=[{"name": "LangGraphInterruptEvent", "value": "Go on?", "response": "Yes"}],
        forwardedParameters={
            "model": "other",
            "temperature": 0,
            "maxTokens": 0,
            "stop": ["END"],
            "toolChoice": "function",
            "toolChoiceFunctionName": "f",
        },
        cloud={"guardrails": {"inputValidationRules": {"allowList": ["a"], "denyList": ["b"]}}},
        extensions={"openaiAssistantAPI": {"runId": "r", "threadId": "t"}},
    )
    body["variables"]["data"]["agentSession"]["nodeName"] = "ear"

    await agents.ask(body)

    [run] = listener.runs
    assert run.thread_id == "thread-1"
    assert (run.agent, run.node, run.url) == ("listener", "ear", "http://localhost:3000/")
    assert run.context == [ContextItem("Where", "in a test")]
    assert run.agents == {"listener": AgentInput(state={"a": 1}, config={"b": 2})}
    assert run.resume == [Resume("Go on?", "Yes", payload="Yes")]
    assert run.parameters == Parameters(
        model="other",
        temperature=0,
        max_tokens=0,
        stop=["END"],
        tool_choice="function",
        tool_choice_name="f",
    )
    assert run.rules == GuardrailRules(allow=["a"], deny=["b"])
    assert run.extensions == {"openaiAssistantAPI": {"runId": "r", "threadId": "t"}}


async def test_properties_of_the_browser_come_on_top_of_ours(
    agents: Client, listener: Listener
) -> None:
    body = talk()
    body["variables"]["properties"] = {"userId": "u-1", "nested": {"flag": True}}

    await agents.ask(body)

    assert listener.runs[0].properties == {
        "tenant": "ours",
        "userId": "u-1",
        "nested": {"flag": True},
    }


async def test_an_empty_result_beside_a_real_one_does_not_reach_the_run(
    agents: Client, listener: Listener
) -> None:
    call = {"name": "getTime", "arguments": "{}", "scope": "server"}
    drawn, real, lonely = ("c1", ""), ("c1", "12:00"), ("c2", "")
    body = talk()
    body["variables"]["data"]["messages"] += [
        {"id": "c1", "createdAt": WHEN, "actionExecutionMessage": call},
        *(result_v1(id, result) for id, result in (drawn, real, lonely)),
    ]

    await agents.ask(body)

    [run] = listener.runs
    results = [one for one in run.messages if isinstance(one, ResultMessage)]
    assert [(one.call_id, one.result) for one in results] == [real, lonely]


async def test_only_headers_made_for_it_reach_the_run(agents: Client, listener: Listener) -> None:
    headers = {**HEADERS, "Authorization": "Bearer t", "X-Tenant": "ours", "Cookie": "session=1"}

    await agents.ask(talk(), headers=headers)

    assert listener.runs[0].headers == {"authorization": "Bearer t", "x-tenant": "ours"}


async def test_states_and_questions_of_an_agent_are_part_of_the_answer(agents: Client) -> None:
    answer = response(await agents.ask(talk()))

    state, text, last = answer["messages"]
    assert state["__typename"] == "AgentStateMessageOutput"
    assert (state["agentName"], state["nodeName"], state["state"]) == (
        "listener",
        "ear",
        '{"heard":1}',
    )
    assert text["content"] == ["I hear."]
    assert (last["state"], last["active"], last["running"]) == ('{"heard":1}', False, True)
    assert answer["metaEvents"] == [
        {
            "type": "MetaEvent",
            "name": "LangGraphInterruptEvent",
            "value": "Go on?",
            "__typename": "LangGraphInterruptEvent",
        }
    ]


async def test_an_agent_that_says_nothing_is_a_success(agents: Client) -> None:
    answer = response(await agents.ask(chat(agentSession={"agentName": "silent"})))

    assert (answer["messages"], answer["status"]["code"]) == ([], "Success")


async def test_one_agent_after_another_on_the_same_runtime(agents: Client) -> None:
    names = ["listener", "silent", "nobody", "listener", "silent"]

    answers = [await agents.ask(chat(agentSession={"agentName": name})) for name in names]

    assert ["multipart" in answer.headers["content-type"] for answer in answers] == [
        name != "nobody" for name in names
    ]


async def test_all_agents_are_available(agents: Client) -> None:
    answer = await agents.ask({"operationName": "availableAgents", "query": AGENTS})

    found = answer.json()["data"]["availableAgents"]["agents"]
    assert [(agent["name"], agent["description"]) for agent in found] == [
        ("listener", "Keeps what it was asked."),
        ("silent", ""),
    ]


@in_one_test(
    ("thread", "agent", "exists", "state"),
    [
        ("known", "listener", True, '{"heard":1}'),
        ("new", "listener", False, "{}"),
        ("known", "silent", False, "{}"),
    ],
)
async def test_the_state_of_a_thread_is_json_text(
    agents: Client, thread: str, agent: str, exists: bool, state: str
) -> None:
    variables = {"data": {"threadId": thread, "agentName": agent}}

    answer = await agents.ask(
        {"operationName": "loadAgentState", "query": STATE, "variables": variables}
    )

    assert answer.json()["data"]["loadAgentState"] == {
        "threadId": thread,
        "threadExists": exists,
        "state": state,
        "messages": "[]",
        "__typename": "LoadAgentStateResponse",
    }


async def test_the_state_of_an_unknown_agent_is_an_error(agents: Client) -> None:
    variables = {"data": {"threadId": "t", "agentName": "nobody"}}

    answer = await agents.ask({"query": STATE, "variables": variables})

    assert answer.json()["errors"][0]["extensions"]["code"] == "AGENT_NOT_FOUND"
    assert answer.json()["data"] is None


@in_one_test("state", ["", "{", "[]", "5", "[" * 100_000, '{"a":' * 100_000])
async def test_a_state_that_cannot_be_read_counts_as_empty(
    agents: Client, listener: Listener, state: str
) -> None:
    answer = await agents.ask(talk(agentStates=[{"agentName": "listener", "state": state}]))

    assert response(answer)["status"]["code"] == "Success"
    assert listener.runs[0].agents == {"listener": AgentInput()}


@in_one_test("schema", ["", "{", "[]", "5", "[" * 100_000])
async def test_a_browser_action_with_a_broken_schema_breaks_nothing(
    agents: Client, schema: str
) -> None:
    broken = {"name": "broken", "description": "", "jsonSchema": schema}

    answer = await agents.ask(talk(frontend={"actions": [broken]}))

    assert response(answer)["status"]["code"] == "Success"
