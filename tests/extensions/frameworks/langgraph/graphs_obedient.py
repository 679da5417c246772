"""A graph whose model does what a person writes: it calls tools of the page, and reads results."""

from typing import Any

from copilotkit.langgraph import CopilotKitState
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

# langgraph has types, but says so in none of its folders
from langgraph.graph import StateGraph  # pyright: ignore[reportMissingTypeStubs]

from tests.extensions.frameworks.langgraph.graphs import Model


async def obey(state: CopilotKitState, config: RunnableConfig) -> dict[str, Any]:
    messages = state["messages"]
    said = [str(one.content) for one in messages if isinstance(one, HumanMessage)][-1]
    results = [str(one.content) for one in messages if isinstance(one, ToolMessage)]
    offered = [action["name"] for action in state["copilotkit"]["actions"]]
    if not results and said.startswith("call "):
        _, name, arguments = said.split(" ", 2)
        assert name in offered, offered
        call = {"id": f"call-{len(messages)}", "name": name, "pieces": [arguments]}
        model = Model(calls=[call])
    else:
        model = Model(words=[f"I read: {' | '.join(results)}"])
    return {"messages": [await model.ainvoke([], config)]}


obedient: Any = StateGraph(CopilotKitState).add_node("obey", obey)
obedient.set_entry_point("obey")
obedient = obedient.compile()
