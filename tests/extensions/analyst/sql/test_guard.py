"""What the guard lets through, what runs then, and the shape of SQL without values."""

from functools import cache
from pathlib import Path

import duckdb
import pytest

from copilot_runtime.extensions.analyst.engine.errors import QueryFailed
from copilot_runtime.extensions.analyst.results import Column
from copilot_runtime.extensions.analyst.sql.guard import guard_sql
from copilot_runtime.extensions.analyst.sql.parsing import fingerprint_sql, hash_sql
from copilot_runtime.extensions.analyst.sql.rules import (
    GuardRules,
    Scope,
    SqlRefused,
    TableRule,
    list_safe_functions,
)
from tests.extensions.analyst.analysts import build_analyst
from tests.in_one_test import in_one_test

COLUMNS = (
    Column("dataset_id", "VARCHAR"),
    Column("query", "VARCHAR"),
    Column("faithfulness_score", "DOUBLE"),
    Column("latency", "VARCHAR"),
    Column("environment", "VARCHAR"),
    Column("source_name", "VARCHAR"),
    Column("ts", "TIMESTAMP"),
)
BOB = Scope(user="dev")


@cache
def safe_functions() -> frozenset[str]:
    """Return the functions of DuckDB that SQL may call."""
    with duckdb.connect() as connection:
        rows = connection.execute("SELECT DISTINCT function_name FROM duckdb_functions()")
        return list_safe_functions(name for (name,) in rows.fetchall())


def build_rules(row_filter: str | None = "environment = $user") -> GuardRules:
    """Return rules for both tables."""
    return GuardRules(
        tables={
            "eval_data": TableRule(
                physical='"d1"."main"."eval_data"', columns=COLUMNS, row_filter=row_filter
            ),
            "kpi_data": TableRule(physical="d2.main.kpi_data"),
        },
        functions=safe_functions(),
    )


def _judge(sql: str) -> str:
    try:
        guard_sql(sql, build_rules(), BOB)
    except SqlRefused as error:
        assert error.message
        return error.reason
    return "ok"


@in_one_test(
    "sql",
    [
        "SELECT environment, count(*) FROM eval_data GROUP BY ALL ORDER BY ALL LIMIT 3",
        "FROM eval_data",
        "TABLE kpi_data",
        "VALUES (1), (2)",
        "SELECT 'please DROP TABLE x' AS s",
        "SELECT replace(query, 'a', 'b'), query AS update FROM Eval_Data e",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) FROM r",
        "SELECT * FROM (SUMMARIZE eval_data)",
        "SELECT * FROM (DESCRIBE eval_data)",
        "PIVOT eval_data ON environment IN ('dev') USING count(*)",
        "PIVOT eval_data ON environment USING count(*) GROUP BY query",
        "FROM (PIVOT eval_data ON environment || query, ts USING avg(faithfulness_score))",
        "FROM kpi_data a" + "".join(f" JOIN kpi_data b{n} USING (x)" for n in range(20)),
        "FROM kpi_data a" + "".join(f" CROSS JOIN kpi_data b{n}" for n in range(20)),
        "UNPIVOT kpi_data ON a, b INTO NAME n VALUE v",
        "UNPIVOT kpi_data ON a, b INTO NAME n VALUE v ORDER BY n LIMIT 3",
        "PIVOT eval_data ON environment USING count(*) GROUP BY query ORDER BY query",
        "FROM eval_data e POSITIONAL JOIN main.kpi_data",
        "SELECT COLUMNS(c -> c LIKE 'q%'), * EXCLUDE (query) FROM eval_data",
        "SELECT list_transform([1], x -> x + 1), [x FOR x IN [1]] FROM eval_data",
        "SELECT json_extract(query, '$.a[0].b'), query->>'a', json_object('a', 1) FROM eval_data",
        "SELECT 1::INT[], '{}'::JSON, x::STRUCT(a INT, b DECIMAL(9, 2)[3]), y::ENUM('a')",
        "SELECT ts::TIMESTAMPTZ, a::TEXT, b::MAP(INT, UUID), c::HUGEINT, d::BLOB FROM eval_data",
        "SELECT unnest(generate_series(min(ts), max(ts), INTERVAL 1 DAY)) FROM eval_data",
        "SELECT d FROM generate_series(DATE '2026-01-01', DATE '2036-01-01', INTERVAL 1 DAY) t(d)",
        "SELECT repeat('#', (faithfulness_score * 20)::INT) FROM eval_data",
        "SELECT repeat(query, 3), levenshtein(query, 'a'), jaro_similarity(query, 'b', 0.5)",
        "SELECT replace(replace(query, '&', '&amp;'), ' ', '&nbsp;') FROM eval_data",
        "SELECT replace(query, 'a', environment), query.replace('a', 'b') FROM eval_data",
        r"SELECT regexp_replace(query, '(a+)b', '\1', 'g') FROM eval_data",
        "SELECT 1;;  -- DROP TABLE x",
        " OR ".join(["SELECT 1 WHERE 1 = 1"] + ["2 = 3"] * 300),
    ],
)
def test_a_query_that_reads_is_allowed(sql: str) -> None:
    assert _judge(sql) == "ok"


