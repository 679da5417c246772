"""Tools answer, fail and repeat in the same way, whatever a model sends."""

import asyncio
import json
from dataclasses import replace

import pytest

from copilot_runtime.extensions.analyst.engine.datasets import name_saved_table
from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.memory.entries import extract_entries, find_lessons
from copilot_runtime.extensions.analyst.session import Services, Session
from copilot_runtime.extensions.analyst.sql.rules import Scope
from copilot_runtime.extensions.analyst.tools.call import (
    MAX_CHARACTERS,
    TOOLS,
    call_tool,
    fit_output,
    render_output,
)
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

NAMES = [
    *("summarize_data", "query_data", "analyze_data", "compare_data", "query_kpi_data", "run_sql"),
    *("plot_data", "analyze_patterns", "save_as_dataset", "download_data"),
    *("describe_metric_signals", "recall_memory"),
]


def test_there_are_twelve_tools_with_schemas_for_models() -> None:
    assert list(TOOLS) == NAMES
    for tool in TOOLS.values():
        assert tool.parameters["type"] == "object"
        assert "$ref" not in json.dumps(tool.parameters)


async def test_the_same_call_runs_once_and_is_in_the_answer_again(session: Session) -> None:
    first = await call_tool(session, "summarize_data", {})
    session.findings.lineage.clear()
    again = await call_tool(session, "summarize_data", {"include_numeric_stats": True})
    assert again is first
    assert session.findings.trust == "derived"
    assert [one.type for one in session.thoughts.thoughts] == ["tool_use", "observation"]


async def test_memory_learns_from_an_answer_of_the_cache_as_from_any_other(
    session: Session,
) -> None:
    sql = {"sql": "SELECT count(*) AS n FROM eval_data"}
    await call_tool(session, "run_sql", sql)
    later = replace(session, turn_sql=[], sql_tables={}, last_sql=None)
    await call_tool(later, "run_sql", sql)

    [(_, first)], [(_, second)] = find_lessons(session), find_lessons(later)
    texts = [[it.text for it in extract_entries(turn, "eval_data")] for turn in (first, second)]
    assert texts[1] == texts[0] == ["SELECT COUNT(*) AS n FROM eval_data"]


async def test_errors_and_charts_are_never_taken_from_the_cache(session: Session) -> None:
    chart = {"chart_type": "bar", "sql": "SELECT environment, 1 AS n FROM eval_data LIMIT 3"}
    for name, arguments in (
        ("run_sql", {"sql": "SELECT nope FROM eval_data"}),
        ("plot_data", chart),
    ):
        first = await call_tool(session, name, arguments)
        assert await call_tool(session, name, arguments) is not first


async def test_one_scope_never_gets_what_was_computed_for_another(session: Session) -> None:
    own = await call_tool(session, "summarize_data", {})
    other = replace(session, scope=Scope(user="ann", agent_name="alpha_bot"))
    filtered = await call_tool(other, "summarize_data", {})
    assert (own.output["row_count"], filtered.output["row_count"]) == (1000, 500)
    assert filtered.output["filter_values"]["source_name"] == ["alpha_bot"]


@in_one_test(
    ("name", "arguments"),
    [
        ("nope", {}),
        ("run_sql", {}),
        ("run_sql", {"sql": ""}),
        ("run_sql", {"sql": "DROP TABLE eval_data"}),
        ("run_sql", {"sql": "SELECT * FROM read_csv('/etc/passwd')"}),
        ("query_data", {"filter_column": "\0", "filter_value": "x"}),
        ("query_data", {"limit": "many"}),
        ("query_data", {"filters": {"environment": {"~": 1}}}),
        ("analyze_data", {"aggregation": "drop"}),
        ("analyze_data", {"group_by": "zzz"}),
        ("compare_data", {"group_column": "environment", "group_a": "x", "group_b": "dev"}),
        ("plot_data", {"chart_type": "radar", "sql": "SELECT 1"}),
        ("plot_data", {"chart_type": "bar", "sql": "SELECT query, query FROM eval_data"}),
        ("plot_data", {"sql": "SELECT 1 AS a", "traces": [{"type": "bar", "x": "a", "markr": 1}]}),
        ("download_data", {"sql": "SELECT 1", "format": "exe"}),
        ("save_as_dataset", {"name": "", "sql": "SELECT 1"}),
        ("summarize_data", {"table": "other"}),
    ],
)
async def test_bad_input_is_an_error_with_a_sentence(
    session: Session, name: str, arguments: dict[str, object]
) -> None:
    result = await call_tool(session, name, arguments)
    assert result.is_error
    assert len(result.output["error"]) > 10
    assert session.thoughts.thoughts[-1].type == "observation"


