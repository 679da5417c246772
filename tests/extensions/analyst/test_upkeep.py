"""What is done for the data while nobody asks: copies of what changed, counts of large tables."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlglot import parse_one

from copilot_runtime.extensions.analyst import upkeep
from copilot_runtime.extensions.analyst.analyst import Analyst
from copilot_runtime.extensions.analyst.prompt.context_folder import ContextFolder
from copilot_runtime.extensions.analyst.sql.rules import Scope
from copilot_runtime.extensions.analyst.tools.metrics import match_metrics
from tests.extensions.analyst.analysts import build_analyst

pytestmark = pytest.mark.anyio

METRIC = "metric_catalog: {sales: {turnover: {table: orders, sql: sum(amount)}}}\n"
EXAMPLE = "- description: Which city?\n  sql: SELECT city FROM orders\n"
COUNT = "SELECT count(*) FROM orders"


def watch_checks(analyst: Analyst, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Return what is set once the operator's SQL was checked again."""
    checked, check = asyncio.Event(), analyst.contexts.check

    async def note(*arguments: Any) -> Any:
        try:
            return await check(*arguments)
        finally:
            checked.set()

    monkeypatch.setattr(analyst.contexts, "check", note)
    return checked


async def read_count(analyst: Analyst) -> Any:
    query = analyst.guard_sql(COUNT, Scope())
    return (await analyst.engine.run(query, limit=1)).rows[0][0]


async def test_a_source_that_changes_is_copied_while_the_server_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "sql_examples.yaml").write_text(EXAMPLE)
    analyst = build_analyst(tmp_path, refresh=0.02)
    await analyst.open()
    try:
        checked = watch_checks(analyst, monkeypatch)
        assert (await read_count(analyst), len(analyst.contexts.files.examples)) == (4, 1)
        assert not analyst.contexts.files.examples[0].problem
        (tmp_path / "orders.csv").write_text("owner,town\nann,Oslo\n")
        async with asyncio.timeout(10):
            await checked.wait()
        assert await read_count(analyst) == 1
        assert analyst.contexts.files.examples[0].problem
    finally:
        await analyst.aclose()


async def test_a_refresh_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    analyst = build_analyst(tmp_path, refresh=0.02)
    await analyst.open()
    again, calls = asyncio.Event(), list[str]()

    async def fail() -> None:
        calls.append("refresh")
        if len(calls) > 1:
            again.set()
        raise OSError("The disk is gone.")

    monkeypatch.setattr(analyst.engine, "refresh", fail)
    async with asyncio.timeout(10):
        await again.wait()
    assert await read_count(analyst) == 4
    await analyst.aclose()


async def test_large_tables_that_all_may_see_are_counted_before_the_first_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "private.csv").write_text("owner,n\nann,1\nbob,2\n")
    data = [str(tmp_path / "orders.csv"), str(tmp_path / "private.csv")]
    monkeypatch.setattr(upkeep, "MIN_ROWS", 2)
    analyst = build_analyst(tmp_path, data=data, row_filters={"private": "owner = $user"})
    names, counted = list[str](), asyncio.Event()
    describe, run = analyst.engine.describe, analyst.engine.run

    async def note(name: str, scope: Scope) -> Any:
        table = await describe(name, scope)
        names.append(name)
        counted.set()
        return table

    monkeypatch.setattr(analyst.engine, "describe", note)
    await analyst.open()
    async with asyncio.timeout(10):
        await counted.wait()
    ran = list[object]()

    async def count(query: Any, **options: Any) -> Any:
        ran.append(query)
        return await run(query, **options)

    monkeypatch.setattr(analyst.engine, "run", count)
    table = await describe("orders", Scope(user="ann"))
    assert (names, table.row_count, ran) == (["orders"], 4, [])
    assert (await describe("private", Scope(user="ann"))).row_count == 1
    assert ran
    await analyst.aclose()


async def test_a_new_metric_counts_from_the_next_question_on(tmp_path: Path) -> None:
    analyst = build_analyst(tmp_path)
    analyst.contexts = ContextFolder(tmp_path / "config", interval=0)
    await analyst.open()
    try:
        session = await analyst.open_session(Scope())
        assert "turnover" not in analyst.describe_metrics(session.find_dataset(), None)
        (tmp_path / "config").mkdir(exist_ok=True)
        (tmp_path / "config" / "metric_catalog.yaml").write_text(METRIC)
        session = await analyst.open_session(Scope())
        assert "turnover" in analyst.describe_metrics(session.find_dataset(), None)
        assert match_metrics(session, parse_one("SELECT sum(amount) FROM orders")) == ["turnover"]
    finally:
        await analyst.aclose()
