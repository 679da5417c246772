"""SQL with mistakes repairs itself, or says what is wrong: nothing is guessed below the floor."""

from collections.abc import Mapping
from typing import Any

import duckdb
import pytest

from copilot_runtime.extensions.analyst.engine.errors import parse_error
from copilot_runtime.extensions.analyst.results import Column, Table
from copilot_runtime.extensions.analyst.sql.guard import GuardedQuery, guard_sql
from copilot_runtime.extensions.analyst.sql.repair.context import RepairContext, StepBudget
from copilot_runtime.extensions.analyst.sql.repair.loop import RepairOutcome, run_with_repair
from copilot_runtime.extensions.analyst.sql.rules import (
    GuardRules,
    Scope,
    SqlRefused,
    TableRule,
    list_safe_functions,
)
from copilot_runtime.telemetry.span import NO_SPAN, Span
from tests.in_one_test import in_one_test

FIXTURE = """
CREATE TABLE eval_data(
  dataset_id VARCHAR, query VARCHAR, faithfulness_score DOUBLE, relevance_score DOUBLE,
  latency VARCHAR, environment VARCHAR, source_name VARCHAR, ts TIMESTAMP);
INSERT INTO eval_data SELECT 'd'||i, 'q'||i, (i%100)/100.0, ((i*7)%100)/100.0,
  CASE WHEN i%10=0 THEN 'n/a' ELSE (i*3)::VARCHAR END,
  CASE i%3 WHEN 0 THEN 'production' WHEN 1 THEN 'staging' ELSE 'dev' END,
  CASE i%2 WHEN 0 THEN 'alpha_bot' ELSE 'beta_bot' END,
  TIMESTAMP '2026-01-01' + INTERVAL (i) HOUR FROM range(1000) t(i);
CREATE TABLE kpi_data(kpi_name VARCHAR, kpi_category VARCHAR, kpi_value DOUBLE);
INSERT INTO kpi_data VALUES
  ('nps','customer',42.0),('csat','customer',4.4),('revenue','finance',1250000.0);
"""


