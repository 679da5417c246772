"""Render the schema for the prompt: DDL with column statistics, hints, metrics and memory.

All of it is computed for one scope, so a prompt never contains values of another user's rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from copilot_runtime.extensions.analyst.prompt.ddl import quote_name, render_ddl
from copilot_runtime.extensions.analyst.prompt.hints import SchemaHints
from copilot_runtime.extensions.analyst.prompt.untrusted import cut_lines, quote_block, quote_line

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.engine.metadata import ColumnMetadata, TableMetadata


MOST_METRIC_CHARS = 3_000
MOST_MEMORY_CHARS = 1_000

_MOST_HINT_CHARS = 6_000
_MOST_OTHER_TABLES = 10
_MOST_OTHER_COLUMNS = 30
_MOST_OTHER_CHARS = 2_000
_MOST_SQL = 1_500


class _Name(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...


class TableOutline(Protocol):
    """Name and columns of a table that is not the question's; a `Dataset` has them."""

    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> Sequence[_Name]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaExtras:
    """Optional parts of the schema besides the table; empty ones are omitted."""

    label: str = ""
    """The data set's name for users, such as `evaluation`."""
    description: str = ""
    others: Sequence[TableOutline] = ()
    """Other tables that the same user may read."""
    hints: SchemaHints | None = None
    metric_notes: str = ""
    """Lines about the metrics of the table."""
    memory: str = ""
    """Lines from `AnalystMemory.recall`."""
    monitoring_note: str = ""
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
        _title("Sample queries", list_sample_queries(table)),
        _title(
            "Other tables (secondary: only if the question needs them)", _list_others(extras.others)
        ),
        _title("Schema hints", _list_hints(table, extras.hints)),
        _title("Metric catalog", _fit(extras.metric_notes, MOST_METRIC_CHARS)),
        _title("Memory of earlier questions", _fit(extras.memory, MOST_MEMORY_CHARS)),
        _title("Monitoring", quote_line(extras.monitoring_note, 500)),
        _title("Agent filter", _describe_agent(extras)),
        _title("SQL of the question before", _fit(extras.last_sql, _MOST_SQL)),
        _title("Examples of SQL", quote_block(extras.examples)),
        _title("Now", _describe_now(extras)),
    ]
    body = "\n\n".join(section for section in sections if section)
    return f"<schema>\n{body}\n</schema>"


def _title(title: str, body: str) -> str:
    return f"## {title}\n{body}" if body else ""


def _fit(text: str, limit: int) -> str:
    return cut_lines(quote_block(text), limit)


def _list_hints(table: "TableMetadata", hints: SchemaHints | None) -> str:
    if hints is None:
        return ""
    names = [column.name for column in table.columns]
    return cut_lines(hints.render(table.name, names), _MOST_HINT_CHARS)


def _list_others(tables: Sequence[TableOutline]) -> str:
    lines: list[str] = []
    for table in tables[:_MOST_OTHER_TABLES]:
        columns = [
            f"{quote_line(quote_name(column.name))} {quote_line(column.type)}"
            for column in table.columns[:_MOST_OTHER_COLUMNS]
        ]
        if (more := len(table.columns) - _MOST_OTHER_COLUMNS) > 0:
            columns.append(f"+{more} more")
        lines.append(f"- {quote_line(quote_name(table.name))}({', '.join(columns)})")
    body = cut_lines("\n".join(lines), _MOST_OTHER_CHARS)
    left_out = len(tables) - len(body.splitlines())
    more_tables = f"- +{left_out} more tables" if left_out > 0 else ""
    return "\n".join(part for part in (body, more_tables) if part)


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
