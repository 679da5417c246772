"""Results of the analyst's tools: a short form for the model, the full one for the user."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, cast
from uuid import UUID

from copilot_runtime.base.jsontext import replace_surrogates
from copilot_runtime.base.jsonvalue import JsonObject, JsonValue

Trust = Literal["verified", "derived", "free_sql"]
"""The trust level of an answer: computed by an operator's metric, by our own tools over raw
columns, or by SQL that the model wrote."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: `type` is DuckDB's, such as `VARCHAR`."""

    name: str
    type: str

    @property
    def is_numeric(self) -> bool:
        """`True` for numbers."""
        return _NUMBERS.fullmatch(self.type) is not None

    @property
    def is_time(self) -> bool:
        """`True` for dates and timestamps."""
        return _TIMES.fullmatch(self.type) is not None

    @property
    def is_text(self) -> bool:
        """`True` for texts."""
        return _TEXTS.fullmatch(self.type) is not None


_NUMBERS = re.compile(
    r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|REAL|DECIMAL(\(.*\))?|BIGNUM|VARINT)", re.I
)
_TIMES = re.compile(r"(DATE|TIMESTAMP[^]]*)", re.I)
_TEXTS = re.compile(r"(VARCHAR|CHAR|TEXT|ENUM\(.*\))", re.I | re.S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows returned by a query. Values are Python objects, as converted by DuckDB."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    total_rows: int | None = None
    """Number of rows without the limit, or `None` if they were not counted."""
    is_truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart in the formats of Vega-Lite and Plotly. Both contain their data."""

    id: str
    title: str
    plotly: JsonObject
    """`{"data": [...], "layout": {...}}`."""
    vega_lite: JsonObject
    url: str = ""
    """URL of its PNG on the server, without origin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file of rows that its owner may download until it expires. It contains no SQL."""

    id: str
    filename: str
    format: Literal["csv", "json"]
    row_count: int
    columns: Sequence[str]
    expires_at: str
    url: str
    """URL on the server, without origin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A repair of failed SQL."""

    kind: str
    """`column`, `table`, `type`, `function`, `syntax`, `group_by`, `literal` or `ambiguous`."""
    before: str
    after: str
    description: str
    """A sentence for users, which is shown in thoughts and stored in memory."""
    nulls: int | None = None
    """Number of values that it turned into NULL; `None` if it cannot create any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The provenance of one result: its SQL, tables and trust level."""

    trust: Trust
    sql: str
    """The SQL for display, without row filters."""
    tables: Sequence[str] = ()
    columns: Sequence[str] = ()
    filters: Sequence[str] = ()
    metrics: Sequence[str] = ()
    rows_scanned: int | None = None
    checks: Sequence[str] = ()
    """Warnings, one sentence each, such as for a join that duplicates rows."""
    fixes: Sequence[Fix] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """A request to approve a tool call that writes or is expensive."""

    tool: str
    arguments: Mapping[str, Any]
    """The arguments as sent by the model."""
    question: str
    rows: int | None = None
    """Number of affected rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of a tool call. Failures are results, too: `output` then has `error`."""

    output: JsonObject
    """The output for the model: at most 6,000 characters as JSON."""
    table: Table | None = None
    """The table for the user, with all fetched rows."""
    title: str = ""
    chart: Chart | None = None
    download: Download | None = None
    lineage: Lineage | None = None
    approval: ApprovalRequest | None = None
    """The approval that is required before the tool runs."""

    @property
    def is_error(self) -> bool:
        """`True` if the tool failed."""
        return "error" in self.output


@dataclass(slots=True)
class Findings:
    """Tables, charts, files and lineage of all tool results of one question."""

    charts: list[Chart] = field(default_factory=list["Chart"])
    tables: list[tuple[str, Table]] = field(default_factory=list[tuple[str, Table]])
    downloads: list[Download] = field(default_factory=list["Download"])
    lineage: list[Lineage] = field(default_factory=list["Lineage"])

    @property
    def trust(self) -> Trust | None:
        """The trust level of the answer: that of its least trusted result; `None` without data."""
        order: Sequence[Trust] = ("free_sql", "derived", "verified")
        return next((one for one in order if any(x.trust == one for x in self.lineage)), None)


MAX_SAFE_INTEGER = 2**53 - 1
"""Largest integer that JavaScript represents exactly."""

MOST_ROWS = 500
"""Maximum number of table rows that a frontend gets."""

_MAX_DEPTH = 20
_MAX_BLOB = 1024


def to_plain(value: Any, depth: int = 0) -> JsonValue:
    """Convert a cell to JSON: NaN becomes `None`, and a date becomes text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, int):
        return value if abs(value) <= MAX_SAFE_INTEGER else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return _to_number(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta | UUID):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _to_hex(bytes(cast("bytes", value)))
    return _to_nested_value(value, depth)


