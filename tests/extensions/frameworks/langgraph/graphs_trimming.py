"""Graphs that forget what a person has read, take it back, or keep messages to themselves."""

from collections.abc import AsyncIterator
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool

# langgraph has types, but says so in none of its folders
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.graph.message import REMOVE_ALL_MESSAGES  # pyright: ignore[reportMissingTypeStubs]
from langgraph.graph.state import CompiledStateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.prebuilt import ToolNode

from tests.extensions.frameworks.langgraph.graphs import Model


class Reader(Model):
    """Repeats the question, and counts the messages that it was given."""

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        model = Model(words=[f"{messages[-1].content}? ", f"I read {len(messages)}."])
        async for chunk in model._astream(messages):
            yield chunk


async def read(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await Reader().ainvoke(state["messages"])]}


async def trim(state: MessagesState) -> dict[str, Any]:
    return {"messages": [RemoveMessage(id=str(one.id)) for one in state["messages"][:-1]]}


async def condense(state: MessagesState) -> dict[str, Any]:
    """Sum up in the words of the assistant, without a mark."""
    everything, *_, last = RemoveMessage(id=REMOVE_ALL_MESSAGES), state["messages"][-1]
    return {"messages": [everything, AIMessage("Summary of it all"), last]}


async def clear(state: MessagesState) -> dict[str, Any]:
    return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]}


async def rebuild(state: MessagesState) -> dict[str, Any]:
    """Store all messages again, under other ids."""
    copies = [one.model_copy(update={"id": None}) for one in state["messages"]]
    return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *copies]}


async def rebuild_again(state: MessagesState) -> dict[str, Any]:
    return await rebuild(state)


async def fall_silent(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage("")]}


async def refuse(state: MessagesState) -> dict[str, Any]:
    last = state["messages"][-1]
    return {"messages": [RemoveMessage(id=str(last.id)), AIMessage("I cannot say that.")]}


async def look_up(state: MessagesState) -> dict[str, Any]:
    call = {"id": "call-1", "name": "look_up", "args": {"secret": "hunter2"}, "type": "tool_call"}
    return {"messages": [AIMessage("", id="ai-1", tool_calls=[call])]}


async def edit(state: MessagesState) -> dict[str, Any]:
    call = {"id": "call-1", "name": "look_up", "args": {"secret": "***"}, "type": "tool_call"}
    done = ToolMessage("found", id="tool-1", tool_call_id="call-1")
    return {"messages": [AIMessage("", id="ai-1", tool_calls=[call]), done, AIMessage("There.")]}


async def whisper(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    """Add messages that are for the model alone, and one for the person."""
    hidden: list[AnyMessage] = [
        SystemMessage("secret: you are a parrot"),
        HumanMessage("secret: it is noon", additional_kwargs={"lc_source": "clock"}),
        AIMessage("secret: be kind", id="do-not-render-1"),
        AIMessage("secret: be brief", additional_kwargs={"hide_from_ui": True}),
    ]
    for tag in ("nostream", "langsmith:nostream"):
        await Model(words=["secret: ", tag]).ainvoke([], {**config, "tags": [tag]})
    spoken = await Model(words=["For ", "you."]).ainvoke([], {**config, "tags": ["nostream"]})
    return {"messages": [*hidden, spoken]}


class Diary(MessagesState):
    diary: list[AnyMessage]


async def write(state: Diary) -> dict[str, Any]:
    return {"diary": [await Reader().ainvoke(state["messages"])]}


class Counter(Model):
    """Calls `count` with the next number until it is three; each answer has one call, `call_0`."""

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        number = sum(isinstance(one, ToolMessage) for one in messages) + 1
        pieces = ['{"number":', f"{number}}}"]
        calls = [{"id": "call_0", "name": "count", "pieces": pieces}] if number % 3 else []
        words = [] if calls else [f"{messages[-1].content}!"]
        async for chunk in Model(words=words, calls=calls)._astream(messages):
            yield chunk


@tool
def count(number: int) -> str:
    """Count."""
    return f"counted {number}"


async def think(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await Counter().ainvoke(state["messages"])]}


def go_on(state: MessagesState) -> str:
    last = state["messages"][-1]
    return "tools" if isinstance(last, AIMessage) and last.tool_calls else END


def _counting(*, in_browser: bool) -> CompiledStateGraph[Any]:
    graph = StateGraph(MessagesState).add_node(think).add_edge(START, "think")
    if in_browser:
        return graph.compile()
    graph.add_node("tools", ToolNode([count])).add_edge("tools", "think")
    return graph.add_conditional_edges("think", go_on, ["tools", END]).compile()


def _graph(schema: Any, *nodes: Any) -> CompiledStateGraph[Any]:
    graph = StateGraph(schema)
    graph.add_sequence(list(nodes))
    graph.add_edge(START, nodes[0].__name__)
    return graph.compile()


summarizing = create_agent(
    Reader(),
    middleware=[
        SummarizationMiddleware(
            Model(words=["They ", "talked."]), trigger=("messages", 4), keep=("messages", 1)
        )
    ],
)
trimming = _graph(MessagesState, trim, read)
condensing = _graph(MessagesState, condense, read)
rebuilding = _graph(MessagesState, rebuild, read, rebuild_again)
rebuilding_calls = _graph(MessagesState, rebuild, think)
silent = _graph(MessagesState, fall_silent)
clearing = _graph(MessagesState, read, clear)
withdrawing = _graph(MessagesState, read, refuse)
editing = _graph(MessagesState, look_up, edit)
whispering = _graph(MessagesState, whisper)
diary = _graph(Diary, write)
counting = _counting(in_browser=False)
counting_in_browser = _counting(in_browser=True)
