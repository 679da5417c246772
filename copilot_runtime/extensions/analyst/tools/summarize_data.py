"""The tool that describes a data set: columns, values, statistics."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from copilot_runtime.base.jsonvalue import JsonObject, drop_none
from copilot_runtime.extensions.analyst.results import Column, Lineage, Table, ToolResult
from copilot_runtime.extensions.analyst.tools.columns import is_id, is_numeric
from copilot_runtime.extensions.analyst.tools.tool import AnalystTool, Arguments, Field
from copilot_runtime.extensions.analyst.tools.values import to_plain

if TYPE_CHECKING:
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
    table: str | None = Field(
        default=None, description="Another data set than the one of the question."
    )


async def summarize_data(session: "Session", arguments: SummarizeArguments) -> ToolResult:
    """Summarise the columns, values and statistics of a data set, within the caller's scope."""
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


def _list_filter_values(columns: "Sequence[ColumnMetadata]", row_count: int) -> JsonObject:
    values: JsonObject = {}
    for column in columns:
        is_id = row_count > _FEW_ROWS and 2 * (column.unique_count or 0) > row_count
        if is_id or not column.values or is_numeric(Column(column.name, column.type)):
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
    numeric = [one for one in columns if is_numeric(Column(one.name, one.type))]
    numeric.sort(key=lambda one: is_id(one.name))
    return {
        one.name: {
            "avg": _round(one.average),
            "min": to_plain(one.minimum),
            "max": to_plain(one.maximum),
        }
        for one in numeric[:MOST_STATISTICS]
    }


def _round(value: object) -> object:
    plain = to_plain(value)
    return round(plain, 4) if isinstance(plain, float) else plain


def _build_profile(columns: "Sequence[ColumnMetadata]") -> Table:
    """Return one row per column, for the user."""
    kinds = ["VARCHAR", "VARCHAR", "BIGINT", "DOUBLE", "VARCHAR", "VARCHAR", "DOUBLE", "VARCHAR"]
    names = ["column", "type", "unique", "null_percent", "min", "max", "avg", "values"]
    rows = [
        [
            *(one.name, one.type, one.unique_count, one.null_percent),
            *(_to_cell(one.minimum), _to_cell(one.maximum), _round(one.average)),
            ", ".join(str(to_plain(value)) for value in one.values[:MOST_FILTER_VALUES]),
        ]
        for one in columns
    ]
    return Table(
        columns=[Column(name, kind) for name, kind in zip(names, kinds, strict=True)],
        rows=rows,
        total_rows=len(rows),
    )


def _to_cell(value: object) -> str | None:
    return None if value is None else str(to_plain(value))


SUMMARIZE_DATA = AnalystTool(
    name="summarize_data",
    description=(
        "Describes a data set: its columns with their types, the number of rows, values to filter "
        "by, the range of time and statistics of numbers. Use it first, and for questions about "
        "the data as a whole."
    ),
    arguments=SummarizeArguments,
    run=summarize_data,
    describe_call=lambda arguments: f"Summarizing {arguments.table or 'the data set'}",
)
