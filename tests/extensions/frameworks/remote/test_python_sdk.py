"""The real thing: `add_fastapi_endpoint` of the installed package `copilotkit`."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from fastapi import FastAPI

from copilot_runtime.api import ActionContext, Caller
from copilot_runtime.api.events import (
    AgentState,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.frameworks.remote import RemoteEndpoint
from tests.extensions.frameworks.remote.endpoint import agent_of, asked, heard
from tests.wire_agui.server import serving

pytest.importorskip("copilotkit")

from copilotkit import Action, CopilotKitRemoteEndpoint, LangGraphAGUIAgent
from copilotkit import protocol as spoken
from copilotkit.agent import Agent
from copilotkit.integrations.fastapi import add_fastapi_endpoint

# the package has no types of its own
from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]

pytestmark = pytest.mark.anyio


class Crew(Agent):
    """An agent of one's own, in the words of the SDK's protocol."""

    def __init__(self) -> None:
        super().__init__(name="crew", description="A crew.")
        self.asked: list[dict[str, Any]] = []
        self.left = asyncio.Event()

    def dict_repr(self) -> Any:
        return {**super().dict_repr(), "type": "crewai"}

    def execute(self, **asked: Any) -> Any:
        self.asked.append(asked)
        return self._answer(asked)

    async def get_state(self, *, thread_id: str) -> Any:
        return {"threadId": thread_id, "threadExists": True, "state": {"n": 1}, "messages": []}

    async def _answer(self, asked: dict[str, Any]) -> AsyncIterator[str]:
        yield spoken.emit_runtime_events(
            spoken.text_message_start(message_id="m"),
            spoken.text_message_content(message_id="m", content="Hello"),
            spoken.text_message_end(message_id="m"),
        )
        if asked["messages"][-1]["content"] == "wait":
            try:
                await asyncio.Event().wait()
            finally:
                self.left.set()
        yield spoken.emit_runtime_event(
            spoken.agent_state_message(
                thread_id=asked["thread_id"],
                agent_name="crew",
                node_name="end",
                run_id="r-2",
                active=False,
                role="assistant",
                state=json.dumps(asked["state"]),
                running=False,
            )
        )


@pytest.fixture
def crew() -> Crew:
    return Crew()


@pytest.fixture
async def endpoint(anyio_backend: str, crew: Crew) -> AsyncGenerator[RemoteEndpoint, None]:
    del anyio_backend

    def unchanged(state: Any) -> Any:
        return state

    graph: Any = StateGraph(MessagesState)
    graph.add_node("answer", unchanged)
    graph.add_edge(START, "answer")

    def add(a: int, b: int) -> int:
        return a + b

    def fail() -> None:
        raise ValueError("No such luck.")

    def actions(context: Any) -> Any:
        return [
            Action(name="add", handler=add, parameters=[{"name": "a", "type": "number"}]),
            Action(name="fail", handler=fail),
            Action(name=context["properties"].get("extra", "none"), handler=fail),
        ]

    agents: list[Any] = [crew, LangGraphAGUIAgent(name="graph", graph=graph.compile())]
    sdk = CopilotKitRemoteEndpoint(actions=actions, agents=agents)
    app = FastAPI()
    add_fastapi_endpoint(app, sdk, "/copilotkit")
    async with serving(app) as port:
        endpoint = RemoteEndpoint(f"http://127.0.0.1:{port}/copilotkit")
        yield endpoint
        await endpoint.aclose()


async def result_of(endpoint: RemoteEndpoint, name: str, **values: Any) -> Any:
    actions = {action.name: action for action in await endpoint.actions(asked())}
    context = ActionContext(thread_id="t", run_id="r", call_id="c", properties={}, headers={})
    run = actions[name].run
    assert run is not None
    return await run(values, context)


async def test_its_actions_run_there(endpoint: RemoteEndpoint) -> None:
    assert await result_of(endpoint, "add", a=1, b=2) == 3


async def test_an_action_that_fails_there_says_why(endpoint: RemoteEndpoint) -> None:
    with pytest.raises(Exception, match=r"No such luck\."):
        await result_of(endpoint, "fail")


async def test_what_it_offers_may_depend_on_the_properties(endpoint: RemoteEndpoint) -> None:
    found = [
        [action.name for action in await endpoint.actions(asked(properties=properties))]
        for properties in ({}, {"extra": "more"})
    ]

    assert found == [["add", "fail", "none"], ["add", "fail", "more"]]


async def test_its_agents_answer(endpoint: RemoteEndpoint, crew: Crew) -> None:
    events = await heard(await agent_of(endpoint), asked(node="ask"))

    assert events == [
        TextMessageStart(message_id="m"),
        TextMessageContent(message_id="m", content="Hello"),
        TextMessageEnd(message_id="m"),
        AgentState(
            agent="crew",
            state={},
            node="end",
            thread_id="t",
            run_id="r-2",
            active=False,
            running=False,
        ),
    ]
    [run] = crew.asked
    assert (run["thread_id"], run["node_name"], run["meta_events"]) == ("t", "ask", [])


async def test_an_agent_is_stopped_there_when_nobody_listens(
    endpoint: RemoteEndpoint, crew: Crew
) -> None:
    agent = await agent_of(endpoint)
    wait = asked("wait")

    async with aclosing(agent.run(wait)) as events:
        await anext(events)

    await crew.left.wait()


async def test_it_tells_the_state_of_a_thread(endpoint: RemoteEndpoint) -> None:
    agent: Any = await agent_of(endpoint)

    assert await agent.load_state("t", Caller()) == ({"n": 1}, [])


async def test_its_own_agents_of_langgraph_are_for_ag_ui(endpoint: RemoteEndpoint) -> None:
    with pytest.raises(ConfigurationFailed, match="where it speaks AG-UI"):
        await agent_of(endpoint, "graph")
