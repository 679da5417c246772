"""Graphs that fail, some for a reason that a person can do something about."""

from typing import Any

from langchain_core.messages import AnyMessage

# langgraph has types, but says so in none of its folders
from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from pydantic import BaseModel


class Order(BaseModel):
    topic: str
    messages: list[Any] = []


class Topic(MessagesState):
    topic: str


class Password(BaseModel):
    password: int


async def go_on(state: MessagesState) -> dict[str, list[AnyMessage]]:
    return {"messages": []}


async def deliver(state: Any) -> dict[str, Any]:
    return {"topic": "delivered"}


async def write_about(state: Topic) -> dict[str, Any]:
    return {"topic": state["topic"].title()}


async def look_elsewhere(state: Topic) -> dict[str, Any]:
    return {"topic": {}["hunter2"]}


async def forget(state: MessagesState) -> None:
    await topical.ainvoke(None)


async def check(state: MessagesState) -> None:
    Password.model_validate({"secret_field": "hunter2"})


async def pretend(state: MessagesState) -> None:
    raise GraphRecursionError("the password is hunter2")


class GraphRecursionError(RecursionError):
    """Not LangGraph's own, whatever it is called."""


def _graph(schema: Any, node: Any) -> Any:
    return StateGraph(schema).add_node("node", node).add_edge(START, "node")


looping = _graph(MessagesState, go_on).add_edge("node", "node").compile()
ordering = _graph(Order, deliver).compile()
topical = _graph(Topic, write_about).compile()
elsewhere = _graph(Topic, look_elsewhere).compile()
forgetful = _graph(MessagesState, forget).compile()
checking = _graph(MessagesState, check).compile()
pretending = _graph(MessagesState, pretend).compile()
