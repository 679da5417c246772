"""The session of one question: data, scope, thoughts and findings, as the tools use them."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from copilot_runtime.api.messages import new_id
from copilot_runtime.base.errors import NotFound
from copilot_runtime.base.jsonvalue import JsonObject, drop_none
from copilot_runtime.extensions.analyst.results import Chart, Findings, Fix, ToolResult
from copilot_runtime.extensions.analyst.sql.rules import GuardRules, Scope
from copilot_runtime.telemetry.span import NO_SPAN, Span

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

    from copilot_runtime.extensions.analyst.engine.datasets import Dataset
    from copilot_runtime.extensions.analyst.engine.engine import Engine
    from copilot_runtime.extensions.analyst.result_storage import Downloads, ResultStore
    from copilot_runtime.extensions.analyst.semantic.catalog import MetricCatalog
    from copilot_runtime.extensions.analyst.sql.guard import GuardedQuery


ThoughtType = Literal[
    "reasoning",
    "tool_use",
    "observation",
    "planning",
    "reflection",
    "decision",
    "error",
    "success",
]

COLORS: Mapping[str, str] = {
    "reasoning": "#3B82F6",
    "tool_use": "#8B5CF6",
    "observation": "#10B981",
    "planning": "#F59E0B",
    "reflection": "#6366F1",
    "decision": "#EC4899",
    "error": "#EF4444",
    "success": "#22C55E",
}
UNKNOWN_COLOR = "#6B7280"

MOST_THOUGHTS = 1_000
"""Maximum number of thoughts per question; later ones are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """A step of the analyst."""

    type: ThoughtType
    content: str
    tool_name: str | None = None
    node_name: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    id: str = field(default_factory=new_id)
    timestamp: str = field(default_factory=lambda: datetime.now(UTC).isoformat())

    @property
    def color(self) -> str:
        """The colour of the type in frontends: `#RRGGBB`."""
        return COLORS.get(self.type, UNKNOWN_COLOR)

    def describe(self) -> JsonObject:
        """Return the thought as JSON. `tool` duplicates `tool_name`."""
        return drop_none(
            {
                "id": self.id,
                "type": self.type,
                "content": self.content,
                "tool_name": self.tool_name,
                "tool": self.tool_name,
                "node_name": self.node_name,
                "metadata": dict(self.metadata) or None,
                "timestamp": self.timestamp,
                "color": self.color,
            }
        )


class ThoughtStream:
    """The thoughts of a question, for any number of readers, each starting at any thought."""

    def __init__(self, on_change: Callable[[], None] | None = None) -> None:
        self.thoughts: list[Thought] = []
        self.on_change = on_change
        """Called after each thought, and at the end."""
        self._is_closed = False
        self._changed = asyncio.Event()

    def emit(self, type: ThoughtType, content: str, **details: Any) -> None:
        """Add a thought; `details` are further fields of `Thought`. Ignored after `close`."""
        if self._is_closed or len(self.thoughts) >= MOST_THOUGHTS:
            return
        self.thoughts.append(Thought(type=type, content=content, **details))
        self._wake()

    def close(self) -> None:
        """End the stream for all readers; idempotent."""
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        if self.on_change is not None:
            self.on_change()

    async def subscribe(self, after: int = 0) -> AsyncGenerator[Thought]:
        """Yield the thoughts, skipping the first `after`, until the stream is closed."""
        position = after
        while True:
            changed = self._changed
            while position < len(self.thoughts):
                position += 1
                yield self.thoughts[position - 1]
            if self._is_closed:
                return
            await changed.wait()


_MOST_CACHED = 200


@dataclass(frozen=True, kw_only=True)
class Services:
    """The services that all questions share."""

    engine: "Engine"
    build_rules: "Callable[[Scope], GuardRules]"
    """Returns the current SQL rules of a scope: data sets may have been saved meanwhile."""
    downloads: "Downloads"
    charts: "ResultStore[Chart]"
    recall_memory: "Callable[[Dataset, Scope], Awaitable[str]] | None" = None
    """Returns the memory of a data set for a scope as text; empty if there is none."""
    catalog: "MetricCatalog | None" = None
    """The operator's metrics; SQL that computes one of them is verified."""
    describe_metrics: "Callable[[Dataset, str | None], str] | None" = None
    """Returns the metrics of a data set, or one of them, as text; empty if there are none."""
    find_synonyms: Callable[[str], Mapping[str, str]] = lambda _: {}
    """Returns the synonyms of a table's columns: lower-case synonym to column."""
    kpi_table: str = "kpi_data"
    allow_save: bool = True
    approve_saves: bool = True
    approval_rows: int = 10_000
    query_timeout: float = 30.0