async def test_a_missing_data_set_is_an_error_that_names_the_others(services: Services) -> None:
    session = Session(services=services, scope=Scope(), dataset="gone")
    for name in NAMES:
        arguments = {"sql": "SELECT * FROM gone", "name": "x", "group_column": "x"}
        result = await call_tool(session, name, arguments)
        if name not in ("query_kpi_data",):
            assert result.is_error, name


async def test_a_wrong_column_repairs_itself_and_a_thought_says_so(session: Session) -> None:
    sql = "SELECT avg(faitfulness_score) AS score FROM eval_data"
    result = await call_tool(session, "run_sql", {"sql": sql})
    fix = "Column 'faitfulness_score' not found → replaced with 'faithfulness_score' (fuzzy match)"
    assert result.output["rows"] == [{"score": 0.495}]
    assert [one.description for one in session.fixes] == [fix]
    contents = [one.content for one in session.thoughts.thoughts]
    assert f"Auto-corrected SQL (1/2): {fix}" in contents


async def test_a_call_that_is_cancelled_leaves_the_session_usable(session: Session) -> None:
    tables = "eval_data a, eval_data b, eval_data c"
    sql = f"SELECT count(*) FROM {tables} WHERE a.query || b.query || c.query = 'x'"
    task = asyncio.create_task(call_tool(session, "run_sql", {"sql": sql}))
    async for _ in session.thoughts.subscribe():
        break
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not (await call_tool(session, "summarize_data", {})).is_error


async def test_a_save_waits_for_a_person_and_counts_once(
    services: Services, engine: Engine
) -> None:
    strict = replace(services, approve_saves=True)
    session = Session(services=strict, scope=Scope(user="bob"), dataset="eval_data")
    call = ("save_as_dataset", {"name": "Kept", "sql": "SELECT 1 AS a"})
    asked = await call_tool(session, *call)
    assert asked.approval is not None
    assert asked.output["status"] == "needs_approval"
    table = name_saved_table("kept", "bob")
    assert table not in engine.datasets
    session.decline(*call, note="Not now")
    assert "Not now" in (await call_tool(session, *call)).output["error"]
    session.approve(*call)
    assert (await call_tool(session, *call)).output["table"] == table
    assert (await call_tool(session, *call)).approval is not None
    await engine.delete(table, "bob")


def test_a_result_that_is_too_long_loses_rows_and_stays_valid() -> None:
    rows = [{"id": index, "text": "x" * 40} for index in range(1000)]
    output = fit_output({"rows": rows, "returned": 1000, "total_rows": 5000, "truncated": False})
    assert len(json.dumps(output, separators=(",", ":"))) <= MAX_CHARACTERS
    assert output["returned"] == len(output["rows"]) > 80
    assert (output["total_rows"], output["truncated"]) == (5000, True)
    assert output["columns"] == ["id", "text"]


@in_one_test(
    "output",
    [
        {"rows": [{"a": "x" * 100_000}]},
        {"rows": [{"a": "é" * 9_000, "b": 1}] * 300},
        {"rows": [{f"column_{index}": index for index in range(5_000)}]},
        {"memory": "x" * 50_000},
        {"a": [{"b": [["x" * 500] * 100] * 100}]},
    ],
)
def test_every_result_fits(output: dict[str, object]) -> None:
    assert len(json.dumps(fit_output(output), separators=(",", ":"), ensure_ascii=False)) <= 6_000


async def test_odd_values_become_plain_json(session: Session) -> None:
    result = await call_tool(session, "run_sql", {"sql": "SELECT * FROM oddities"})
    assert json.loads(render_output(result))["rows"] == [
        {
            "i": "170141183460469231731687303715884105727",
            "d": 1.1,
            "f": None,
            "b": "aa",
            "u": "00000000-0000-0000-0000-000000000001",
            "l": [1, 2],
            "s": {"a": 1},
            "t": "12:00:00",
            "z": "2026-01-01T00:00:00+00:00",
            "formula": "=1+1",
        }
    ]