class PlainEngine:
    """Guards and runs SQL, and keeps what it ran."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(config={"errors_as_json": "true", "threads": "1"})
        self._connection.execute(FIXTURE)
        self.statements: list[str] = []
        self.functions = list_safe_functions(
            name
            for (name,) in self._connection.execute(
                "SELECT DISTINCT function_name FROM duckdb_functions()"
            ).fetchall()
        )

    async def run(
        self,
        query: GuardedQuery,
        /,
        *,
        limit: int,
        timeout: float | None = None,
        span: Span = NO_SPAN,
    ) -> Table:
        """Return rows."""
        self.statements.append(query.display_sql)
        try:
            cursor = self._connection.execute(query.sql)
            rows = cursor.fetchmany(limit)
        except duckdb.Error as error:
            raise parse_error(error) from None
        return Table(columns=[Column(it[0], str(it[1])) for it in cursor.description], rows=rows)

    async def explain(self, query: GuardedQuery, /) -> None:
        """Bind only."""
        try:
            self._connection.execute(f"EXPLAIN {query.sql}")
        except duckdb.Error as error:
            raise parse_error(error, 8) from None

    def list_tables(self) -> dict[str, list[Column]]:
        """Return the columns of all tables."""
        return {
            name: [
                Column(row[0], row[1])
                for row in self._connection.execute(f"DESCRIBE {name}").fetchall()
            ]
            for name in ("eval_data", "kpi_data")
        }

    def guard(self, sql: str, row_filter: str | None = None) -> GuardedQuery:
        """Return what may run; a row filter holds for `eval_data`."""
        tables = {
            name: TableRule(
                physical=f'"memory"."main"."{name}"',
                columns=columns,
                row_filter=row_filter if name == "eval_data" else None,
            )
            for name, columns in self.list_tables().items()
        }
        return guard_sql(sql, GuardRules(tables=tables, functions=self.functions), Scope())


pytestmark = pytest.mark.anyio

ENVIRONMENTS = [("dev", 333), ("production", 334), ("staging", 333)]
MONTHS = [("2026-01", 744), ("2026-02", 256)]


@pytest.fixture(scope="module")
def engine() -> PlainEngine:
    return PlainEngine()


async def repair(
    engine: PlainEngine, sql: str, synonyms: Mapping[str, str] | None = None
) -> RepairOutcome:
    context = RepairContext(
        tables=engine.list_tables(),
        synonyms=synonyms or {},
        dataset="eval_data",
        functions=engine.functions,
    )
    return await run_with_repair(sql, guard=engine.guard, engine=engine, context=context, limit=100)


def rows(outcome: RepairOutcome) -> list[Any]:
    assert outcome.table is not None, outcome.failure
    return [
        tuple(round(it, 4) if isinstance(it, float) else it for it in row)
        for row in outcome.table.rows
    ]


@in_one_test(
    ("sql", "answer", "fixes"),
    [
        (
            "SELECT AVG(faitfulness_score) FROM eval_data WHERE query <> 'faitfulness_score'",
            [(0.495,)],
            [
                "Column 'faitfulness_score' not found → replaced with 'faithfulness_score' "
                "(fuzzy match)"
            ],
        ),
        (
            "SELECT faitfulness_score, relevence_score, latncy FROM eval_data LIMIT 1",
            [(0.0, 0.0, "n/a")],
            [
                "Column 'faitfulness_score' not found → replaced with 'faithfulness_score' "
                "(fuzzy match)",
                "Column 'relevence_score' not found → replaced with 'relevance_score' "
                "(fuzzy match)",
                "Column 'latncy' not found → replaced with 'latency' (fuzzy match)",
            ],
        ),
        (
            "SELECT e.sourcename FROM eval_data e LIMIT 1",
            [("alpha_bot",)],
            ["Column 'sourcename' not found → replaced with 'source_name' (fuzzy match)"],
        ),
        (
            "SELECT faithfulness FROM eval_data LIMIT 1",
            [(0.0,)],
            ["Column 'faithfulness' not found → replaced with 'faithfulness_score' (fuzzy match)"],
        ),
        (
            "SELECT environment, COUNT(*) FROM eval_data GROUP BY enviroment ORDER BY 1",
            ENVIRONMENTS,
            ["Column 'enviroment' not found → replaced with 'environment' (fuzzy match)"],
        ),
        (
            "WITH t AS (SELECT environment AS place FROM eval_data) SELECT COUNT(plase) FROM t",
            [(1000,)],
            ["Column 'plase' not found → replaced with 'place' (fuzzy match)"],
        ),
        (
            "SELECT COUNT(*) FROM evaldata",
            [(1000,)],
            ["Table 'evaldata' not found → replaced with 'eval_data' (fuzzy match)"],
        ),
        (
            "SELECT COUNT(*) FROM public.eval_data",
            [(1000,)],
            ["Table 'public.eval_data' not found → replaced with 'eval_data' (other schema)"],
        ),
        (
            "SELECT COUNT(*) FROM dataset",
            [(1000,)],
            ["Table 'dataset' not found → replaced with 'eval_data' (the current data set)"],
        ),
        (
            "SELECT COUNT(evaldata.ts) FROM evaldata",
            [(1000,)],
            ["Table 'evaldata' not found → replaced with 'eval_data' (fuzzy match)"],
        ),
        (
            "SELECT COUNT(eval_data.ts) FROM eval_data e",
            [(1000,)],
            ["Table 'eval_data' not found → replaced with 'e' (alias)"],
        ),
        (
            'SELECT COUNT(*) FROM eval_data WHERE environment = "production"',
            [(334,)],
            ["\"production\" is no column → written as the text 'production'"],
        ),
        (
            'SELECT COUNT(*) FROM eval_data WHERE environment IN ("production", "dev")',
            [(667,)],
            [
                "\"production\" is no column → written as the text 'production'",
                "\"dev\" is no column → written as the text 'dev'",
            ],
        ),
        (
            'SELECT COUNT(*) FROM eval_data WHERE environment LIKE "prod%"',
            [(334,)],
            ["\"prod%\" is no column → written as the text 'prod%'"],
        ),
        (
            'SELECT COUNT(*) FROM eval_data WHERE ts >= "2026-02-01"',
            [(256,)],
            ["\"2026-02-01\" is no column → written as the text '2026-02-01'"],
        ),
        (
            "SELECT environment, COUNT(*) FROM eval_data ORDER BY 1",
            ENVIRONMENTS,
            ["GROUP BY missing → added GROUP BY ALL"],
        ),
        (
            "SELECT COUNT(a.ts) FROM eval_data a JOIN eval_data b ON a.ts = b.ts "
            "WHERE environment = 'dev'",
            [(333,)],
            ["Column 'environment' is ambiguous → replaced with 'a.environment'"],
        ),
    ],
)
async def test_a_name_or_a_missing_clause_repairs_itself(
    engine: PlainEngine, sql: str, answer: list[Any], fixes: list[str]
) -> None:
    outcome = await repair(engine, sql)
    assert (rows(outcome), [fix.description for fix in outcome.fixes]) == (answer, fixes)
    assert outcome.attempts == 2


@in_one_test(
    ("sql", "answer", "nulls"),
    [
        ("SELECT AVG(CAST(latency AS DOUBLE)) FROM eval_data", 1500.0, 100),
        ("SELECT AVG(latency) FROM eval_data", 1500.0, 100),
        ("SELECT SUM(latency::INT) FROM eval_data WHERE environment = 'dev'", 450000, 33),
        ("SELECT COUNT(*) FROM eval_data WHERE latency > 100", 870, 100),
        ("SELECT COUNT(*) FROM eval_data WHERE latency BETWEEN 1 AND 5", 1, 100),
        ("SELECT MAX(latency * 2) FROM eval_data", 5994.0, 100),
        ("SELECT SUM(CASE WHEN latency > 300 THEN 1 ELSE 0 END) FROM eval_data", 810, 100),
        ("SELECT AVG(COALESCE(latency, 0)) FROM eval_data", 1350.0, 100),
        (
            "WITH t AS (SELECT latency AS l FROM eval_data WHERE source_name = 'alpha_bot') "
            "SELECT AVG(CAST(l AS DOUBLE)) FROM t",
            1500.0,
            100,
        ),
        ("SELECT AVG(l) FROM (SELECT CAST(latency AS DOUBLE) l FROM eval_data)", 1500.0, 100),
    ],
)
async def test_values_that_do_not_convert_become_null_and_are_counted(
    engine: PlainEngine, sql: str, answer: float, nulls: int
) -> None:
    outcome = await repair(engine, sql)
    fix = outcome.fixes[0]
    assert (rows(outcome), fix.kind, fix.nulls) == ([(answer,)], "type", nulls)
    assert "wrapped with TRY_CAST to handle NULL values" in fix.description


@in_one_test(
    ("sql", "answer"),
    [
        ("SELECT DATE_FORMAT(ts,'%Y-%m'), COUNT(*) FROM eval_data GROUP BY 1 ORDER BY 1", MONTHS),
        ("SELECT TO_CHAR(ts,'YYYY-MM'), COUNT(*) FROM eval_data GROUP BY 1 ORDER BY 1", MONTHS),
        (
            'SELECT strftime(ts, "%Y-%m"), COUNT(*) FROM eval_data GROUP BY 1 ORDER BY 1',
            MONTHS,
        ),
        ("SELECT FORMAT_DATE('%Y', ts), COUNT(*) FROM eval_data GROUP BY 1", [("2026", 1000)]),
        ("SELECT ISNULL(environment, 'x') FROM eval_data LIMIT 1", [("production",)]),
        ("SELECT TIMESTAMPDIFF(DAY, MIN(ts), MAX(ts)) FROM eval_data", [(41,)]),
        ("SELECT YEAR(MAX(DATEADD(year, 1, ts))) FROM eval_data", [(2027,)]),
        ("SELECT ROUND(AVERAGE(faithfulness_score), 3) FROM eval_data", [(0.495,)]),
        ("SELECT CUONT(*) FROM eval_data", [(1000,)]),
        ("SELECT TOP 1 dataset_id FROM eval_data", [("d0",)]),
        ("SELECT [dataset_id] FROM [eval_data] LIMIT 1", [("d0",)]),
        ("SELECT COUNT(*) FROM eval_data WHERE environment = \u2018dev\u2019", [(333,)]),
        ("SELECT COUNT(*) FROM eval_data WHERE environment = \u201cdev\u201d", [(333,)]),
        ("SELECT COUNT(*) FROM eval_data WHERE environment = 'dev", [(333,)]),
        ("SELECT AVG(faithfulness_score FROM eval_data", [(0.495,)]),
        ("SELECT COUNT(*)) FROM eval_data", [(1000,)]),
        ("SELECT * FROM (SELECT COUNT(*) FROM eval_data", [(1000,)]),
        (
            "SELECT DATE_FORMAT(ts,'%Y') y, AVG(faitfulness_score), AVG(latency) FROM evaldata "
            "GROUP BY 1",
            [("2026", 0.495, 1500.0)],
        ),
    ],
)
async def test_sql_of_another_database_and_broken_sql_are_read_as_what_was_meant(
    engine: PlainEngine, sql: str, answer: list[Any]
) -> None:
    outcome = await repair(engine, sql)
    assert rows(outcome) == answer
    assert outcome.attempts == 2


async def test_a_synonym_stands_for_its_column(engine: PlainEngine) -> None:
    synonyms = {"env": "environment", "stage": "environment"}
    outcome = await repair(engine, "SELECT env FROM eval_data LIMIT 1", synonyms)
    assert [(fix.before, fix.after) for fix in outcome.fixes] == [("env", "environment")]


async def test_a_code_fence_is_no_part_of_sql(engine: PlainEngine) -> None:
    outcome = await repair(engine, "```sql\nSELECT COUNT(*) FROM eval_data;\n```")
    assert (rows(outcome), outcome.attempts) == ([(1000,)], 1)


@in_one_test(
    "sql",
    [
        "SELECT zzz FROM eval_data",
        "SELECT score FROM eval_data",
        "SELECT COUNT(*) FROM nonsense",
        "SELECT COUNT(*) FROM information_schema.eval_data",
        'SELECT COUNT(*) FROM eval_data WHERE environment = "prodction"',
        "SELECT COUNT(*) FROM eval_data WHERE environment = 1",
        "SELECT AVG(environment) FROM eval_data",
        "SELECT CAST(environment AS DATE) FROM eval_data",
        "SELECT COUNT(*) FROM eval_data WHERE ts > 'yesterday'",
        "SELECT nosuchfunction(ts) FROM eval_data",
        "SELECT 1 FROM eval_data WHERE",
        "SELECT 1 FROM eval_data WHERE (((",
        "\x00",
    ],
)
async def test_what_is_no_likely_mistake_is_left_as_it_is(engine: PlainEngine, sql: str) -> None:
    outcome = await repair(engine, sql)
    error = outcome.describe_error()
    assert (outcome.table, outcome.fixes, outcome.attempts) == (None, (), 1)
    assert error["sql_attempted"] == sql
    assert error["error"]


async def test_a_failure_lists_the_columns_there_are(engine: PlainEngine) -> None:
    outcome = await repair(engine, "SELECT zzz FROM kpi_data")
    assert outcome.describe_error()["available_columns"] == [
        *("kpi_name", "kpi_category", "kpi_value")
    ]


async def test_a_repair_sees_only_rows_that_its_person_may_see(engine: PlainEngine) -> None:
    context = RepairContext(tables=engine.list_tables(), functions=engine.functions)

    async def run(sql: str) -> RepairOutcome:
        return await run_with_repair(
            sql,
            guard=lambda text: engine.guard(text, "environment = 'dev'"),
            engine=engine,
            context=context,
            limit=1,
        )

    hidden = await run('SELECT COUNT(*) FROM eval_data WHERE environment = "production"')
    mine = await run('SELECT COUNT(*) FROM eval_data WHERE environment = "dev"')
    converted = await run("SELECT COUNT(CAST(latency AS DOUBLE)) FROM eval_data")
    assert (hidden.table, rows(mine)) == (None, [(333,)])
    assert (rows(converted), converted.fixes[0].nulls) == ([(300,)], 33)


@in_one_test(
    "sql",
    [
        "DROP TABLE evaldata",
        "SELECT 1; SELECT 2",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT getenv('HOME') FROM eval_data",
        "this is no SQL",
        "(" * 200,
    ],
)
async def test_what_nobody_may_do_is_not_repaired(engine: PlainEngine, sql: str) -> None:
    engine.statements.clear()
    with pytest.raises(SqlRefused):
        await repair(engine, sql)
    assert engine.statements == []


async def test_a_repair_ends_when_its_steps_are_used_up(engine: PlainEngine) -> None:
    context = RepairContext(tables=engine.list_tables(), budget=StepBudget(100))
    sql = f"SELECT 1 FROM eval_data WHERE faithfulness_score IN ({', '.join(['latency'] * 99)})"

    outcome = await run_with_repair(
        sql, guard=engine.guard, engine=engine, context=context, limit=1
    )

    assert outcome.describe_error()["notice"] == (
        "The SQL is too large to be repaired within 200,000 steps."
    )