class ResultCache:
    """A cache of tool results, keyed by their inputs. Errors are not cached."""

    def __init__(self) -> None:
        self._results: OrderedDict[str, ToolResult] = OrderedDict()

    def get(self, key: str) -> ToolResult | None:
        """Return a result, or `None`."""
        return self._results.get(key)

    def put(self, key: str, result: ToolResult) -> None:
        """Store a result; the oldest is evicted if there are too many."""
        if result.is_error or result.approval is not None:
            return
        self._results[key] = result
        while len(self._results) > _MOST_CACHED:
            self._results.popitem(last=False)


Decision = Literal["approved", "declined"]


@dataclass(kw_only=True)
class Session:
    """The state of one question of one caller."""

    services: Services
    scope: Scope
    dataset: str = ""
    """The name of the table that the question is about."""
    question: str = ""
    """The user's question."""
    thoughts: ThoughtStream = field(default_factory=ThoughtStream)
    span: Span = field(default=NO_SPAN, repr=False)
    findings: Findings = field(default_factory=Findings)
    cache: ResultCache = field(default_factory=ResultCache, repr=False)
    last_sql: str | None = None
    """The last SQL that ran, also in an earlier turn."""
    turn_sql: list[str] = field(default_factory=list[str])
    """The model's SQL that ran successfully for this question."""
    sql_tables: dict[str, Sequence[str]] = field(default_factory=dict[str, "Sequence[str]"])
    """The data sets read by this SQL."""
    failed_sql: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """SQL that was refused or failed, with the reason."""
    fixes: list[Fix] = field(default_factory=list[Fix])
    _decisions: dict[str, tuple[Decision, str]] = field(
        default_factory=dict[str, tuple[Decision, str]]
    )

    def record_sql(self, sql: str, tables: Sequence[str]) -> None:
        """Record the model's SQL that answers this question, also from the cache."""
        self.last_sql = sql
        if sql not in self.turn_sql:
            self.turn_sql.append(sql)
        self.sql_tables[sql] = tables

    @property
    def sql_executed(self) -> bool:
        """`True` if the model's SQL ran for this question."""
        return bool(self.turn_sql)

    @property
    def rules(self) -> "GuardRules":
        """The tables, row filters and functions that SQL of this caller may use."""
        return self.services.build_rules(self.scope)

    async def guard(self, tree: "Expr") -> "GuardedQuery":
        """Guard a tree for this caller, and return the query. Raises `SqlRefused`."""
        from copilot_runtime.extensions.analyst.sql import guard, parsing

        return await parsing.read_sql(partial(guard.guard_tree, tree, self.rules, self.scope))

    def list_datasets(self) -> "Sequence[Dataset]":
        """Return the data sets that this caller may see."""
        return self.services.engine.list_datasets(self.scope)

    def find_dataset(self, name: str | None = None) -> "Dataset":
        """Return a data set by its name; by default that of the question. Raises `NotFound`."""
        target = name or self.dataset
        datasets = self.list_datasets()
        for one in datasets:
            if one.name.lower() == target.lower():
                return one
        names = ", ".join(one.name for one in datasets) or "none"
        raise NotFound(
            f"There is no data set named {target[:100]!r}. Available data sets: {names[:1000]}."
        )

    def approve(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """Record a reviewer's approval of a call."""
        self._decisions[build_call_key(tool, arguments)] = ("approved", "")

    def decline(self, tool: str, arguments: Mapping[str, Any], note: str = "") -> None:
        """Record a reviewer's rejection of a call."""
        self._decisions[build_call_key(tool, arguments)] = ("declined", note)

    def forget_decision(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """Drop a reviewer's decision: an approval is valid for one call."""
        self._decisions.pop(build_call_key(tool, arguments), None)

    def is_approved(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return `True` if a reviewer has approved a call."""
        return self._decisions.get(build_call_key(tool, arguments), ("", ""))[0] == "approved"

    def find_decline(self, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """Return the reviewer's comment for a rejected call, or `None` if it was not rejected."""
        decision, note = self._decisions.get(build_call_key(tool, arguments), ("", ""))
        return note if decision == "declined" else None


def build_call_key(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return one text for calls that are equal: the tool and its arguments in canonical JSON."""
    return f"{tool}:{json.dumps(dict(arguments), sort_keys=True)}"
