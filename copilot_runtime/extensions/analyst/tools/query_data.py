"""The tools that return or store rows: query_data, run_sql, save_as_dataset and download_data."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from copilot_runtime.base.jsonvalue import JsonObject, drop_none
from copilot_runtime.extensions.analyst.results import (
    ApprovalRequest,
    Column,
    ToolResult,
    list_records,
    number_names,
)
from copilot_runtime.extensions.analyst.tools.filters import (
    Filters,
    build_conditions,
    build_contains,
)
from copilot_runtime.extensions.analyst.tools.model_sql import count_result, execute_sql
from copilot_runtime.extensions.analyst.tools.queries import (
    MOST_ROWS,
    build_lineage,
    count_matches,
    find_column,
    find_order,
    is_id,
    run_tree,
    select,
)
from copilot_runtime.extensions.analyst.tools.tool import (
    Arguments,
    Field,
    Names,
    TableName,
    ToolFailed,
    alias,
    analyst_tool,
    dump_arguments,
)

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.session import Session
    from copilot_runtime.extensions.analyst.sql.guard import GuardedQuery


MOST_RECORDS = 50
MOST_ID_COLUMNS = 3
MOST_TEXT_COLUMNS = 8
"""Maximum number of columns that are searched for a text."""


class QueryArguments(Arguments):
    """Arguments of the `query_data` tool."""

    filter_column: str | None = Field(default=None, description="Column to filter by.")
    filter_value: str | int | float | bool | None = Field(
        default=None, description="Text that its value contains, whatever the case."
    )
    find_min_column: str | None = Field(
        default=None,
        description="Return the record with the smallest value of this column.",
        validation_alias=alias("find_min_column", "min_column"),
    )
    find_max_column: str | None = Field(
        default=None,
        description="Return the record with the largest value of this column.",
        validation_alias=alias("find_max_column", "max_column"),
    )
    search_text: str | None = Field(
        default=None,
        description="Text to search for in columns with ids and texts.",
        validation_alias=alias("search_text", "search", "query"),
    )
    limit: int = Field(default=20, description="Records to return, at most 50.")
    filters: Filters = Field(
        default_factory=dict[str, object],
        description='More conditions by column: a value, a list, or operators like {"gte": 3}.',
    )
    table: TableName = None


@analyst_tool(
    description=(
        "Looks records up: those whose column contains a value, those that contain a text, or the "
        "one with the smallest or largest value. Use it for single records, not for aggregates."
    ),
    describe_call=lambda arguments: _describe_call(arguments),
)
async def query_data(session: "Session", arguments: QueryArguments) -> ToolResult:
    """Return the matching records, or the one with the minimum or maximum of a column."""
    dataset = session.find_dataset(arguments.table)
    synonyms = session.services.find_synonyms(dataset.name)
    columns = dataset.columns
    conditions = build_conditions(arguments.filters, columns, synonyms)
    output: JsonObject = {}
    if arguments.filter_column:
        column = find_column(arguments.filter_column, columns, synonyms)
        output["resolved_column"] = column.name
        if arguments.filter_value is not None:
            conditions.append(build_contains(column, _to_words(arguments.filter_value)))
    if arguments.search_text:
        searched = list_search_columns(columns, arguments.search_text)
        output["searched_columns"] = [column.name for column in searched]
        found = [build_contains(column, arguments.search_text) for column in searched]
        conditions.append(exp.or_(*found) if found else exp.false())
    queries: list[GuardedQuery] = []
    checks: list[str] = []
    for key, name in (
        ("min_record", arguments.find_min_column),
        ("max_record", arguments.find_max_column),
    ):
        if name:
            column = find_column(name, columns, synonyms)
            output[f"{key}_column"] = column.name
            order = await find_order(session, dataset, column, conditions)
            checks += order.checks
            tree = _select_extreme(
                dataset.name, order.value, conditions, is_max=key == "max_record"
            )
            table, query = await run_tree(session, tree, limit=1)
            output[key] = next(iter(list_records(table)), None)
            queries.append(query)
    limit = max(1, min(arguments.limit, MOST_RECORDS))
    if queries and not conditions:  # only the matching records were requested
        limit = 0
    rows, query = await run_tree(session, select([exp.Star()], dataset.name, conditions))
    total = await count_matches(session, dataset, conditions, rows)
    records = list_records(rows, limit)
    counts = {"total_matching": total, "returned": len(records), "truncated": total > len(records)}
    checks = list(dict.fromkeys(checks))
    return ToolResult(
        output=drop_none({**counts, **output, "records": records, "warnings": checks or None}),
        title=f"{total:,} records of {dataset.name} match",
        table=rows,
        lineage=await build_lineage(session, [query, *queries], checks=checks),
    )


def list_search_columns(columns: Sequence[Column], text: str) -> list[Column]:
    """Return the columns to search for a text: identifiers, and for words text columns."""
    is_number = text.strip().isdecimal()
    named = [one for one in columns if is_id(one.name) and (is_number or one.is_text)]
    texts = [one for one in columns if one.is_text and one not in named]
    found = named[:MOST_ID_COLUMNS]
    return found if is_number and found else [*found, *texts[:MOST_TEXT_COLUMNS]]


def _select_extreme(
    table: str, value: exp.Expr, conditions: Sequence[exp.Expr], *, is_max: bool
) -> exp.Select:
    has_value = exp.Not(this=exp.Is(this=value, expression=exp.Null()))
    order = exp.Ordered(this=value.copy(), desc=is_max, nulls_first=False)
    query = select([exp.Star()], table, [*[one.copy() for one in conditions], has_value])
    return query.order_by(order).limit(1)


def _to_words(value: object) -> str:
    """Return a value as DuckDB prints it: 3.0 would not match an integer 3."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _describe_call(arguments: QueryArguments) -> str:
    parts = [
        f"{arguments.filter_column} contains {arguments.filter_value!r}"[:120]
        if arguments.filter_column
        else "",
        f"search {arguments.search_text!r}"[:80] if arguments.search_text else "",
        f"least {arguments.find_min_column}" if arguments.find_min_column else "",
        f"most {arguments.find_max_column}" if arguments.find_max_column else "",
    ]
    return "Looking up records" + "".join(f": {part}" for part in parts if part)


