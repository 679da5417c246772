"""Queries run, fail, stop and are cut, and the engine is as it was."""

import asyncio

import pytest

from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.engine.errors import QueryFailed, QueryTimedOut
from copilot_runtime.extensions.analyst.results import Column, Table
from copilot_runtime.extensions.analyst.sql.rules import Scope

pytestmark = pytest.mark.anyio

ENDLESS = "SELECT count(*) FROM range(100000000) a(i), range(100000) b(j) WHERE (i * j) % 7 = 3"


async def test_a_query_returns_its_first_rows_and_says_that_there_are_more(engine: Engine) -> None:
    table = await engine.run("SELECT id FROM orders ORDER BY id", limit=2)
    assert table == Table(
        columns=[Column("id", "INTEGER")], rows=[(0,), (1,)], total_rows=None, is_truncated=True
    )


async def test_a_wrong_column_is_named_with_what_is_like_it(engine: Engine) -> None:
    with pytest.raises(QueryFailed) as failure:
        await engine.explain("SELECT amout FROM orders")
    error = failure.value
    assert (error.kind, error.name, error.candidates[0], error.position) == (
        "column_not_found",
        "amout",
        "amount",
        7,
    )


async def test_no_error_names_a_value_of_a_row(engine: Engine) -> None:
    with pytest.raises(QueryFailed) as failure:
        await engine.run("SELECT CAST(customer AS INTEGER) FROM orders", limit=1)
    assert "c0" not in failure.value.message
    assert failure.value.kind == "type_mismatch"


async def test_a_query_that_takes_too_long_leaves_the_engine_as_it_was(engine: Engine) -> None:
    with pytest.raises(QueryTimedOut):
        await engine.run(ENDLESS, limit=1, timeout=0.1)
    assert (await engine.run("SELECT count(*) FROM orders", limit=1)).rows == [(10,)]


async def test_to_cancel_a_query_interrupts_it(engine: Engine) -> None:
    began = asyncio.Event()
    task = asyncio.create_task(engine.run(ENDLESS, limit=1, on_start=began.set))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(engine.wait_idle(), 20)  # of the 30 s that it may take


async def test_what_a_user_saves_is_only_for_that_user(engine: Engine) -> None:
    saved = await engine.save("big", "SELECT * FROM orders WHERE amount > 2", owner="ada")
    assert saved.row_count == 5
    assert [one.name for one in engine.list_datasets(Scope(user="ada"))] == ["orders", saved.name]
    assert [one.name for one in engine.list_datasets(Scope(user="bob"))] == ["orders"]


async def test_a_cell_that_is_too_long_is_cut_before_python_has_it(engine: Engine) -> None:
    limit = engine.options.max_cell
    table = await engine.run(
        "SELECT list(x) AS many, [1, 2] AS few, repeat('é', 200000) AS text, 1 AS few "
        "FROM range(100000) r(x)",
        limit=1,
    )

    many, few, text, number = table.rows[0]
    assert [column.name for column in table.columns] == ["many", "few", "text", "few"]
    assert many.startswith("[0, 1, 2, ") and len(many) == limit + 1
    assert (few, number) == ([1, 2], 1)
    assert text == "é" * limit + "…"