def _to_number(value: Decimal) -> JsonValue:
    if not value.is_finite():
        return None
    if value == value.to_integral_value():
        return to_plain(int(value))
    number = float(value)
    # amounts of money keep their digits; a value that no float represents stays a text
    return number if Decimal(repr(number)) == value else str(value)


def _to_hex(data: bytes) -> str:
    if len(data) <= _MAX_BLOB:
        return data.hex()
    return f"{data[:_MAX_BLOB].hex()}… ({len(data)} bytes)"


def _to_nested_value(value: Any, depth: int) -> JsonValue:
    if depth >= _MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {_to_key(key): to_plain(item, depth + 1) for key, item in items}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item, depth + 1) for item in cast("Sequence[Any]", value)]
    return replace_surrogates(str(value))


def _to_key(value: Any) -> str:
    plain = to_plain(value)
    return plain if isinstance(plain, str) else str(plain)


def list_records(table: Table, most: int | None = None) -> list[JsonObject]:
    """Return rows as objects for a model. Duplicate column names are numbered: `a`, `a_2`."""
    names = number_names([column.name for column in table.columns])
    rows = table.rows if most is None else table.rows[:most]
    return [dict(zip(names, map(_to_short, row), strict=True)) for row in rows]


def _to_short(value: Any) -> JsonValue:
    """Return a cell for a model, rounded: 0.30000000000000004 becomes 0.3."""
    plain = to_plain(value)
    return float(f"{plain:.12g}") if isinstance(plain, float) else plain


def number_names(names: Sequence[str]) -> list[str]:
    """Make names unique: `a`, `a` become `a`, `a_2`."""
    counts: dict[str, int] = {}
    found: dict[str, None] = {}
    for name in names:
        unique = name
        while unique in found:
            counts[name] = counts.get(name, 1) + 1
            unique = f"{name}_{counts[name]}"
        found[unique] = None
    return [*found]


def build_table(columns: Iterable[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> Table:
    """Return a table of our own rows; `columns` are names and types."""
    return Table(columns=[Column(*one) for one in columns], rows=rows, total_rows=len(rows))


def to_float(value: Any) -> float | None:
    """Return a number of DuckDB as a float, or `None` for anything else."""
    plain = to_plain(value)
    return float(plain) if isinstance(plain, int | float) else None


def round_number(value: Any, digits: int = 6) -> Any:
    """Return a cell as JSON, with floats rounded."""
    plain = to_plain(value)
    return round(plain, digits) if isinstance(plain, float) else plain


def describe_table(title: str, table: Table, sql: str = "") -> JsonObject:
    """Return a table as JSON for frontends: at most 500 rows."""
    names = number_names([column.name for column in table.columns])
    rows = table.rows[:MOST_ROWS]
    return {
        "title": title,
        "columns": [
            {"name": name, "type": column.type}
            for name, column in zip(names, table.columns, strict=True)
        ],
        "rows": [[to_plain(value) for value in row] for row in rows],
        "total_rows": table.total_rows,
        "is_truncated": table.is_truncated or len(table.rows) > MOST_ROWS,
        "sql": sql,
    }
