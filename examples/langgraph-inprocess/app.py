"""A graph of LangGraph in this process: it shares its plan with the page, and asks before it books.

    uvicorn --app-dir examples/langgraph-inprocess app:app

The pages of `examples/react-v1` (trip.html) and `examples/react-v2` show what it does. With
OPENAI_API_KEY set, a real model answers; without, rules pretend to be one.
"""

import os
from typing import Any

from langchain_core.messages import SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

# langgraph has types, but says so in none of its folders
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.types import interrupt
from pretend import Pretend

from copilot_runtime import CopilotRuntime


class Trip(MessagesState):
    """What the graph remembers. `stops` and `bookings` are on the page, which may change them."""

    stops: list[str]
    bookings: list[str]
    tools: list[dict[str, Any]]
    """The actions of the page: it runs them itself."""


@tool
def add_stops(stops: list[str]) -> None:
    """Add stops to the plan."""


@tool
def book(what: str) -> None:
    """Book something, after the person has agreed."""


OURS = {add_stops.name, book.name}


def model() -> Any:
    if not os.environ.get("OPENAI_API_KEY"):
        return Pretend()
    from langchain.chat_models import init_chat_model  # pip install langchain langchain-openai

    return init_chat_model("openai:gpt-4o")


async def think(state: Trip) -> dict[str, Any]:
    """Let the model say something, or call tools: ours and the page's."""
    told = SystemMessage(f"You plan a trip. The stops so far: {state.get('stops', [])}.")
    able = model().bind_tools([add_stops, book, *state.get("tools", [])])
    return {"messages": [await able.ainvoke([told, *state["messages"]])]}


def act(state: Trip) -> dict[str, Any]:
    """Do what the model has called of ours. What `interrupt` returns is the person's answer."""
    stops, bookings = [*state.get("stops", [])], [*state.get("bookings", [])]
    results: list[ToolMessage] = []
    for call in state["messages"][-1].tool_calls:  # pyright: ignore[reportAttributeAccessIssue]
        match call["name"], call["args"]:
            case "add_stops", {"stops": new}:
                stops += new
                said = f"Your plan has {len(stops)} stops now"
            case "book", {"what": what}:
                answer = interrupt(f"Book {what}?")
                agreed = isinstance(answer, dict) and answer.get("approved") is True
                bookings += [what] if agreed else []
                said = f"I have booked {what}" if agreed else "Then I book nothing"
            case _:
                continue  # the page's
        results.append(ToolMessage(said, tool_call_id=call["id"]))
    return {"messages": results, "stops": stops, "bookings": bookings}


def whose_turn(state: Trip) -> str:
    """Act on calls of ours. One of the page's ends the run: it asks again, with the result."""
    calls = {call["name"] for call in getattr(state["messages"][-1], "tool_calls", ())}
    return "act" if calls & OURS else END


def after_acting(state: Trip) -> str:
    """Think about the results, unless the page owes some."""
    said = next(m for m in reversed(state["messages"]) if not isinstance(m, ToolMessage))
    calls = {call["name"] for call in getattr(said, "tool_calls", ())}
    return END if calls - OURS else "think"


builder = StateGraph(Trip)
builder.add_node("think", think)
builder.add_node("act", act)
builder.add_edge(START, "think")
builder.add_conditional_edges("think", whose_turn, ["act", END])
builder.add_conditional_edges("act", after_acting, ["think", END])

# for a server that is started again, a saver that keeps: of PostgreSQL or SQLite, for instance
graph = builder.compile(checkpointer=InMemorySaver())

app = CopilotRuntime(agents={"trip": graph}).app()
