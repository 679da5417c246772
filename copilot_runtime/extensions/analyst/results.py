"""Results of the analyst's tools: a short form for the model, the full one for the user."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from copilot_runtime.base.jsonvalue import JsonObject

Trust = Literal["verified", "derived", "free_sql"]
"""The trust level of an answer: computed by an operator's metric, by our own tools over raw
columns, or by SQL that the model wrote."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: `type` is DuckDB's, such as `VARCHAR`."""

    name: str
    type: str


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
    """URL relative to the runtime's URL."""


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
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def trust(self) -> Trust | None:
        """The trust level of the answer: that of its least trusted result; `None` without data."""
        order: Sequence[Trust] = ("free_sql", "derived", "verified")
        return next((one for one in order if any(x.trust == one for x in self.lineage)), None)
