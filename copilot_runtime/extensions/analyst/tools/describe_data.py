"""The tools that describe the data: statistics, key figures, metrics and memory."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from copilot_runtime.base.jsonvalue import JsonObject, drop_none
from copilot_runtime.extensions.analyst.question import find_datasets
from copilot_runtime.extensions.analyst.results import (
    Lineage,
    Table,
    ToolResult,
    build_table,
    list_records,
    round_number,
    to_plain,
)
from copilot_runtime.extensions.analyst.tools.filters import NO_FILTERS, Filters, build_conditions
from copilot_runtime.extensions.analyst.tools.queries import (
    build_lineage,
    count_matches,
    is_id,
    run_tree,
    select,
)
from copilot_runtime.extensions.analyst.tools.tool import (
    Arguments,
    Field,
    TableName,
    ToolFailed,
    alias,
    analyst_tool,
)

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.engine.datasets import Dataset
    from copilot_runtime.extensions.analyst.engine.metadata import ColumnMetadata, TableMetadata
    from copilot_runtime.extensions.analyst.session import Session


MOST_FILTER_COLUMNS = 8
MOST_FILTER_VALUES = 15
MOST_STATISTICS = 8
MOST_COLUMNS = 100

_FEW_ROWS = 50
"""Row count above which a text column with mostly distinct values is not offered as a filter."""


class SummarizeArguments(Arguments):
    """Arguments of the `summarize_data` tool."""

    include_numeric_stats: bool = Field(
        default=True, description="Whether averages, minima and maxima are computed."
    )
    table: TableName = None
    find: str | None = Field(
        default=None,
        description=(
            "Words of names of tables or columns: lists the tables that have one of them, instead "
            "of describing one. Empty for all tables."
        ),
    )


@analyst_tool(
    description=(
        "Describes a data set: its columns with their types, the number of rows, values to filter "
        "by, the range of time and statistics of numbers. Use it first, and for questions about "
        "the data as a whole. With `find`, searches the tables."
    ),
    describe_call=lambda arguments: (
        f"Summarizing {arguments.table or 'the data set'}"
        if arguments.find is None
        else f"Searching the tables for {arguments.find[:100]!r}"
    ),
)
async def summarize_data(session: "Session", arguments: SummarizeArguments) -> ToolResult:
    """Summarise the columns, values and statistics of a data set, within the caller's scope."""
    if arguments.find is not None and arguments.table is None:
        return _find_tables(session, arguments.find)
    dataset = session.find_dataset(arguments.table)
    metadata = await session.services.engine.describe(dataset.name, session.scope)
    columns = metadata.columns
    output: JsonObject = {
        "dataset": dataset.name,
        "table": dataset.name,
        "description": dataset.description or None,
        "row_count": metadata.row_count,
        "columns": [{"name": one.name, "type": one.type} for one in columns[:MOST_COLUMNS]],
        "more_columns": max(0, len(columns) - MOST_COLUMNS) or None,
        "filter_values": _list_filter_values(columns, metadata.row_count),
        "time_range": _describe_time(metadata),
    }
    if arguments.include_numeric_stats:
        output["numeric_stats"] = _list_statistics(columns)
    return ToolResult(
        output=drop_none(output),
        title=f"{dataset.name}: {metadata.row_count:,} rows, {len(columns)} columns",
        table=_build_profile(columns),
        lineage=Lineage(
            trust="derived",
            sql=f"SUMMARIZE {dataset.name}",
            tables=[dataset.name],
            rows_scanned=metadata.row_count,
        ),
    )


def _find_tables(session: "Session", words: str) -> ToolResult:
    datasets = session.list_datasets()
    found = find_datasets(datasets, words, session.services.find_synonyms)
    rows = [[one.name, ", ".join(it.name for it in one.columns[:MOST_COLUMNS])] for one in found]
    output: JsonObject = {
        "tables": [f"{name}({columns})" for name, columns in rows],
        "found": len(found),
        "all_tables": len(datasets),
    }
    return ToolResult(
        output=output,
        title=f"{len(found):,} of {len(datasets):,} tables",
        table=build_table((("table", "VARCHAR"), ("columns", "VARCHAR")), rows),
    )


def _list_filter_values(columns: "Sequence[ColumnMetadata]", row_count: int) -> JsonObject:
    values: JsonObject = {}
    for column in columns:
        is_id = row_count > _FEW_ROWS and 2 * (column.unique_count or 0) > row_count
        if is_id or not column.values or column.is_numeric:
            continue
        sample = sorted(str(to_plain(value)) for value in column.values[:MOST_FILTER_VALUES])
        total = column.unique_count or len(column.values)
        if total > len(sample):
            sample.append(f"+{total - len(sample)} more")
        values[column.name] = sample
        if len(values) == MOST_FILTER_COLUMNS:
            break
    return values


def _describe_time(metadata: "TableMetadata") -> JsonObject | None:
    if metadata.time_range is None:
        return None
    first, last = metadata.time_range
    return {"column": metadata.time_column, "min": first, "max": last}


