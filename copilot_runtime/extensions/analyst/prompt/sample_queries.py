"""Writes a few queries that fit a table, so that a model sees its names in use.

They are only shown; none is run.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from copilot_runtime.extensions.analyst.prompt.identifiers import quote_name
from copilot_runtime.extensions.analyst.prompt.untrusted import quote_line

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.engine.metadata import ColumnMetadata, TableMetadata

_MOST_GROUPS = 50


def list_sample_queries(table: "TableMetadata") -> str:
    """Return at most three: the latest rows, an average by week, and groups."""
    columns = [column for column in table.columns if _is_safe(column.name)]
    if not columns or not _is_safe(table.name):
        return ""
    name = quote_name(table.name)
    time = _find_time(table, columns)
    number = next((one for one in columns if _is_measure(one)), None)
    group = next((one for one in columns if _is_group(one, table.row_count)), None)
    queries: list[str] = []
    if time is not None:
        when = quote_name(time)
        queries.append(f"SELECT * FROM {name} ORDER BY {when} DESC LIMIT 10;")
        if number is not None:
            queries.append(
                f"SELECT date_trunc('week', {when}) AS week, avg({quote_name(number.name)}) "
                f"FROM {name} GROUP BY week ORDER BY week;"
            )
    else:
        queries.append(f"SELECT * FROM {name} LIMIT 10;")
    if group is not None:
        by = quote_name(group.name)
        average = f", avg({quote_name(number.name)})" if number is not None else ""
        queries.append(
            f"SELECT {by}, count(*) AS n{average} FROM {name} GROUP BY {by} ORDER BY n DESC;"
        )
    return "\n".join(queries)


def _is_safe(name: str) -> bool:
    """Return whether a name stands in a prompt as it is."""
    return quote_line(name, 100) == name


def _find_time(table: "TableMetadata", columns: "Sequence[ColumnMetadata]") -> str | None:
    names = [one.name for one in columns if one.is_temporal]
    if table.time_column in names:
        return table.time_column
    return next(iter(names), None)


def _is_measure(column: "ColumnMetadata") -> bool:
    name = column.name.lower()
    is_id = name == "id" or name.endswith(("_id", "_key", "_no"))
    return column.is_numeric and not is_id


def _is_group(column: "ColumnMetadata", row_count: int) -> bool:
    count = column.unique_count
    is_text = column.type.upper().startswith(("VARCHAR", "ENUM", "BOOLEAN"))
    return is_text and count is not None and 1 < count <= min(_MOST_GROUPS, max(row_count // 2, 2))