@in_one_test(
    ("code", "sql"),
    [
        ("multiple_statements", "SELECT 1; SELECT 2"),
        ("multiple_statements", "SELECT '--' LIMIT 1; DROP TABLE eval_data"),
        ("multiple_statements", "SELECT 1; EXPORT DATABASE 'x'"),
        ("write_in_tree", "WITH d AS (DELETE FROM eval_data RETURNING *) FROM d"),
        ("write_in_tree", "WITH d AS (INSERT INTO kpi_data VALUES (1) RETURNING *) FROM d"),
        ("write_in_tree", "SELECT query INTO x FROM eval_data"),
        ("not_select", "CHECKPOINT"),
        ("not_select", "EXPORT DATABASE 'x'"),
        ("not_select", "WITH x AS (SELECT 1) INSERT INTO kpi_data SELECT * FROM x"),
        ("function_not_allowed", "PIVOT eval_data ON getenv(query) USING count(*)"),
        ("function_not_allowed", "PIVOT eval_data ON query USING count(*) ORDER BY getenv('A')"),
        ("function_not_allowed", "SELECT read_text('/etc/passwd')"),
        ("function_not_allowed", "SELECT 'x'.getenv()"),
        ("function_not_allowed", "SELECT system.main.lower('x')"),
        ("function_not_allowed", "FROM query_table('eval_data')"),
        ("function_not_allowed", "FROM histogram(eval_data, query)"),
        ("function_not_allowed", "SELECT stats(query) FROM eval_data"),
        ("function_not_allowed", "SELECT error(query) FROM eval_data"),
        ("function_not_allowed", "SELECT current_user"),
        ("function_not_allowed", "SELECT len(range(100000000))"),
        ("function_not_allowed", "SELECT 'x'.repeat(100000000)"),
        ("function_not_allowed", f"SELECT repeat('{'x' * 200}', 200)"),
        ("function_not_allowed", "SELECT query.damerau_levenshtein(query) FROM eval_data"),
        ("function_not_allowed", "SELECT query.repeat(100000000) FROM eval_data"),
        ("function_not_allowed", "SELECT printf('%300000000d', 1)"),
        ("table_not_allowed", "FROM 'x.csv'"),
        ("table_not_allowed", "FROM sqlite_master"),
        ("table_not_allowed", "FROM d1.main.eval_data"),
        ("table_not_allowed", "WITH a AS (FROM b), b AS (SELECT 1) FROM a"),
        ("table_not_allowed", "SELECT * FROM (SHOW TABLES)"),
        ("parse_error", "SELEC 1"),
        ("parse_error", ""),
        ("parse_error", "-- nothing"),
        ("parse_error", "SELECT $1"),
        ("parse_error", "SELECT 'a\0b'"),
        ("parse_error", "SELECT '\ud800'"),
        ("multiple_statements", '" " ; SELECT 1'),
        ("parse_error", '" " /**/ END ='),
        ("not_select", "SELECT NULL::mood"),
        ("not_select", "SELECT NULL::d1.main.mood"),
        ("function_not_allowed", "SELECT enum_range(query) FROM eval_data"),
        ("too_long", "SELECT '" + "x" * 20_000 + "'"),
        ("too_large", "SELECT " + "1," * 9_990 + "1"),
        ("too_large", "SELECT * FROM kpi_data" + " JOIN kpi_data" * 40),
        ("too_deep", "SELECT " + "(" * 5_000 + "1" + ")" * 5_000),
        ("too_deep", "SELECT " + "NOT " * 4_000 + "1"),
    ],
)
def test_anything_else_is_refused_with_a_code(code: str, sql: str) -> None:
    assert _judge(sql) == code


def test_a_cte_with_the_name_of_a_table_neither_breaks_nor_reads_around_a_filter() -> None:
    sql = guard_sql(
        "WITH eval_data AS (SELECT * FROM eval_data) SELECT * FROM eval_data", build_rules(), BOB
    ).sql
    assert sql == (
        'WITH "eval_data (cte 1)" AS (SELECT * FROM (SELECT * FROM "d1"."main"."eval_data" AS '
        '"eval_data" WHERE (("environment" = \'dev\')) LIMIT 9223372036854775807) AS '
        '"eval_data") SELECT * FROM "eval_data (cte 1)" AS "eval_data"'
    )


def test_a_variable_without_a_value_refuses_every_row() -> None:
    assert "WHERE FALSE" in guard_sql("FROM eval_data", build_rules(), Scope()).sql


def test_a_value_is_a_literal_whatever_is_in_it() -> None:
    query = guard_sql("FROM eval_data", build_rules(), Scope(user="x' OR 1=1 --"))
    assert "\"environment\" = 'x'' OR 1=1 --'" in query.sql
    assert "x'" not in query.display_sql


