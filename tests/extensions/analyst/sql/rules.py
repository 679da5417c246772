"""Rules for tests: `eval_data` of one person's environment, and `kpi_data` for everyone."""

from functools import cache

import duckdb

from copilot_runtime.extensions.analyst.results import Column
from copilot_runtime.extensions.analyst.scope import Scope
from copilot_runtime.extensions.analyst.sql.rules import GuardRules, TableRule, list_safe_functions

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
