"""Queries run, fail, stop and are cut, and the engine is as it was."""

import asyncio
import os
import pickle
import subprocess
import sys
from contextlib import aclosing
from io import BytesIO
from pathlib import Path

import duckdb
import pytest

from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.engine.errors import QueryFailed, QueryTimedOut
from copilot_runtime.extensions.analyst.engine.sandbox import EngineOptions
from copilot_runtime.extensions.analyst.engine.sources import parse_source
from copilot_runtime.extensions.analyst.engine.workers import PlainUnpickler
from copilot_runtime.extensions.analyst.results import Column, Table
from copilot_runtime.extensions.analyst.sql.rules import Scope

pytestmark = pytest.mark.anyio

UNSTOPPABLE = "SELECT jaro_similarity(repeat('a', 3000000), repeat('b', 3000000))"
"""One call of a function, which DuckDB does not interrupt."""
LARGE = "SELECT length(hex(hex(hex(hex(hex(repeat('x', 50000000)))))))"
"""What DuckDB does not count as memory of the query."""
EVERY_TYPE = """
SELECT now(), 1.50::DECIMAL(9, 2), 10::HUGEINT, 1::BIGNUM, 'nan'::FLOAT, true, NULL, 'é', 'a'::BLOB,
  '101'::BIT, '[1]'::JSON, '00000000-0000-0000-0000-000000000001'::UUID, DATE '2026-01-01',
  TIME '01:02:03', '01:02:03+02'::TIMETZ, TIMESTAMP '2026-01-01', TIMESTAMP_NS '2026-01-01',
  'infinity'::TIMESTAMP, TIMESTAMPTZ '2026-01-01 00:00:00+05', INTERVAL 1 DAY, 'a'::ENUM('a'),
  [1.5, NULL], [1, 2]::INTEGER[2], {'a': DATE '2026-01-01'}, MAP {'a': 1}, union_value(a := 1)
"""

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


async def test_a_query_that_ends_its_process_costs_no_other_question(engine: Engine) -> None:
    began = asyncio.Event()
    large = asyncio.create_task(engine.run(LARGE, limit=1, on_start=began.set))
    await began.wait()
    assert (await engine.run("SELECT count(*) FROM orders", limit=1)).rows == [(10,)]

    with pytest.raises(QueryFailed, match=r"more memory than analyst\.memory_limit \(512MB\)"):
        await large
    assert (await engine.run("SELECT count(*) FROM orders", limit=1)).rows == [(10,)]


async def test_a_query_that_does_not_react_to_a_stop_is_killed(engine: Engine) -> None:
    with pytest.raises(QueryTimedOut):
        await engine.run(UNSTOPPABLE, limit=1, timeout=0.1)
    await asyncio.wait_for(engine.wait_idle(), 20)  # of the minutes that it takes
    assert (await engine.run("SELECT count(*) FROM orders", limit=1)).rows == [(10,)]


async def test_values_of_every_type_are_those_that_duckdb_returns(engine: Engine) -> None:
    table = await engine.run(EVERY_TYPE, limit=1)
    with duckdb.connect() as connection:
        row = connection.execute(EVERY_TYPE).fetchall()[0]
    assert list(map(repr, table.rows[0][1:])) == list(map(repr, row[1:]))
    assert table.rows[0][0].tzinfo == row[0].tzinfo


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_worker_has_no_keys_and_can_open_no_file(
    monkeypatch: pytest.MonkeyPatch, shop: Path, options: EngineOptions
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    before = _list_children()
    engine = Engine(options, [parse_source(str(shop))])
    await engine.open()
    async with aclosing(engine):
        (worker,) = _list_children() - before
        assert b"secret" not in (worker / "environ").read_bytes()
        limits = (worker / "limits").read_text().split("\n")
        (files,) = [line.split()[3:5] for line in limits if line.startswith("Max open files")]
        assert files == ["0", "0"]


def _list_children() -> set[Path]:
    """Return the folders of our children; lists by thread miss one whose thread ends meanwhile."""
    return {status.parent for status in Path("/proc").glob("[0-9]*/status") if _is_ours(status)}


def _is_ours(status: Path) -> bool:
    try:
        return f"\nPPid:\t{os.getpid()}\n" in status.read_text()
    except OSError:  # it has ended
        return False


def test_a_reply_makes_no_object_that_could_run_code() -> None:
    for value in (eval, subprocess.Popen, Path("/"), QueryTimedOut(1)):
        with pytest.raises(pickle.UnpicklingError):
            PlainUnpickler(BytesIO(pickle.dumps(value))).load()
