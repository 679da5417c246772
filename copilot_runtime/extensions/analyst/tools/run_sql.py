"""The tool that runs SQL which the model wrote."""

from dataclasses import replace
from typing import TYPE_CHECKING

from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.analyst.results import ToolResult
from copilot_runtime.extensions.analyst.tools.model_sql import count_result, execute_sql
from copilot_runtime.extensions.analyst.tools.queries import MOST_ROWS
from copilot_runtime.extensions.analyst.tools.tool import AnalystTool, Arguments, Field, alias
from copilot_runtime.extensions.analyst.tools.values import list_records

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.session import Session

MOST_PREVIEW = 120


class SqlArguments(Arguments):
    """What `run_sql` takes."""

    sql: str = Field(
        description="One SELECT statement in the dialect of DuckDB.",
        validation_alias=alias("sql", "query", "statement"),
    )
    limit: int = Field(default=100, description="Rows to return, at most 500.")


async def run_sql(session: "Session", arguments: SqlArguments) -> ToolResult:
    """Return the rows of a statement; a mistake in it is repaired, at most twice."""
    execution = await execute_sql(session, arguments.sql, limit=MOST_ROWS, tool="run_sql")
    table, fixes = execution.table, execution.fixes
    total = await count_result(session, execution.query, table)
    limit = max(1, min(arguments.limit, MOST_ROWS))
    rows = list_records(table, limit)
    output: JsonObject = {
        "rows": rows,
        "returned": len(rows),
        "total_rows": total,
        "truncated": table.is_truncated or len(table.rows) > limit,
        "columns": [{"name": column.name, "type": column.type} for column in table.columns],
    }
    if fixes:
        output["sql_executed"] = execution.query.display_sql
        output["fixes"] = [fix.description for fix in fixes]
    if execution.lineage.checks:
        output["warnings"] = list(execution.lineage.checks)
    count = f"{total:,}" if total is not None else f"more than {len(table.rows):,}"
    return ToolResult(
        output=output,
        title=f"{count} {'row' if total == 1 else 'rows'}",
        table=replace(table, total_rows=total),
        lineage=execution.lineage,
    )


def preview_sql(sql: str) -> str:
    """Return the begin of a statement on one line."""
    line = " ".join(sql.split())
    return line if len(line) <= MOST_PREVIEW else line[: MOST_PREVIEW - 1] + "…"


RUN_SQL = AnalystTool(
    name="run_sql",
    description=(
        "Runs one SELECT statement of DuckDB over the data sets. Use it for what no other tool "
        "does: joins, windows, dates, several conditions. Aggregate instead of listing rows."
    ),
    arguments=SqlArguments,
    run=run_sql,
    describe_call=lambda arguments: f"Running SQL: {preview_sql(arguments.sql)}",
    is_sql_writing=True,
)
