"""Tools: what they return, what they leave for the person, and what comes from their cache."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from copilot_runtime.base.jsontext import loads
from copilot_runtime.extensions.analyst.results import Table, ToolResult
from copilot_runtime.extensions.analyst.tools.call import call_tool, render_output
from copilot_runtime.extensions.analyst.tools.registry import TOOLS
from copilot_runtime.extensions.analyst.tools.values import to_plain
from tests.conformance.data_analyst.cases import Given
from tests.conformance.data_analyst.facts import Facts, Prose, Text
from tests.conformance.data_analyst.world import OpenSession, World

ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "run_sql": {"sql": "SELECT 1 AS one"},
    "plot_data": {
        "chart_type": "bar",
        "sql": "SELECT environment, count(*) AS n FROM eval_data GROUP BY 1",
        "x_column": "environment",
        "y_column": "n",
        "title": "Rows",
    },
    "compare_data": {"group_column": "environment", "group_a": "dev", "group_b": "staging"},
    "analyze_patterns": {"analysis_type": "correlations"},
    "save_as_dataset": {"name": "One", "sql": "SELECT 1 AS one", "description": ""},
    "download_data": {"sql": "SELECT 1 AS one", "format": "csv", "filename": "one"},
}
"""Arguments of a call where a case names only the tool."""

INSERT = "INSERT INTO eval_data(dataset_id) VALUES ('new')"

_ASKING = ("save_as_dataset", "download_data")
"""Tools that may ask a person first; in cases, they said yes."""


def plain_rows(table: Table) -> list[list[Any]]:
    """Return the rows of a table as JSON has them."""
    return [[to_plain(cell) for cell in row] for row in table.rows]


async def answer_tools(given: Given, world: World) -> Facts:
    """Call a tool as a model does, and return what came of it, for the model and the person."""
    if given.get("tools_registered"):
        return {"names": list(TOOLS), "count": len(TOOLS)}
    name = given["tool"]
    arguments = dict(given.get("args") or ARGUMENTS.get(name, {}))
    drop = ["kpi_data"] if given.get("kpi_table_missing") else []
    async with world.open_session(
        drop=drop,
        agent_name=given.get("agent_name"),
        is_own=name == "save_as_dataset" or bool(given.get("empty")),
    ) as session:
        if given.get("dataset_missing"):
            session.dataset = "missing"
            name = "summarize_data" if name == "any" else name
        result = await call_approved(session, name, arguments)
        facts = describe_result(result)
        thoughts = session.thoughts.thoughts
        facts["thought"] = thoughts[-1].type if thoughts else None
        facts["thoughts"] = [one.type for one in thoughts]
        if name == "save_as_dataset" and not result.is_error:
            facts |= _describe_saved(session, result)
        return facts


async def call_approved(
    session: OpenSession, name: str, arguments: Mapping[str, Any]
) -> ToolResult:
    """Call a tool; a person approves what asks for it."""
    if name in _ASKING:
        session.approve(name, arguments)
    return await call_tool(session, name, arguments)


def describe_result(result: ToolResult) -> dict[str, Any]:
    text = render_output(result)
    output = result.output
    chart, download = result.chart, result.download
    facts: dict[str, Any] = {
        **output,
        "error": result.is_error,
        "text": Text(text),
        "result": Text(text),
        "result_chars": len(text),
        "valid_json": loads(text.encode()) == loads(text.encode()),
        "fields": Text(" ".join(output)),
        "result_has": Text(" ".join(output)),
        "chart_spec": chart and dict(chart.plotly),
        "vega_lite": chart and dict(chart.vega_lite),
        "validates_with": lambda: _validate(result),
        "download_spec": download
        and {
            "id": download.id,
            "filename": download.filename,
            "format": download.format,
            "row_count": download.row_count,
            "columns": list(download.columns),
            "url": download.url,
        },
        "trust": result.lineage.trust if result.lineage else None,
    }
    if result.table is not None and isinstance(output.get("rows"), list):
        facts["rows"] = plain_rows(result.table)
    return {**facts, **_flatten(output)}


def _flatten(output: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return results by metric under the metric's name; those of a single one, by theirs, too."""
    for value in output.values():
        if isinstance(value, Mapping) and value:
            entries = list(value.values())
            if all(isinstance(one, Mapping) and "delta" in one for one in entries):
                only = entries[0] if len(entries) == 1 else {}
                return {**value, "metrics": dict(value), **only}
    return {}


def _validate(result: ToolResult) -> Prose:
    if result.chart is None:
        return Prose(False, "there is no chart")
    import plotly.graph_objects as go  # pyright: ignore[reportMissingTypeStubs]

    try:
        go.Figure(dict(result.chart.plotly))
    except ValueError as error:
        return Prose(False, str(error))
    return Prose(True)


def _describe_saved(session: OpenSession, result: ToolResult) -> Mapping[str, Any]:
    name = str(result.output.get("table"))
    known = {one.name: one for one in session.list_datasets()}
    saved = known.get(name)
    is_apart = saved is not None and saved.is_saved
    return {"table_name": name, "via": Prose(is_apart, "the data set is in no registry")}


async def answer_cache(given: Given, world: World) -> Facts:
    """Call tools one after the other, and count what the second call still did."""
    if "tool" in given:
        given.get("twice")
        name = given["tool"]
        arguments = {"table": "eval_data"} if name == "summarize_data" else ARGUMENTS.get(name, {})
        calls: Sequence[Any] = [[name, arguments], [name, arguments]]
    else:
        calls = given["calls"]
    changes = any(isinstance(one, str) or one[0] == "save_as_dataset" for one in calls)
    async with world.open_session(is_own=changes, agent_name=given.get("agent_name")) as session:
        engine = session.services.engine
        counts = world.count_queries(engine)
        executions: list[int] = []
        thoughts: list[int] = []
        results: list[ToolResult] = []
        for call in calls:
            if isinstance(call, str):
                await _change_data(world, session, call)
                continue
            before = counts.queries, _count_thoughts(session)
            results.append(await call_approved(session, call[0], call[1]))
            executions.append(counts.queries - before[0])
            thoughts.append(_count_thoughts(session) - before[1])
    return {
        "db_executions": executions,
        "db_executions_first": executions[0],
        "db_executions_second": executions[-1],
        "tool_use_thoughts": sum(thoughts),
        "second_from_cache": thoughts[-1] == 0,
        "same_result": render_output(results[0]) == render_output(results[-1]),
    }


def _count_thoughts(session: OpenSession) -> int:
    return sum(thought.type == "tool_use" for thought in session.thoughts.thoughts)


async def _change_data(world: World, session: OpenSession, words: str) -> None:
    """Change the source, and have the engine read it again. `words`: `insert row`, or SQL."""
    statement = (
        "INSERT INTO eval_data(dataset_id) VALUES ('new')" if words == "insert row" else words
    )
    engine = session.services.engine

    def write() -> None:
        with duckdb.connect(engine.sources[0].location) as connection:
            connection.execute(statement)

    await asyncio.to_thread(write)
    await engine.refresh()