MOST_PREVIEW = 120


class SqlArguments(Arguments):
    """Arguments of the `run_sql` tool."""

    sql: str = Field(
        description="One SELECT statement in the dialect of DuckDB.",
        validation_alias=alias("sql", "query", "statement"),
    )
    limit: int = Field(default=100, description="Rows to return, at most 500.")


@analyst_tool(
    description=(
        "Runs one SELECT statement of DuckDB over the data sets. Use it for what no other tool "
        "does: joins, windows, dates, several conditions. Aggregate instead of listing rows."
    ),
    describe_call=lambda arguments: f"Running SQL: {preview_sql(arguments.sql)}",
)
async def run_sql(session: "Session", arguments: SqlArguments) -> ToolResult:
    """Return the rows of a statement; mistakes are repaired at most twice."""
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
    """Return the start of a statement on one line."""
    line = " ".join(sql.split())
    return line if len(line) <= MOST_PREVIEW else line[: MOST_PREVIEW - 1] + "…"


_PREVIEW = 50


class SaveArguments(Arguments):
    """Arguments of the `save_as_dataset` tool."""

    name: str = Field(
        description="What the data set is called.",
        min_length=1,
        max_length=200,
        validation_alias=alias("name", "dataset_name"),
    )
    sql: str = Field(
        description="One SELECT statement that returns its rows.",
        validation_alias=alias("sql", "query"),
    )
    description: str = Field(default="", description="What is in it.", max_length=2_000)
    tags: Names = Field(default_factory=list[str], description="Words to find it by.")


