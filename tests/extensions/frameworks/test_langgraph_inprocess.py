"""A compiled graph of LangGraph answers, in this process."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver

# langgraph has types, but says so in none of its folders
from langgraph.graph import MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime

from copilot_runtime import CopilotRuntime, RunInput, Settings, action
from copilot_runtime.api import Caller
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.frameworks.langgraph.inprocess import LangGraphInProcessAgent
from tests.agents.pages import (
    PAINT,
    asked_v1,
    failure,
    page_v1,
    results,
    texts_v1,
)
from tests.extensions.frameworks.langgraph import graphs
from tests.extensions.frameworks.langgraph.asking import shown, state_of
from tests.wire.client import STATE
from tests.wire.client import user as user_v1
from tests.wire_agui.http import Event, text_of, user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio


def kept(graph: Any) -> Any:
    """Return a graph of a server with a memory of its own."""
    return graph.builder.compile(checkpointer=InMemorySaver())


def graph_of(node: Any) -> Any:
    """Return a graph of one node, with a memory."""
    graph = StateGraph(MessagesState).add_node("node", node)
    graph.set_entry_point("node")
    return graph.compile(checkpointer=InMemorySaver())


def kinds(events: Sequence[Event]) -> list[str]:
    """Return the types of events, those in a row once."""
    found = [event["type"] for event in events]
    return [kind for at, kind in enumerate(found) if at == 0 or found[at - 1] != kind]


async def test_a_graph_is_registered_as_it_is() -> None:
    async with browsing(agents={"it": kept(graphs.chat)}) as browser:
        events = (await browser.run(agent="it", messages=[user("Hi there")])).events()

    assert text_of(events) == "You said: Hi there "
    assert state_of(events) == {"topic": "Hi there", "turns": 1}
    assert {event["stepName"] for event in events if "stepName" in event} == {"answer"}
    assert "RAW" not in kinds(events)
    assert events[-1]["type"] == "RUN_FINISHED"


async def test_a_v1_page_is_told_by_states_where_the_agent_is() -> None:
    async with page_v1(kept(graphs.chat)) as client:
        answer = await asked_v1(client, user_v1("Hi"))

    assert texts_v1(answer) == ["You said: Hi "]
    last = [message for message in answer["messages"] if "state" in message][-1]
    assert (last["nodeName"], last["active"], last["running"]) == ("answer", False, False)


async def test_a_thread_goes_on_and_gets_only_what_is_new() -> None:
    graph = kept(graphs.chat)
    async with browsing(agents={"it": graph}) as browser:
        before = [user("One")]
        first = (await browser.run(agent="it", messages=before)).events()
        after = [*shown(before, first), user("Two", "user-2")]
        second = await browser.run(agent="it", run="r2", messages=after, state=state_of(first))

    state = await graph.aget_state({"configurable": {"thread_id": "t"}})
    said = [message.content for message in state.values["messages"]]
    assert said == ["One", "You said: One ", "Two", "You said: Two "]
    assert state_of(second.events()) == {"topic": "Two", "turns": 2}  # the graph adds them up


async def test_an_edited_question_is_answered_in_place_of_the_old_one() -> None:
    graph = kept(graphs.chat)
    async with browsing(agents={"it": graph}) as browser:
        before = [user("One")]
        first = (await browser.run(agent="it", messages=before)).events()
        edited = [user("Changed"), *shown(before, first)[1:]]
        again = await browser.run(agent="it", run="r2", messages=edited, state=state_of(first))

    state = await graph.aget_state({"configurable": {"thread_id": "t"}})
    said = [message.content for message in state.values["messages"]]
    assert said == ["Changed", "You said: Changed "]
    assert state_of(again.events())["turns"] == 1


async def test_a_page_that_comes_back_loads_the_state_of_its_thread() -> None:
    async with page_v1(kept(graphs.chat)) as client:
        await asked_v1(client, user_v1("Hi"))
        asked = {"threadId": "thread-1", "agentName": "it"}
        body = {"operationName": "loadAgentState", "query": STATE, "variables": {"data": asked}}
        loaded = (await client.ask(body)).json()["data"]["loadAgentState"]

    assert loaded["threadExists"] is True
    assert loaded["state"] == '{"topic":"Hi","turns":1}'
    assert '"content":"You said: Hi "' in loaded["messages"]


async def test_two_people_with_the_same_thread_id_have_two_threads() -> None:
    def who(request: Any) -> str:
        return str(request.headers["authorization"].removeprefix("Bearer "))

    async with browsing(agents={"it": kept(graphs.chat)}, authenticate=who) as browser:
        turns = [
            state_of(
                (
                    await browser.signed_in(name).run(
                        agent="it", run=f"r-{at}", messages=[user(name, f"u{at}")]
                    )
                ).events()
            )["turns"]
            for at, name in enumerate(["ann", "bob", "ann"])
        ]

    assert turns == [1, 1, 2]


async def test_a_tool_of_the_page_ends_the_run_and_its_result_goes_on() -> None:
    async with browsing(agents={"it": kept(graphs.painter)}) as browser:
        before = [user("Red, please")]
        asked = (await browser.run(agent="it", messages=before, tools=[PAINT])).events()
        after = shown(before, asked)
        [call] = after[-1]["toolCalls"]
        done = {"id": "done-1", "role": "tool", "toolCallId": call["id"], "content": "painted"}
        again = await browser.run(
            agent="it", run="r2", messages=[*after, done], tools=[PAINT], state=state_of(asked)
        )

    assert call["function"]["name"] == "setColor"
    assert json.loads(call["function"]["arguments"]) == {"color": "red"}
    assert text_of(again.events()) == "The browser said painted."


async def test_an_action_of_the_server_is_run_and_the_graph_goes_on() -> None:
    @action
    def setColor(color: str) -> str:  # noqa: N802 - the graph calls it so
        return f"all {color}"

    async with browsing(agents={"it": kept(graphs.painter)}, actions=[setColor]) as browser:
        events = (await browser.run(agent="it")).events()

    assert results(events) == ["all red"]
    assert text_of(events) == "Let me. The browser said all red."


class AtOnce(graphs.Model):
    """Says all it has to say in one last piece, as some providers do."""

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        message = AIMessageChunk(
            content="Two. ",
            tool_call_chunks=[
                tool_call_chunk(name="setColor", args=f'{{"color": "{color}"}}', id=color, index=at)
                for at, color in enumerate(["red", "blue"])
            ],
            response_metadata={"finish_reason": "STOP"},
            usage_metadata={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
        )
        yield ChatGenerationChunk(message=message)


async def test_a_model_may_say_all_at_once() -> None:
    async def paint(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await AtOnce().ainvoke([], config)]}

    async with browsing(agents={"it": graph_of(paint)}) as browser:
        events = (await browser.run(agent="it", tools=[PAINT])).events()

    calls = [e["toolCallId"] for e in events if e["type"] == "TOOL_CALL_START"]
    arguments = [e["delta"] for e in events if e["type"] == "TOOL_CALL_ARGS"]
    assert text_of(events) == "Two. "
    assert (calls, arguments) == (["red", "blue"], ['{"color": "red"}', '{"color": "blue"}'])


class CutOff(graphs.Model):
    """Reaches its limit before the arguments of its call, and is sorry when it is told."""

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        if args[0][-1].type == "tool":
            yield ChatGenerationChunk(message=AIMessageChunk(content="Sorry."))
            return
        call = tool_call_chunk(name="setColor", args="", id="c1", index=0)
        yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))
        reason = {"finish_reason": "length"}
        yield ChatGenerationChunk(message=AIMessageChunk(content="", response_metadata=reason))


async def test_a_call_of_the_page_that_the_model_was_cut_off_in_gets_a_result() -> None:
    async def paint(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await CutOff().ainvoke(state["messages"], config)]}

    async with browsing(agents={"it": graph_of(paint)}) as browser:
        events = (await browser.run(agent="it", tools=[PAINT])).events()

    [told] = results(events)
    assert "arguments are incomplete" in told
    assert (text_of(events), events[-1]["type"]) == ("Sorry.", "RUN_FINISHED")


async def test_a_graph_in_a_graph_shows_its_nodes() -> None:
    async with browsing(agents={"it": kept(graphs.nested)}) as browser:
        events = (await browser.run(agent="it")).events()

    steps = [event["stepName"] for event in events if event["type"] == "STEP_STARTED"]
    assert text_of(events) == "You said: Hi "
    assert {"answer", "done"} <= {*steps}
    assert state_of(events)["topic"] == "done"


async def test_a_graph_in_a_graph_may_keep_its_states_to_itself() -> None:
    agent = LangGraphInProcessAgent(kept(graphs.nested), stream_subgraphs=False)
    async with browsing(agents={"it": agent}) as browser:
        events = (await browser.run(agent="it")).events()

    assert text_of(events) == "You said: Hi "
    assert state_of(events)["topic"] == "done"


async def test_a_tool_of_the_graph_shows_its_result() -> None:
    def weather(city: str) -> str:
        """Return the weather."""
        return f"sunny in {city}"

    async def ask(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        pieces = ['{"city":', '"Oslo"}']
        model = graphs.Model(calls=[{"id": "c", "name": "weather", "pieces": pieces}])
        return {"messages": [await model.ainvoke([], config)]}

    builder = StateGraph(MessagesState).add_node("ask", ask).add_node("use", ToolNode([weather]))
    graph = builder.set_entry_point("ask").add_edge("ask", "use")
    agents = {"it": graph.compile(checkpointer=InMemorySaver())}
    async with browsing(agents=agents) as browser:
        events = (await browser.run(agent="it")).events()

    assert results(events) == ["sunny in Oslo"]


async def test_what_a_node_plans_is_shown_while_it_is_written() -> None:
    async with page_v1(kept(graphs.planner)) as client:
        answer = await asked_v1(client)

    states = [json.loads(m["state"]) for m in answer["messages"] if "state" in m]
    assert ["dig"] in [state.get("steps") for state in states]
    assert states[-1]["steps"] == ["dig", "plant"]


class Public(MessagesState):
    price: int


class Private(Public):
    cost: int


@dataclass
class Tone:
    tone: str = "flat"


async def test_what_a_graph_does_not_put_out_is_not_shown() -> None:
    async def node(state: Private) -> dict[str, Any]:
        return {"price": 2, "cost": 1}

    graph = StateGraph(Private, output_schema=Public).add_node("node", node)
    graph.set_entry_point("node")
    agent = LangGraphInProcessAgent(graph.compile(checkpointer=InMemorySaver()))
    async with browsing(agents={"it": agent}) as browser:
        answers = [await browser.run(agent="it", run=f"r{n}") for n in range(2)]

    assert [state_of(answer.events()) for answer in answers] == [{"price": 2}, {"price": 2}]
    assert all("cost" not in answer.body.decode() for answer in answers)
    assert await agent.load_state("t", Caller()) == (
        {"price": 2},
        [{"role": "user", "content": "Hi", "id": "user-1"}],
    )


async def test_a_graph_with_a_context_of_its_own_is_given_what_it_knows() -> None:
    async def node(state: MessagesState, runtime: Runtime[Tone]) -> dict[str, Any]:
        return {"messages": [AIMessage(f"In a {runtime.context.tone} tone")]}

    graph = StateGraph(MessagesState, context_schema=Tone).add_node("node", node)
    graph.set_entry_point("node")
    made = graph.compile(checkpointer=InMemorySaver())
    agent = LangGraphInProcessAgent(made, config={"configurable": {"tone": "kind"}})
    async with browsing(agents={"it": agent}) as browser:
        events = (await browser.run(agent="it")).events()

    assert text_of(events) == "In a kind tone"


def ann(request: Any) -> str:
    return "ann"


async def test_a_graph_may_speak_with_the_words_of_copilotkit() -> None:
    async with browsing(agents={"it": kept(graphs.emitter)}) as browser:
        events = (await browser.run(agent="it")).events()

    assert text_of(events).startswith("Step one.")
    assert "secret" not in text_of(events)
    assert "by-hand" in {event.get("toolCallId") for event in events}
    assert "Exit" in {event.get("name") for event in events}
    assert {"progress": 1} in [e["snapshot"] for e in events if e["type"] == "STATE_SNAPSHOT"]


async def test_thoughts_are_told_apart_from_the_answer() -> None:
    async with browsing(agents={"it": kept(graphs.thinker)}) as browser:
        events = (await browser.run(agent="it")).events()

    thought = [e["delta"] for e in events if e["type"] == "REASONING_MESSAGE_CONTENT"]
    assert "".join(thought) == "Let me think."
    assert text_of(events) == "It is 4."


async def test_nodes_find_who_asks_and_what_the_page_may_configure() -> None:
    async def report(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        given = config.get("configurable", {})
        who, tone, place = given["copilotkit"], given.get("tone"), given.get("place")
        told = f"{who['user']} {who['headers'].get('x-shop')} {who['properties']} {tone} {place}"
        return {"messages": [AIMessage(told)]}

    config = {"configurable": {"place": "ours"}}
    agent = LangGraphInProcessAgent(graph_of(report), config=config)
    async with browsing(agents={"it": agent}, authenticate=ann) as browser:
        wishes = {"config": {"configurable": {"tone": "kind", "place": "theirs"}}, "plan": "pro"}
        events = (await browser.run(agent="it", forwardedProps=wishes)).events()

    assert text_of(events).startswith("ann None {")
    assert "'plan': 'pro'" in text_of(events)
    assert text_of(events).endswith("kind ours")


async def test_a_stopped_run_stops_its_graph() -> None:
    stopped, begun = asyncio.Event(), asyncio.Event()

    async def wait(state: MessagesState) -> dict[str, Any]:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return {}

    agents = {"it": graph_of(wait)}
    async with browsing(agents=agents) as browser, browser.running(agent="it") as answer:
        await answer.until("STEP_STARTED")
        await begun.wait()
        await browser.stop()
        await stopped.wait()


async def test_whoever_leaves_early_waits_until_the_graph_has_stopped() -> None:
    agent = LangGraphInProcessAgent(kept(graphs.endless))
    said = [TextMessage(id="u", role="user", content="Hi")]
    before = asyncio.all_tasks()
    events = agent.run(RunInput(thread_id="t", run_id="r", agent="it", messages=said))
    async for event in events:
        if event.type == "text_message_content":
            break
    during = asyncio.all_tasks()
    await events.aclose()

    assert during > before
    assert asyncio.all_tasks() == before


async def test_a_question_after_a_stopped_call_is_answered() -> None:
    waits = asyncio.Event()

    async def node(state: MessagesState) -> dict[str, Any]:
        if state["messages"][-1].content == "Hi":
            return {"messages": [AIMessage("", tool_calls=[{"name": "w", "args": {}, "id": "c1"}])]}
        return {"messages": [AIMessage("Fine")]}

    async def tools(state: MessagesState) -> None:
        if isinstance(state["messages"][-1], AIMessage) and state["messages"][-1].tool_calls:
            waits.set()
            await asyncio.Event().wait()

    builder = StateGraph(MessagesState).add_node("node", node).add_node("tools", tools)
    graph = builder.set_entry_point("node").add_edge("node", "tools")
    kept_graph = graph.compile(checkpointer=InMemorySaver())
    async with browsing(agents={"it": kept_graph}) as browser:
        async with browser.running(agent="it") as answer:
            await waits.wait()
            await browser.stop()
            await answer.rest()
        await browser.run(agent="it", run="r2", messages=[user(), user("Two", "user-2")])

    state = await kept_graph.aget_state({"configurable": {"thread_id": "t"}})
    said = [message.type for message in state.values["messages"]]
    assert said == ["human", "ai", "tool", "human", "ai"]


async def test_a_state_that_is_no_json_is_shown_as_text() -> None:
    class Shelf(MessagesState):
        size: Any

    async def node(state: Shelf) -> dict[str, Any]:
        return {"size": ZoneInfo("UTC"), "messages": [AIMessage("Hi")]}

    graph = StateGraph(Shelf).add_node("node", node)
    graph.set_entry_point("node")
    kept_graph = graph.compile(checkpointer=InMemorySaver())
    async with browsing(agents={"it": kept_graph}) as browser:
        events = (await browser.run(agent="it")).events()

    assert state_of(events) == {"size": "UTC"}


async def test_a_failure_is_a_sentence() -> None:
    async with browsing(agents={"it": kept(graphs.failing)}) as browser:
        events = (await browser.run(agent="it")).events()

    assert text_of(events) == "Half a "
    assert failure(events) == "The run failed. The server's log says why."
    assert "secret_prices" not in str(events)


async def test_threads_at_the_same_time_are_apart() -> None:
    async with browsing(agents={"it": kept(graphs.chat)}) as browser:
        answers = await asyncio.gather(
            *(
                browser.run(agent="it", thread=f"t{n}", run=f"r{n}", messages=[user(f"{n} slowly")])
                for n in range(3)
            )
        )

    counted = " ".join(map(str, range(60)))
    assert [text_of(answer.events()) for answer in answers] == [
        f"You said: {n} slowly {counted} " for n in range(3)
    ]


def test_a_graph_that_remembers_nothing_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        CopilotRuntime(agents={"it": graphs.chat}, settings=Settings(threads="memory"))

    assert caught.value.message.startswith("The graph 'LangGraph' has no checkpointer")
    assert caught.value.hint is not None
    assert "checkpointer=InMemorySaver()" in caught.value.hint