def test_an_agent_sees_its_own_rows() -> None:
    query = guard_sql("FROM eval_data", build_rules(None), Scope(agent_name="alpha_bot"))
    assert "WHERE \"source_name\" = 'alpha_bot'" in query.sql


def test_a_limit_never_grows() -> None:
    rules = build_rules(None)
    assert guard_sql("FROM kpi_data", rules, BOB).with_limit(5).endswith('"kpi_data" LIMIT 5')
    assert (
        guard_sql("FROM kpi_data LIMIT 3", rules, BOB)
        .with_limit(5)
        .endswith('LIMIT 3) AS "result" LIMIT 5')
    )


def test_a_similar_table_is_offered_only_if_it_may_be_read() -> None:
    with pytest.raises(SqlRefused) as caught:
        guard_sql("FROM eval_dat", build_rules(), BOB)
    assert (caught.value.name, caught.value.candidates) == ("eval_dat", ("eval_data",))


def test_what_duckdb_would_compute_differently_is_refused_by_its_name() -> None:
    with pytest.raises(SqlRefused, match="'to_char'") as refusal:
        guard_sql("SELECT to_char(ts, 'YYYY-MM') FROM eval_data", build_rules(), BOB)

    assert (refusal.value.reason, refusal.value.is_unknown) == ("function_not_allowed", True)


def test_a_tower_of_steps_that_doubles_is_refused_before_it_is_planned() -> None:
    floors = ", ".join(f"a{n} AS (SELECT a.* FROM a{n - 1} a, a{n - 1} b)" for n in range(1, 30))
    tower = f"WITH a0 AS (FROM eval_data), {floors} SELECT count(*) FROM a29"
    steps = ", ".join(f"b{n} AS (FROM b{n - 1})" for n in range(1, 30))

    assert _judge(tower) == "too_large"
    assert _judge(f"WITH b0 AS (FROM eval_data), {steps} SELECT count(*) FROM b29") == "ok"


@in_one_test(
    ("sql", "shape"),
    [
        (
            "select  * from t where a='b' and c>-3 -- pw=1",
            "SELECT * FROM t WHERE a = ? AND c > ?",
        ),
        ("SELECT * FROM t WHERE a IN ('x', 'y')", "SELECT * FROM t WHERE a IN (?)"),
        (
            "SELECT a::DECIMAL(10,2) FROM t LIMIT 5",
            "SELECT CAST(a AS DECIMAL(10, 2)) FROM t LIMIT ?",
        ),
        ("SELECT a FROM t WHERE b IS TRUE", "SELECT a FROM t WHERE b IS ?"),
        ("SELECT 1; SELECT 'x'", "SELECT ?; SELECT ?"),
        ("EXPLAIN SELECT 'x'", "EXPLAIN ?"),
    ],
)
def test_every_value_is_a_question_mark(sql: str, shape: str) -> None:
    assert fingerprint_sql(sql) == shape


@in_one_test(
    "sql", ["SELEC * FROM t WHERE pw='hunter2'", "'" * 3, "(" * 9_000, "FROM t" + " JOIN t" * 40]
)
def test_of_a_text_that_is_no_sql_only_a_hash_is_left(sql: str) -> None:
    assert fingerprint_sql(sql) == hash_sql(sql)
    assert len(hash_sql(sql)) == 8


def test_the_hash_is_the_same_for_other_values() -> None:
    assert hash_sql("SELECT 1") == hash_sql("select  2") != hash_sql("SELECT a")


pytestmark = pytest.mark.anyio

LONG = "(SELECT string_agg('orders', ',') AS x FROM generate_series(1, 30000))"


async def test_texts_are_made_and_compared_up_to_a_length(tmp_path: Path) -> None:
    analyst = build_analyst(tmp_path)
    await analyst.open()

    async def run(sql: str) -> object:
        query = analyst.guard_sql(sql, Scope())
        return (await analyst.engine.run(query, limit=1)).rows[0][0]

    assert await run("SELECT levenshtein(city, owner) FROM orders ORDER BY ALL DESC") == 4
    assert await run("SELECT repeat(city, 2) FROM orders ORDER BY ALL") == "OsloOslo"
    assert await run("SELECT replace(city, 's', owner) FROM orders ORDER BY ALL") == "Oannlo"
    assert await run("SELECT repeat(city, NULL) FROM orders") is None
    for call in (
        "levenshtein(x, 'a')",
        "damerau_levenshtein(x, x)",
        "jaro_similarity('a', x)",
        "jaro_winkler_similarity(x, x)",
        "repeat(x, 2)",
        "repeat('a', length(x))",
        "replace(x, 'o', x)",
        "regexp_replace(x, '.', x, 'g')",
    ):
        with pytest.raises(QueryFailed, match="too long"):
            await run(f"SELECT length({call}::VARCHAR) FROM {LONG}")
    await analyst.aclose()
