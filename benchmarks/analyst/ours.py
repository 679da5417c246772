"""Questions as the analyst answers them: `python -m benchmarks.analyst.ours CASE ROWS FOLDER`."""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

import duckdb

from benchmarks.analyst.questions import ANSWER, find_question, find_sql, make_data
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api import Adapter, ChatRequest, RunInput
from copilot_runtime.api.events import ActionExecutionResult, Events, TextMessageContent
from copilot_runtime.api.messages import ResultMessage, TextMessage
from copilot_runtime.extensions.analyst.agent import AnalystAgent
from copilot_runtime.extensions.analyst.analyst import Analyst
from copilot_runtime.extensions.analyst.settings import AnalystSettings
from copilot_runtime.extensions.analyst.sql.rules import Scope
from copilot_runtime.extensions.analyst.tools.call import call_tool

STATEMENTS = 500
"""Statements that the guard reads in the case `guard`."""


class Model(Adapter):
    """Calls `run_sql`, then answers; it takes no time for it."""

    async def stream(self, request: ChatRequest) -> Events:
        question = [one for one in request.messages if isinstance(one, TextMessage)][-1]
        has_result = isinstance(request.messages[-1], ResultMessage)
        sql = {"sql": find_sql(question.content)}
        for event in say(ANSWER) if has_result else call("run_sql", sql):
            yield event


def build_analyst(store: Path, source: Path) -> Analyst:
    settings = AnalystSettings(
        name="analyst",
        data=(str(source),),
        store=str(store),
        folder=str(store / "config"),
        memory_enabled=False,
    )
    return Analyst(settings)


async def ask(agent: AnalystAgent, number: int) -> tuple[float, float]:
    """Return the milliseconds until the first event, and until the answer."""
    message = TextMessage(id=f"question-{number}", role="user", content=find_question(number)[0])
    run = RunInput(
        run_id=f"run-{number}", thread_id=f"thread-{number}", agent="analyst", messages=[message]
    )
    start = time.perf_counter()
    first, text, results = 0.0, "", 0
    async with aclosing(agent.run(run)) as events:
        async for event in events:
            first = first or (time.perf_counter() - start) * 1000
            if isinstance(event, TextMessageContent):
                text += event.content
            if isinstance(event, ActionExecutionResult):
                results += 1
                assert '"error"' not in event.result, event.result
    assert (text, results) == (ANSWER, 1), (text, results)
    return first, (time.perf_counter() - start) * 1000


async def measure(case: str, rows: int, folder: Path, scratch: Path) -> dict[str, float]:
    source = make_data(folder, rows)
    if case == "copy":
        return await measure_copy(source, scratch)
    analyst = build_analyst(folder / f"store-{rows}", source)
    await analyst.open()
    try:
        if case == "summary":
            return await measure_summary(analyst)
        if case == "guard":
            return measure_guard(analyst)
        return await measure_answers(case, AnalystAgent(analyst, Model()))
    finally:
        await analyst.aclose()


async def measure_answers(case: str, agent: AnalystAgent) -> dict[str, float]:
    first_cold, cold = await ask(agent, 0)
    if case == "fifty":
        cpu, start = time.process_time(), time.perf_counter()
        times = await asyncio.gather(*(ask(agent, number) for number in range(1, 51)))
        return {
            "wall_s": time.perf_counter() - start,
            "cpu_s": time.process_time() - cpu,
            "first_ms": max(first for first, _ in times),
            "slowest_ms": max(total for _, total in times),
        }
    cpu = time.process_time()
    times = [await ask(agent, number) for number in range(1, 21)]
    return {
        "first_cold_ms": first_cold,
        "cold_ms": cold,
        "first_ms": statistics.median(first for first, _ in times),
        "answer_ms": statistics.median(total for _, total in times),
        "cpu_ms": (time.process_time() - cpu) * 1000 / len(times),
    }


async def measure_summary(analyst: Analyst) -> dict[str, float]:
    """Measure the first summary: nothing of it was counted before."""
    cpu, start = time.process_time(), time.perf_counter()
    session = await analyst.open_session(Scope())
    result = await call_tool(session, "summarize_data", {})
    assert not result.is_error, result.output
    return {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - start}


def measure_guard(analyst: Analyst) -> dict[str, float]:
    scope = Scope(user="ada")
    statements = [find_question(number)[1] for number in range(STATEMENTS)]
    analyst.guard_sql(statements[0], scope)
    times: list[float] = []
    for statement in statements:
        start = time.thread_time()
        analyst.guard_sql(statement, scope)
        times.append((time.thread_time() - start) * 1000)
    return {"guard_ms": statistics.median(times), "slowest_ms": max(times)}


async def measure_copy(source: Path, scratch: Path) -> dict[str, float]:
    """Measure the first start, which copies a CSV file, and a second one, which does not."""
    file = scratch / "orders.csv"
    with duckdb.connect(str(source), read_only=True) as connection:
        connection.execute(f"COPY orders TO '{file}'")
    figures: dict[str, float] = {"mb": file.stat().st_size / 1e6}
    for name in ("copy_s", "reopen_s"):
        analyst = build_analyst(scratch / "store", file)
        start = time.perf_counter()
        await analyst.open()
        figures[name] = time.perf_counter() - start
        await analyst.aclose()
    return figures


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[3]) as scratch:
        work = measure(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(scratch))
        print(json.dumps(asyncio.run(work)), flush=True)
    os._exit(0)
