"""Results of the analyst's tools: a short form for the model, the full one for the user."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from copilot_runtime.base.jsonvalue import JsonObject

Trust = Literal["verified", "derived", "free_sql"]
"""How far an answer can be trusted: from metrics an operator defined, from our own tools over raw
columns, or from SQL that the model wrote."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: `type` is DuckDB's, such as `VARCHAR`."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows that a query returned. Values are Python's, as DuckDB converts them."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    total_rows: int | None = None
    """Rows without the limit; `None` if they were not counted."""
    is_truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart, in the two languages that pages draw. Both hold their data."""

    id: str
    title: str
    plotly: JsonObject
    """`{"data": [...], "layout": {...}}`."""
    vega_lite: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file of rows that its owner may fetch until it expires. No SQL is in it."""

    id: str
    filename: str
    format: Literal["csv", "json"]
    row_count: int
    columns: Sequence[str]
    expires_at: str
    url: str
    """Relative to the URL of the runtime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A repair of SQL that failed."""

    kind: str
    """`column`, `table`, `type`, `function`, `syntax`, `group_by`, `literal` or `ambiguous`."""
    before: str
    after: str
    description: str
    """A sentence for people, which goes into thoughts and memory."""
    nulls: int | None = None
    """Values that became NULL by it; None where it cannot make any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The provenance of one result: its SQL, tables and trust level."""

    trust: Trust
    sql: str
    """As the person may read it: without row filters."""
    tables: Sequence[str] = ()
    columns: Sequence[str] = ()
    filters: Sequence[str] = ()
    metrics: Sequence[str] = ()
    rows_scanned: int | None = None
    checks: Sequence[str] = ()
    """Warnings, a sentence each, such as on a join that repeats rows."""
    fixes: Sequence[Fix] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """A question to a person: whether a tool may do what writes or is large."""

    tool: str
    arguments: Mapping[str, Any]
    """As the model sent them."""
    question: str
    rows: int | None = None
    """Rows that it is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of a tool call. A failure is a value too: `output` then has `error`."""

    output: JsonObject
    """For the model: at most 6,000 characters as JSON."""
    table: Table | None = None
    """For the person: all rows that were fetched."""
    title: str = ""
    chart: Chart | None = None
    download: Download | None = None
    lineage: Lineage | None = None
    approval: ApprovalRequest | None = None
    """The approval that is required before the tool runs."""

    @property
    def is_error(self) -> bool:
        """Whether the tool failed."""
        return "error" in self.output


@dataclass(slots=True)
class Findings:
    """Tables, charts, files and lineage of all tool results of one question."""

    charts: list[Chart] = field(default_factory=list["Chart"])
    tables: list[tuple[str, Table]] = field(default_factory=list[tuple[str, Table]])
    downloads: list[Download] = field(default_factory=list["Download"])
    lineage: list[Lineage] = field(default_factory=list["Lineage"])
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def trust(self) -> Trust | None:
        """That of the answer: of its least trusted result; None without data."""
        order: Sequence[Trust] = ("free_sql", "derived", "verified")
        return next((one for one in order if any(x.trust == one for x in self.lineage)), None)
