"""The contract's tables behind the guard, in a DuckDB without files: fast, for repairs alone."""

import duckdb

from copilot_runtime.extensions.analyst.engine.errors import parse_error
from copilot_runtime.extensions.analyst.results import Column, Table
from copilot_runtime.extensions.analyst.scope import Scope
from copilot_runtime.extensions.analyst.sql.guard import GuardedQuery, guard_sql
from copilot_runtime.extensions.analyst.sql.rules import GuardRules, TableRule, list_safe_functions
from copilot_runtime.telemetry.span import NO_SPAN, Span

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