@analyst_tool(
    description=(
        "Saves the rows of a SELECT statement as a new data set, for later questions. Only when "
        "the person asks for it: they are asked before it happens."
    ),
    describe_call=lambda arguments: f"Saving the data set {arguments.name[:80]}",
    effect="write",
    is_cached=False,
)
async def save_as_dataset(session: "Session", arguments: SaveArguments) -> ToolResult:
    """Keep the rows of a statement as a data set that only this user sees."""
    services = session.services
    if not services.allow_save:
        raise ToolFailed("Data sets cannot be saved here.", hint="Answer without saving one.")
    execution = await execute_sql(
        session, arguments.sql, limit=_PREVIEW, tool="save_as_dataset", is_measured=False
    )
    rows = await count_result(session, execution.query, execution.table)
    is_large = rows is None or rows > services.approval_rows
    needs_approval = services.approve_saves or is_large
    if needs_approval and not session.is_approved("save_as_dataset", dump_arguments(arguments)):
        count = "an unknown number of" if rows is None else f"{rows:,}"
        question = f"Save {count} rows as the data set {arguments.name!r}, for you alone?"
        approval = ApprovalRequest(
            tool="save_as_dataset",
            arguments=dump_arguments(arguments),
            question=question,
            rows=rows,
        )
        return ToolResult(output={}, approval=approval)
    dataset = await services.engine.save(
        arguments.name,
        execution.query,
        owner=session.scope.owner or "",
        description=arguments.description,
        tags=arguments.tags,
    )
    output: JsonObject = {
        "dataset_id": dataset.name,
        "name": arguments.name,
        "table": dataset.name,
        "row_count": dataset.row_count,
        "columns": [{"name": one.name, "type": one.type} for one in dataset.columns],
    }
    return ToolResult(
        output=output,
        title=f"Saved {dataset.row_count:,} rows as {dataset.name}",
        lineage=execution.lineage,
    )


class DownloadArguments(Arguments):
    """Arguments of the `download_data` tool."""

    sql: str = Field(
        description="One SELECT statement that returns what is in the file.",
        validation_alias=alias("sql", "query"),
    )
    format: Literal["csv", "json"] = Field(
        default="csv", description="csv or json.", validation_alias=alias("format", "file_format")
    )
    filename: str = Field(
        default="data",
        description="The name of the file.",
        max_length=300,
        validation_alias=alias("filename", "file_name", "name"),
    )


@analyst_tool(
    description=(
        "Offers the rows of a SELECT statement as a CSV or JSON file. The person gets a link: do "
        "not write one yourself."
    ),
    describe_call=lambda arguments: f"Preparing the file {arguments.filename[:80]}",
    effect="output",
    is_cached=False,
)
async def download_data(session: "Session", arguments: DownloadArguments) -> ToolResult:
    """Offer the rows of a statement as a file that only this caller may fetch."""
    execution = await execute_sql(
        session, arguments.sql, limit=_PREVIEW, tool="download_data", is_measured=False
    )
    services, table = session.services, execution.table
    rows = await count_result(session, execution.query, table)
    if rows is None:
        raise ToolFailed(
            "The rows of the file could not be counted in time.", hint="Filter or aggregate first."
        )
    is_large = rows > services.approval_rows
    if is_large and not session.is_approved("download_data", dump_arguments(arguments)):
        question = f"Export {rows:,} rows as the file {arguments.filename!r}, for you alone?"
        approval = ApprovalRequest(
            tool="download_data", arguments=dump_arguments(arguments), question=question, rows=rows
        )
        return ToolResult(output={}, approval=approval)
    names = number_names([column.name for column in table.columns])
    download = await services.downloads.create(
        execution.query,
        session.scope,
        filename=arguments.filename,
        format=arguments.format,
        row_count=rows,
        columns=names,
    )
    output: JsonObject = {
        "result": f"The person sees a link to {download.filename}.",
        "filename": download.filename,
        "format": download.format,
        "row_count": rows,
        "columns": names,
        "expires_at": download.expires_at,
    }
    return ToolResult(
        output=output,
        title=f"{download.filename}: {rows:,} rows",
        download=download,
        lineage=execution.lineage,
    )
