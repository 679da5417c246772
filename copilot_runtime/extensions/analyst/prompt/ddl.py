"""Render a table as DDL with column statistics as comments, within a token budget."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from copilot_runtime.extensions.analyst.prompt.hints import ColumnHint, SchemaHints
from copilot_runtime.extensions.analyst.prompt.untrusted import cut_line, quote_cell, quote_line

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.engine.metadata import ColumnMetadata, TableMetadata


MOST_COLUMNS = 50
TOKENS_PER_COLUMN = 10
"""Average token budget per column of a table with `MOST_COLUMNS`. A narrow table may use the same
total."""

MOST_RANGES = 12
"""Maximum number of columns whose range is rendered."""
MOST_VALUES = 8
"""Maximum number of values that are rendered per column."""

_MOST_VALUE = 40
_MOST_CHARS = 4 * TOKENS_PER_COLUMN * MOST_COLUMNS
_LEAST_ESTIMATE = 20
"""Number of distinct values from which it is an estimate."""
_FREE_TEXT = 0.5
"""Ratio of distinct values to rows above which sample values are not informative."""


@dataclass(frozen=True, slots=True)
class _Detail:
    """Level of detail of each column's description."""

    has_counts: bool
    has_average: bool
    values: int
    synonyms: int
    description: int


_DETAILS = (
    _Detail(True, True, MOST_VALUES, 3, 80),
    _Detail(False, True, 5, 3, 60),
    _Detail(False, True, 3, 1, 40),
    _Detail(False, False, 2, 0, 0),
    _Detail(False, False, 0, 0, 0),
)
"""Levels in descending order of detail: the first one that fits is used."""


def render_ddl(table: "TableMetadata", *, label: str = "", hints: SchemaHints | None = None) -> str:
    """Return `CREATE TABLE` for a table, with ranges and values of columns as comments."""
    name = quote_line(quote_name(table.name), 100)
    rows = f"{table.row_count:,} rows"
    label = f"{quote_line(label)}: " if label else ""
    heading = f"-- Dataset {label}DuckDB table {name} ({rows})"
    period = _describe_period(table)
    opening = f"CREATE TABLE {name} ( -- {rows}{period}"
    columns = table.columns[:MOST_COLUMNS]
    notes = hints.find_columns(table.name) if hints else {}
    lines: Sequence[str] = ()
    for detail in _DETAILS:
        lines = _list_lines(columns, table.row_count, table.time_column, notes.get, detail)
        if sum(map(len, lines)) + len(lines) <= _MOST_CHARS:
            break
    if (more := len(table.columns) - MOST_COLUMNS) > 0:
        lines = [*lines, f"  -- +{more} more columns: summarize_data lists them"]
    return "\n".join([heading, opening, *lines, ");"])


def _list_lines(
    columns: "Sequence[ColumnMetadata]",
    row_count: int,
    time_column: str | None,
    find_hint: Callable[[str], ColumnHint | None],
    detail: _Detail,
) -> Sequence[str]:
    ranges = [column.name for column in columns if _is_number(column.minimum)][:MOST_RANGES]
    ranges += [one.name for one in columns if one.is_temporal and one.name != time_column]
    lines: list[str] = []
    for at, column in enumerate(columns):
        parts = _describe_column(
            column,
            row_count,
            find_hint(column.name.lower()),
            detail,
            has_range=column.name in ranges,
        )
        end = "," if at < len(columns) - 1 else ""
        line = f"  {quote_line(quote_name(column.name), 80)} {quote_line(column.type)}{end}"
        comment = " | ".join(part for part in parts if part)
        lines.append(f"{line} -- {comment}" if comment else line)
    return lines


def _describe_column(
    column: "ColumnMetadata",
    row_count: int,
    hint: ColumnHint | None,
    detail: _Detail,
    *,
    has_range: bool,
) -> Sequence[str]:
    parts: list[str] = []
    if detail.has_counts and column.unique_count is not None:
        nulls = column.null_percent
        missing = f", {_format(nulls)}% null" if nulls else ""
        about = "" if column.is_complete or column.unique_count < _LEAST_ESTIMATE else "~"
        parts.append(f"{about}{column.unique_count:,} unique{missing}")
    about = _describe_range(column, detail) if has_range else ""
    about = about or _describe_values(column, row_count, detail)
    if not about and hint is not None and detail.description:
        about = quote_line(hint.description, detail.description)
    parts.append(about)
    if hint is not None and hint.synonyms and detail.synonyms:
        words = ", ".join(quote_line(word, 30) for word in hint.synonyms[: detail.synonyms])
        parts.append(f"also: {words}")
    return parts


def _describe_range(column: "ColumnMetadata", detail: _Detail) -> str:
    if any(_is_missing(one) for one in (column.minimum, column.maximum)):
        return ""
    text = f"range: [{_format(column.minimum)} .. {_format(column.maximum)}]"
    if detail.has_average and _is_number(column.average):
        text += f", avg: {_format(column.average)}"
    return text


def _describe_values(column: "ColumnMetadata", row_count: int, detail: _Detail) -> str:
    values = column.values
    unique, is_complete = column.unique_count, column.is_complete
    is_free_text = (
        not is_complete and unique is not None and unique > _FREE_TEXT * max(row_count, 1)
    )
    if not values or not detail.values or is_free_text:
        return ""
    texts = [quote_cell(value, _MOST_VALUE) for value in values[: detail.values]]
    has_more = len(values) > detail.values or not is_complete
    return f"values: {', '.join(texts)}{', …' if has_more else ''}"


def _describe_period(table: "TableMetadata") -> str:
    if table.time_range is None:
        return ""
    first, last = (quote_line(one[:10]) for one in table.time_range)
    return f" | {first} → {last}"


def _is_missing(value: Any) -> bool:
    return value is None or isinstance(value, str) or (_is_number(value) and math.isnan(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or type(value).__name__ == "Decimal"


def _format(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds").removesuffix(" 00:00:00")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, int):
        return str(value)
    if _is_number(value):
        number = float(value)
        if not math.isfinite(number):
            return str(number)
        return f"{number:.4g}" if abs(number) < 1e4 else f"{number:.0f}"
    return cut_line(quote_line(value), _MOST_VALUE)


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_RESERVED = frozenset(
    re.findall(
        r"\w+",
        """
    all analyse analyze and anti any array as asc asof asymmetric at authorization binary both by
    case cast check collate collation column concurrently constraint create cross default
    deferrable desc describe distinct do else end except false fetch for foreign freeze from full
    generated glob group having ilike in initially inner intersect into is isnull join lambda
    lateral leading left like limit map natural not notnull null offset on only or order outer
    overlaps pivot pivot_longer pivot_wider placing positional primary qualify references returning
    right select semi show similar some struct summarize symmetric table tablesample then to
    trailing true try_cast tuple union unique unpack unpivot using variadic verbose when where
    window with
    """,
    )
)


def quote_name(name: str) -> str:
    """Return a column or table name as SQL, in double quotes if necessary."""
    if _PLAIN.fullmatch(name) and name.lower() not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'
