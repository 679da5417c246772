"""Graphs that rewrite what was said, name nothing, keep no messages, or leave calls open."""

from typing import Annotated, Any, TypedDict

from copilotkit.langgraph import copilotkit_customize_config
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig

# langgraph has types, but says so in none of its folders
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages  # pyright: ignore[reportMissingTypeStubs]
from langgraph.graph.state import CompiledStateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.types import Command


async def draft(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage("A draft.")]}


async def revise(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage("The final word.", id=state["messages"][-1].id)]}


async def redact(state: MessagesState) -> dict[str, Any]:
    last = state["messages"][-1]
    return {"messages": [HumanMessage("[redacted]", id=last.id)]}


async def count(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"That makes {len(state['messages'])}.")]}


class Wordless(TypedDict):
    topic: str


async def choose(state: Wordless) -> dict[str, Any]:
    return {"topic": "cats"}


class Unnamed(TypedDict):
    messages: list[AnyMessage | dict[str, Any]]


async def append(state: Unnamed) -> dict[str, Any]:
    return {"messages": [*state["messages"], AIMessage("I have no name.")]}


class Calling(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


async def call(state: Calling) -> dict[str, Any]:
    """Call a tool if asked to; refuse calls without a result, as models do."""
    open_calls: set[str | None] = set()
    for message in state["messages"]:
        if message.type == "tool":
            open_calls.remove(message.tool_call_id)
        elif open_calls:
            raise ValueError(f"{open_calls} have no result")
        elif isinstance(message, AIMessage):
            open_calls = {call["id"] for call in message.tool_calls}
    if state["messages"][-1].content != "Call":
        return {"messages": [AIMessage("Everything is in order.")]}
    wanted = {"name": "fragile", "args": {}, "id": f"call-{len(state['messages'])}"}
    return {"messages": [AIMessage("", tool_calls=[{**wanted, "type": "tool_call"}])]}


async def use(state: Calling) -> None:
    last = state["messages"][-1]
    if isinstance(last, AIMessage) and last.tool_calls:
        raise RuntimeError("the tool is broken")


async def whisper(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    """Keep an answer from the page that does not come in pieces."""
    quiet = copilotkit_customize_config({**config}, emit_messages=False)
    model = FakeMessagesListChatModel(responses=[AIMessage("secret")])
    return {"messages": [await model.ainvoke("Hi", quiet)]}


async def hand_over(state: MessagesState) -> Command[Any]:
    told = {"messages": [*state["messages"], AIMessage("I ask the expert.")]}
    return Command(goto="expert", graph=Command.PARENT, update=told)


def _handing_over() -> CompiledStateGraph[Any]:
    inner = StateGraph(MessagesState).add_node(hand_over).add_edge(START, "hand_over").compile()
    graph = StateGraph(MessagesState).add_node("clerk", inner, destinations=("expert",))
    return graph.add_node("expert", draft).add_edge(START, "clerk").compile()


def _graph(schema: Any, **nodes: Any) -> CompiledStateGraph[Any]:
    graph = StateGraph(schema)
    graph.add_sequence(list(nodes.items()))
    graph.add_edge(START, next(iter(nodes)))
    graph.add_edge(list(nodes)[-1], END)
    return graph.compile()


reviser = _graph(MessagesState, draft=draft, revise=revise)
redactor = _graph(MessagesState, redact=redact, count=count)
wordless = _graph(Wordless, choose=choose)
unnamed = _graph(Unnamed, append=append)
fragile = _graph(Calling, call=call, use=use)
whisperer = _graph(MessagesState, whisper=whisper)
handing_over = _handing_over()
