"""The same questions to LangChain's SQL toolkit: `python app.py CASE ROWS FOLDER`.

Its agent, its four tools, in the order in which its own instructions ask for them: list the
tables, read the schema, check the query, run it, answer. The model answers at once.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_community.agent_toolkits import (  # pyright: ignore[reportMissingImports]
    SQLDatabaseToolkit,
)
from langchain_community.utilities import SQLDatabase  # pyright: ignore[reportMissingImports]
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from sqlalchemy import create_engine
from sqlalchemy.pool import QueuePool

from benchmarks.analyst.questions import ANSWER, TABLE, find_question, find_sql, make_data

INSTRUCTIONS = (
    "You are an agent designed to interact with a SQL database. Look at the tables, then at the "
    "schema of the relevant ones, double check your query before executing it, and answer."
)


class Model(BaseChatModel):
    """Calls the tools in their order, then answers."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> "Model":
        del tools, options
        return self

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages))])

    async def _agenerate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        return self._generate(messages)

    def _answer(self, messages: Any) -> AIMessage:
        question = next((str(m.content) for m in messages if isinstance(m, HumanMessage)), "")
        if "(number" not in question:  # the query checker asks it, too
            return AIMessage(str(messages[-1].content).partition("SELECT")[2])
        sql = find_sql(question)
        calls = [
            ("sql_db_list_tables", {"tool_input": ""}),
            ("sql_db_schema", {"table_names": TABLE}),
            ("sql_db_query_checker", {"query": sql}),
            ("sql_db_query", {"query": sql}),
        ]
        done = sum(isinstance(message, ToolMessage) for message in messages)
        if done == len(calls):
            return AIMessage(ANSWER)
        name, arguments = calls[done]
        return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call-{done}"}])


def build_agent(file: Path) -> Any:
    engine = create_engine(
        f"duckdb:///{file}",
        connect_args={"read_only": True, "config": {"threads": 2, "memory_limit": "512MB"}},
        poolclass=QueuePool,
        pool_size=8,
        max_overflow=0,
    )
    model = Model()
    database = SQLDatabase(engine)
    toolkit = SQLDatabaseToolkit(db=database, llm=model)
    return create_agent(model, toolkit.get_tools(), system_prompt=INSTRUCTIONS)


async def ask(agent: Any, number: int) -> tuple[float, float]:
    """Return the milliseconds until the first step is seen, and until the answer."""
    start = time.perf_counter()
    first = 0.0
    messages: list[Any] = []
    question = {"messages": [HumanMessage(find_question(number)[0])]}
    async for state in agent.astream(question, stream_mode="updates"):
        first = first or (time.perf_counter() - start) * 1000
        messages += next(iter(state.values()))["messages"]
    assert messages[-1].content == ANSWER, messages[-1]
    results = [message for message in messages if isinstance(message, ToolMessage)]
    assert len(results) == 4, results
    assert not any(str(result.content).startswith("Error") for result in results), results
    return first, (time.perf_counter() - start) * 1000


async def measure(case: str, rows: int, folder: Path) -> dict[str, float]:
    agent = build_agent(make_data(folder, rows))
    _, cold = await ask(agent, 0)
    if case == "fifty":
        cpu, start = time.process_time(), time.perf_counter()
        times = [total for _, total in await asyncio.gather(*(ask(agent, n) for n in range(1, 51)))]
        return {
            "wall_s": time.perf_counter() - start,
            "cpu_s": time.process_time() - cpu,
            "slowest_ms": max(times),
        }
    cpu = time.process_time()
    times = [await ask(agent, number) for number in range(1, 21)]
    return {
        "cold_ms": cold,
        "first_ms": statistics.median(first for first, _ in times),
        "answer_ms": statistics.median(total for _, total in times),
        "cpu_ms": (time.process_time() - cpu) * 1000 / len(times),
    }


if __name__ == "__main__":
    figures = asyncio.run(measure(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
    print(json.dumps(figures), flush=True)
    os._exit(0)
