"""The sandbox alone stops what the guard would stop."""

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from copilot_runtime.extensions.analyst.engine.engine import Engine
from copilot_runtime.extensions.analyst.engine.errors import QueryFailed
from copilot_runtime.extensions.analyst.engine.sandbox import (
    EngineOptions,
    Sandbox,
    check_statement,
)
from tests.conformance.data_analyst.statements import run_fingerprint_case, run_sandbox_case
from tests.extensions.analyst.engine.conftest import FIXTURE
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

REFUSED_BY_DUCKDB = [
    "INSERT INTO orders VALUES (1, 'x', 1, NULL)",
    "UPDATE orders SET id = 1",
    "DELETE FROM orders",
    "DROP TABLE orders",
    "CREATE TABLE x AS SELECT 1",
    "CREATE VIEW x AS SELECT 1",
    "CREATE SCHEMA x",
    "CREATE MACRO x() AS 1",
    "CREATE SECRET s (TYPE s3)",
    "WITH d AS (DELETE FROM orders RETURNING *) SELECT * FROM d",
    "ATTACH '/tmp/other.duckdb' AS other",
    "ATTACH ':memory:' AS other",
    "DETACH d1",
    "USE memory",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET memory_limit = '9GB'",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "COPY orders TO '/tmp/x.csv'",
    "EXPORT DATABASE '/tmp/x'",
    "CALL enable_logging()",
    "PRAGMA enable_profiling",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM 'https://example.com/x.csv'",
    "SELECT getenv('HOME')",
    "SELECT * FROM query('DROP TABLE orders')",
]

REFUSED_BY_THE_ENGINE = [
    "CREATE TEMP TABLE x AS SELECT 1",
    "CREATE TEMP VIEW x AS SELECT 1",
    "CREATE TEMP MACRO x() AS 1",
    "SET VARIABLE x = 1",
    "SET search_path = 'main'",
    "PRAGMA database_list",
    "PRAGMA table_info('orders')",
    "PRAGMA version",
    "CALL pragma_version()",
    "VACUUM",
    "CHECKPOINT",
    "EXPLAIN ANALYZE SELECT 1",
    "PREPARE p AS SELECT 1",
    "BEGIN",
    "LOAD json",
    "SELECT 1; SELECT 2",
    "",
]

LEFT_TO_THE_GUARD = [
    "SELECT * FROM duckdb_settings()",
    "SELECT current_setting('memory_limit')",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM duckdb_databases()",
    "FROM query_table('orders')",
    "FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
    "SELECT sleep_ms(1)",
    "SELECT pg_sleep(0.001)",
    "SELECT write_log('x')",
    "SELECT getvariable('x')",
    "SHOW TABLES",
    "DESCRIBE orders",
    "SUMMARIZE orders",
]
"""To DuckDB these are queries; that the guard refuses them is for its tests."""


@pytest.fixture
def sandbox(options: EngineOptions, shop: Path) -> Iterator[Sandbox]:
    sandbox = Sandbox(options, {"d1": shop})
    yield sandbox
    sandbox.close()


def test_duckdb_refuses_to_write_and_to_leave_the_sandbox(sandbox: Sandbox) -> None:
    passed: list[str] = []
    for sql in REFUSED_BY_DUCKDB:
        cursor = sandbox.open_cursor()
        try:
            cursor.execute(sql).fetchall()
            passed.append(sql)
        except duckdb.Error:
            continue
    assert passed == []


def test_the_engine_refuses_what_only_queries_may_not_do(sandbox: Sandbox) -> None:
    passed: list[str] = []
    for sql in REFUSED_BY_THE_ENGINE:
        try:
            check_statement(sandbox.open_cursor(), sql)
            passed.append(sql)
        except QueryFailed:
            continue
    assert passed == []


def test_what_is_left_to_the_guard_is_what_we_think_it_is(sandbox: Sandbox) -> None:
    for sql in LEFT_TO_THE_GUARD:
        cursor = sandbox.open_cursor()
        check_statement(cursor, sql)
        cursor.execute(sql).fetchall()


async def test_no_query_sees_what_another_one_left(engine: Engine) -> None:
    await engine.run("PIVOT orders ON customer USING count(*)", limit=1)
    table = await engine.run("SELECT count(*) FROM duckdb_types() WHERE internal = false", limit=1)
    assert table.rows == [(0,)]


async def test_no_error_names_a_file_of_the_server(engine: Engine) -> None:
    file = next(engine.options.folder.glob("*.duckdb"))
    for sql in (f"SELECT * FROM read_csv('{file}.x')", f"SELECT * FROM '{file}'", "SELECT d1.x.y"):
        with pytest.raises(QueryFailed) as failure:
            await engine.run(sql, limit=1)
        assert str(file.parent) not in json.dumps([failure.value.message, failure.value.name])


def test_the_fingerprint_is_the_one_of_the_contract() -> None:
    columns = [["faithfulness_score", "DOUBLE"], ["dataset_id", "VARCHAR"]]
    assert run_fingerprint_case({"columns": columns}) == {"fingerprint": "4b5c2d0e4d47"}


@pytest.mark.stalls(reason="The test opens a database for each of its cases.")
@in_one_test(
    ("sql", "error"),
    [
        ("ATTACH '/tmp/evil.duckdb' AS e", "PermissionException"),
        ("INSTALL httpfs", "PermissionException"),
        ("LOAD httpfs", "PermissionException"),
        ("INSERT INTO orders(id) VALUES (1)", "InvalidInputException"),
        ("DROP TABLE orders", "InvalidInputException"),
    ],
)
async def test_what_the_guard_would_stop_stops_in_the_sandbox_too(sql: str, error: str) -> None:
    outcome = await run_sandbox_case({"sql": sql, "bypass_guard": True}, FIXTURE)
    assert outcome["raises"] == error