def _list_statistics(columns: "Sequence[ColumnMetadata]") -> JsonObject:
    numeric = [one for one in columns if one.is_numeric]
    numeric.sort(key=lambda one: is_id(one.name))
    return {
        one.name: {
            "avg": round_number(one.average, 4),
            "min": to_plain(one.minimum),
            "max": to_plain(one.maximum),
        }
        for one in numeric[:MOST_STATISTICS]
    }


def _build_profile(columns: "Sequence[ColumnMetadata]") -> Table:
    """Return one row per column, for the user."""
    names = {
        "column": "VARCHAR",
        "type": "VARCHAR",
        "unique": "BIGINT",
        "null_percent": "DOUBLE",
        "min": "VARCHAR",
        "max": "VARCHAR",
        "avg": "DOUBLE",
        "values": "VARCHAR",
    }
    rows = [
        [
            *(one.name, one.type, one.unique_count, one.null_percent),
            *(_to_cell(one.minimum), _to_cell(one.maximum), round_number(one.average, 4)),
            ", ".join(str(to_plain(value)) for value in one.values[:MOST_FILTER_VALUES]),
        ]
        for one in columns
    ]
    return build_table(names.items(), rows)


def _to_cell(value: object) -> str | None:
    return None if value is None else str(to_plain(value))


MOST_RECORDS = 100


class KpiArguments(Arguments):
    """Arguments of the `query_kpi_data` tool."""

    filters: Filters = NO_FILTERS
    category: str | None = Field(
        default=None,
        description="A text that the category contains.",
        validation_alias=alias("category", "filter_category"),
    )
    limit: int = Field(default=50, description="Rows to return, at most 100.")


@analyst_tool(
    description=(
        "Reads the table of key business figures (KPIs), by category or any other column. Use it "
        "for questions about KPIs and targets."
    ),
    describe_call=lambda _: "Reading key figures",
)
async def query_kpi_data(session: "Session", arguments: KpiArguments) -> ToolResult:
    """Return rows of the KPI table."""
    dataset = _find_kpi_dataset(session)
    synonyms = session.services.find_synonyms(dataset.name)
    filters = dict(arguments.filters)
    if arguments.category:
        filters["kpi_category"] = {"contains": arguments.category}
    conditions = build_conditions(filters, dataset.columns, synonyms)
    limit = max(1, min(arguments.limit, MOST_RECORDS))
    table, query = await run_tree(
        session, select([exp.Star()], dataset.name, conditions), limit=MOST_RECORDS
    )
    total = await count_matches(session, dataset, conditions, table)
    records = list_records(table, limit)
    output: JsonObject = {
        "table": dataset.name,
        "total": total,
        "returned": len(records),
        "truncated": total > len(records),
        "records": records,
    }
    return ToolResult(
        output=output,
        title=f"{total:,} key figures",
        table=table,
        lineage=await build_lineage(session, [query]),
    )


def _find_kpi_dataset(session: "Session") -> "Dataset":
    datasets = session.list_datasets()
    target = session.services.kpi_table.lower()
    exact = [one for one in datasets if one.name.lower() == target]
    similar = [one for one in datasets if "kpi" in one.name.lower().split("_")]
    for dataset in (*exact, *similar):
        return dataset
    raise ToolFailed(
        "There is no table of key figures.",
        hint="Answer from the other data sets, or say that no KPI data is loaded.",
    )


NO_METRICS = "No metrics are defined for this data: use its numeric columns."


class SignalArguments(Arguments):
    """Arguments of the `describe_metric_signals` tool."""

    metric: str | None = Field(
        default=None,
        description="One metric; by default all.",
        validation_alias=alias("metric", "metric_name"),
    )
    table: TableName = None


@analyst_tool(
    description=(
        "Describes the metrics that are defined for the data: meaning, range, thresholds and the "
        "signals they are made of."
    ),
    describe_call=lambda _: "Reading the definitions of metrics",
)
async def describe_metric_signals(session: "Session", arguments: SignalArguments) -> ToolResult:
    """Return the catalogue's metrics that exist in the data."""
    dataset = session.find_dataset(arguments.table)
    describe = session.services.describe_metrics
    text = describe(dataset, arguments.metric) if describe is not None else ""
    output: JsonObject = {"metrics": text or NO_METRICS, "table": dataset.name}
    return ToolResult(output=output, title=f"Metrics of {dataset.name}")


NO_MEMORY = "No memory recorded yet for this data set."


class RecallArguments(Arguments):
    """Arguments of the `recall_memory` tool."""

    table: TableName = None


@analyst_tool(
    description=(
        "Returns what earlier questions about the data set taught: SQL that worked, columns that "
        "are used often, mistakes and their repairs. Use it before difficult SQL."
    ),
    describe_call=lambda _: "Recalling earlier questions",
    is_cached=False,
)
async def recall_memory(session: "Session", arguments: RecallArguments) -> ToolResult:
    """Return the complete memory of a data set, within the caller's scope."""
    dataset = session.find_dataset(arguments.table)
    recall = session.services.recall_memory
    text = await recall(dataset, session.scope) if recall is not None else ""
    return ToolResult(output={"memory": text or NO_MEMORY}, title=f"Memory of {dataset.name}")
