"""The same plans as graphs of LangGraph: `python app.py CASE TASKS FOLDER DURABILITY`.

Tasks side by side are `Send`s of one step, a group is a subgraph, a layer is a step. The
checkpointer is `AsyncSqliteSaver`. To be fair to it: its file gets the `synchronous` of ours
(its default syncs with each commit), and as many tasks run at the same time as ours.
"""

import asyncio
import json
import operator
import os
import sys
import time
from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

import aiosqlite
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from benchmarks.planner.shapes import CONCURRENCY, Effects, list_groups

TURNS = 10


class State(TypedDict):
    groups: list[list[str]]
    layer: int
    outputs: Annotated[list[str], operator.add]


class Item(TypedDict):
    name: str


class Group(TypedDict):
    names: list[str]
    outputs: Annotated[list[str], operator.add]


class Model(BaseChatModel):
    """Calls the tool so often, then answers."""

    calls: int

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> "Model":
        del tools, options
        return self

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        results = sum(isinstance(message, ToolMessage) for message in messages)
        name = next(m.content for m in messages if isinstance(m, HumanMessage))
        if results < self.calls:
            calls = [{"name": "do", "args": {"name": name}, "id": f"call-{results}"}]
            answer = AIMessage("", tool_calls=calls)
        else:
            answer = AIMessage(f"The outcome of {name}.")
        return ChatResult(generations=[ChatGeneration(message=answer)])

    async def _agenerate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        return self._generate(messages)


def build_agent(effects: Effects, calls: int) -> Any:
    @tool
    async def do(name: str) -> str:
        """Do what is to be done."""
        return effects.have(name) if calls == 1 else name

    return create_agent(Model(calls=calls), [do], system_prompt="You do what you are told.")


def build_graph(shape: str, effects: Effects, hangs_at: str = "") -> StateGraph:
    agent = build_agent(effects, 1)

    async def do(item: Item) -> dict[str, Any]:
        if item["name"] == hangs_at:
            await asyncio.sleep(3600)
        return {"outputs": [effects.have(item["name"])]}

    async def ask(item: Item) -> dict[str, Any]:
        answer = await agent.ainvoke({"messages": [HumanMessage(item["name"])]})
        return {"outputs": [answer["messages"][-1].content]}

    async def go_on(state: State) -> dict[str, Any]:
        return {"layer": state["layer"] + 1}

    def send_all(state: State) -> Sequence[Send]:
        return [Send("task", {"name": name}) for names in state["groups"] for name in names]

    def send_groups(state: State) -> Sequence[Send]:
        return [Send("group", {"names": names}) for names in state["groups"]]

    def send_group(group: Group) -> Sequence[Send]:
        return [Send("task", {"name": name}) for name in group["names"]]

    def send_layer(state: State) -> Sequence[Send] | str:
        if state["layer"] == len(state["groups"]):
            return END
        return [Send("task", {"name": name}) for name in state["groups"][state["layer"]]]

    graph = StateGraph(State)
    match shape:
        case "flat" | "agents":
            graph.add_node("task", ask if shape == "agents" else do)
            graph.add_conditional_edges(START, send_all, ["task"])
            graph.add_edge("task", END)
        case "nested":
            group = StateGraph(Group, output_schema=Outputs)
            group.add_node("task", do)
            group.add_conditional_edges(START, send_group, ["task"])
            group.add_edge("task", END)
            graph.add_node("group", group.compile())
            graph.add_conditional_edges(START, send_groups, ["group"])
            graph.add_edge("group", END)
        case _:
            graph.add_node("task", do)
            graph.add_node("next", go_on)
            graph.add_conditional_edges(START, send_layer, ["task"])
            graph.add_edge("task", "next")
            graph.add_conditional_edges("next", send_layer, ["task", END])
    return graph


class Outputs(TypedDict):
    outputs: Annotated[list[str], operator.add]


@asynccontextmanager
async def open_saver(folder: Path) -> Any:
    async with aiosqlite.connect(folder / "langgraph.db") as connection:
        saver = AsyncSqliteSaver(connection)
        await saver.setup()
        await connection.execute("PRAGMA synchronous = NORMAL")
        yield saver


async def run_graph(graph: Any, thread: str, start: Any, durability: str) -> Any:
    return await graph.ainvoke(start, get_config(thread), durability=durability)


def get_config(thread: str) -> Any:
    return {
        "configurable": {"thread_id": thread},
        "max_concurrency": CONCURRENCY,
        "recursion_limit": 1_000_000,
    }


def begin(tasks: int) -> State:
    return {"groups": [[*names] for names in list_groups(tasks)], "layer": 0, "outputs": []}


async def measure_plan(shape: str, tasks: int, folder: Path, durability: str) -> Any:
    async with open_saver(folder) as saver:
        effects = Effects()
        graph = build_graph(shape, effects).compile(checkpointer=saver)
        state = await run_graph(graph, "warm", begin(10), durability)
        effects.check(10, len(set(state["outputs"])))
        plans = max(1, 100 // tasks)
        cpu, wall = time.process_time(), time.perf_counter()
        for number in range(plans):
            state = await run_graph(graph, f"p{number}", begin(tasks), durability)
            effects.check(tasks, len(set(state["outputs"])))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu_ms": cpu * 1000 / tasks / plans, "wall_ms": wall * 1000 / tasks / plans}


async def measure_loop(runs: int) -> Any:
    agent = build_agent(Effects(), TURNS)
    question = {"messages": [HumanMessage("x")]}
    config = {"recursion_limit": 1000}
    await agent.ainvoke(question, config)
    cpu = time.process_time()
    for _ in range(runs):
        answer = await agent.ainvoke(question, config)
        if sum(isinstance(m, ToolMessage) for m in answer["messages"]) != TURNS:
            raise RuntimeError("not all calls were made")
    cpu = time.process_time() - cpu
    return {"cpu_ms": cpu * 1000 / runs / TURNS}


async def fill(tasks: int, folder: Path, durability: str) -> None:
    """Carry out a plan but for its last task, in the middle of which the process dies."""
    effects = Effects()
    async with open_saver(folder) as saver:
        graph = build_graph("flat", effects, f"t{tasks - 1}").compile(checkpointer=saver)
        running = asyncio.ensure_future(run_graph(graph, "p", begin(tasks), durability))
        query = "SELECT count(*) FROM writes WHERE channel = 'outputs'"
        while not running.done():
            await asyncio.sleep(0.5)
            async with saver.conn.execute(query) as cursor:
                (count,) = await cursor.fetchone()
            if count == tasks:  # that of the beginning is among them
                os._exit(0)
        await running


async def measure_restart(tasks: int, folder: Path, durability: str) -> Any:
    effects = Effects()
    cpu, wall = time.process_time(), time.perf_counter()
    async with open_saver(folder) as saver:
        graph = build_graph("flat", effects).compile(checkpointer=saver)
        state = await graph.aget_state(get_config("p"))
        loaded = time.perf_counter() - wall
        if len(state.next) != 1:
            raise RuntimeError(f"{len(state.next)} tasks are left")
        result = await run_graph(graph, "p", None, durability)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    effects.check(1, len(set(result["outputs"])) - tasks + 1)
    return {"load_s": loaded, "end_s": wall, "cpu_s": cpu}


async def main() -> None:
    case, tasks, folder, durability = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    match case:
        case "loop":
            figures = await measure_loop(tasks)
        case "fill":
            figures = await fill(tasks, folder, durability)
        case "restart":
            figures = await measure_restart(tasks, folder, durability)
        case _:
            figures = await measure_plan(case, tasks, folder, durability)
    print(json.dumps(figures))


asyncio.run(main())
