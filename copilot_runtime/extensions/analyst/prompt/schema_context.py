"""Render the schema for the prompt: DDL with column statistics, hints, metrics and memory.

All of it is computed for one scope, so a prompt never contains values of another user's rows.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from copilot_runtime.extensions.analyst.engine.datasets import Dataset, match_labels
from copilot_runtime.extensions.analyst.prompt.hints import ColumnHint, SchemaHints
from copilot_runtime.extensions.analyst.prompt.untrusted import (
    cut_line,
    cut_lines,
    quote_block,
    quote_cell,
    quote_line,
)

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
    ranges += [one.name for one in columns if one.is_time and one.name != time_column]
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


def quote_name(name: str) -> str:
    """Return a column or table name as SQL, in double quotes if necessary."""
    return exp.to_identifier(name).sql(dialect="duckdb")


MOST_METRIC_CHARS = 3_000
MOST_MEMORY_CHARS = 1_000

_MOST_HINT_CHARS = 6_000
_MOST_OTHER_COLUMNS = 30
_MOST_OTHER_CHARS = 4_000
_MOST_SQL = 1_500


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaExtras:
    """Optional parts of the schema besides the table; empty ones are omitted."""

    label: str = ""
    """The data set's name for users, such as `evaluation`."""
    description: str = ""
    totals: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Column → the labels in it of rows that add up others."""
    others: "Sequence[Dataset | TableMetadata]" = ()
    """Other tables that the same user may read, the most relevant first."""
    hints: SchemaHints | None = None
    metric_notes: str = ""
    """Lines about the metrics of the table."""
    memory: str = ""
    """Lines from `AnalystMemory.recall`."""
    agent_name: str | None = None
    last_sql: str = ""
    """The SQL of the previous question."""
    examples: str = ""
    """SQL from `render_examples`."""
    user: str | None = None
    """The user's name, or `None` if the model must not see it."""
    today: str = ""


_NOTHING = SchemaExtras()


def build_schema_context(table: "TableMetadata", extras: SchemaExtras = _NOTHING) -> str:
    """Return the block `<schema>` of a prompt.

    Parts that are stable across questions come first, so that providers can cache them.
    """
    sections = [
        render_ddl(table, label=extras.label, hints=extras.hints),
        quote_line(extras.description, 300) and f"-- About: {quote_line(extras.description, 300)}",
        _exclude_totals(extras.totals),
        _title("Sample queries", list_sample_queries(table)),
        _title(
            "Other tables (secondary: only if the question needs them)", _list_others(extras.others)
        ),
        _title("Schema hints", _list_hints(table, extras.hints)),
        _title("Metric catalog", _fit(extras.metric_notes, MOST_METRIC_CHARS)),
        _title("Memory of earlier questions", _fit(extras.memory, MOST_MEMORY_CHARS)),
        _title("Agent filter", _describe_agent(extras)),
        _title("SQL of the question before", _fit(extras.last_sql, _MOST_SQL)),
        _title("Examples of SQL", quote_block(extras.examples)),
        _title("Now", _describe_now(extras)),
    ]
    body = "\n\n".join(section for section in sections if section)
    return f"<schema>\n{body}\n</schema>"


def _exclude_totals(totals: Mapping[str, Sequence[str]]) -> str:
    conditions = [f"NOT {match_labels(quote_name(it), totals[it])}" for it in totals]
    text = quote_line(" AND ".join(conditions), _MOST_SQL)
    return f"-- Rows without totals: WHERE {text}" if conditions else ""


def _title(title: str, body: str) -> str:
    return f"## {title}\n{body}" if body else ""


def _fit(text: str, limit: int) -> str:
    return cut_lines(quote_block(text), limit)


def _list_hints(table: "TableMetadata", hints: SchemaHints | None) -> str:
    if hints is None:
        return ""
    names = [column.name for column in table.columns]
    return cut_lines(hints.render(table.name, names), _MOST_HINT_CHARS)


def _list_others(tables: "Sequence[Dataset | TableMetadata]") -> str:
    """Return lines with columns as far as they fit, then names, then the number of the rest."""
    lines: list[str] = []
    names: list[str] = []
    left, left_names = _MOST_OTHER_CHARS, _MOST_OTHER_CHARS // 2
    for table in tables:
        name = quote_line(quote_name(table.name))
        columns = [
            f"{quote_line(quote_name(column.name))} {quote_line(column.type)}"
            for column in table.columns[:_MOST_OTHER_COLUMNS]
        ]
        if (more := len(table.columns) - _MOST_OTHER_COLUMNS) > 0:
            columns.append(f"+{more} more")
        totals = _exclude_totals(table.totals) if isinstance(table, Dataset) else ""
        line = f"- {name}({', '.join(columns)}) {totals}".rstrip()
        if len(line) <= left:
            lines.append(line)
            left -= len(line)
        elif len(name) <= left_names:
            names.append(name)
            left_names -= len(name) + 2
    more = len(tables) - len(lines) - len(names)
    if names:
        lines.append(f"- without their columns (summarize_data has them): {', '.join(names)}")
    if more:
        lines.append(f"- +{more} more tables: summarize_data finds them with `find`")
    return "\n".join(lines)


def _describe_agent(extras: SchemaExtras) -> str:
    if extras.agent_name is None:
        return ""
    name = quote_line(extras.agent_name)
    about = extras.hints.render_agent(extras.agent_name) if extras.hints else ""
    text = f"Only rows with source_name = '{name}' are read; every tool does that by itself."
    return f"{text}\n{about}" if about else text


def _describe_now(extras: SchemaExtras) -> str:
    parts = [
        f"Today: {quote_line(extras.today)}" if extras.today else "",
        f"Current user: {quote_line(extras.user)}" if extras.user else "",
    ]
    return "\n".join(part for part in parts if part)


_MOST_GROUPS = 50


def list_sample_queries(table: "TableMetadata") -> str:
    """Return at most three queries: the latest rows, a weekly average, and groups."""
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
    """Return `True` if a name can be used in a prompt unchanged."""
    return quote_line(name, 100) == name


def _find_time(table: "TableMetadata", columns: "Sequence[ColumnMetadata]") -> str | None:
    names = [one.name for one in columns if one.is_time]
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
