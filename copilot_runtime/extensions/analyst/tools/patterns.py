"""The tool that searches for patterns: correlations, outliers and trends, computed in SQL."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.analyst.results import (
    Column,
    ToolResult,
    build_table,
    list_records,
    to_float,
    to_plain,
)
from copilot_runtime.extensions.analyst.tools.filters import NO_FILTERS, Filters, build_conditions
from copilot_runtime.extensions.analyst.tools.queries import (
    as_name,
    build_lineage,
    build_literal,
    call,
    describe_left_out,
    find_column,
    list_measures,
    measure,
    name_column,
    read_row,
    run_tree,
    select,
    to_number,
)
from copilot_runtime.extensions.analyst.tools.tool import (
    Arguments,
    Field,
    Names,
    TableName,
    ToolFailed,
    alias,
    analyst_tool,
)

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.engine.datasets import Dataset
    from copilot_runtime.extensions.analyst.session import Session
    from copilot_runtime.extensions.analyst.sql.guard import GuardedQuery

MOST_COLUMNS = 10
MOST_PAIRS = 20
FEWEST_PAIRS = 3
"""Minimum number of pairs in the output, even if none of them is correlated."""

MOST_OUTLIERS = 5
"""Maximum number of example outliers per column."""

FENCE = 1.5
"""Multiple of the interquartile range beyond which a value is an outlier (Tukey)."""

Z_LIMIT = 3.0

_FENCES = ("count", "q25", "q75", "avg", "std")

_WORDS = ((0.1, "none"), (0.3, "weak"), (0.5, "moderate"), (0.7, "strong"))
_SECONDS_PER_DAY = 86_400
_SYNONYMS = {
    "correlation": "correlations",
    "outlier": "outliers",
    "anomalies": "outliers",
    "anomaly": "outliers",
    "trend": "trends",
    "time": "trends",
    "": "all",
    "general": "all",
}


class PatternArguments(Arguments):
    """Arguments of the `analyze_patterns` tool."""

    analysis_type: str = Field(
        default="all",
        description="correlations, outliers, trends or all.",
        validation_alias=alias("analysis_type", "type", "pattern_type"),
    )
    columns: Names = Field(
        default_factory=list[str],
        description="The numeric columns; by default up to 10.",
        validation_alias=alias("columns", "metrics", "metric_columns"),
    )
    filters: Filters = NO_FILTERS
    time_column: str | None = Field(
        default=None, description="The column with the time, for trends."
    )
    table: TableName = None


@dataclass(frozen=True, kw_only=True)
class _Search:
    """The data set, columns and rows that are searched."""

    session: "Session"
    dataset: "Dataset"
    columns: Sequence[Column]
    conditions: Sequence[exp.Expr]
    time: Column | None

    def select(self, items: Sequence[exp.Expr]) -> exp.Select:
        return select(items, self.dataset.name, [one.copy() for one in self.conditions])


@dataclass(frozen=True, kw_only=True)
class _Pattern:
    """A pattern, with a row for each occurrence."""

    output: Any
    rows: Sequence[tuple[str, str, float | None, str]]
    queries: "Sequence[GuardedQuery]"


@analyst_tool(
    description=(
        "Looks for patterns in numbers: which columns go together (correlations), which values "
        "stand out (outliers), and what rises or falls over time (trends)."
    ),
    describe_call=lambda arguments: f"Looking for patterns: {arguments.analysis_type}"[:200],
)
async def analyze_patterns(session: "Session", arguments: PatternArguments) -> ToolResult:
    """Search for one kind of pattern, or for all kinds."""
    dataset = session.find_dataset(arguments.table)
    synonyms = session.services.find_synonyms(dataset.name)
    target = arguments.analysis_type.strip().lower()
    target = _SYNONYMS.get(target, target)
    if target not in (*_SEARCHES, "all"):
        raise ToolFailed(
            f"There is no analysis {arguments.analysis_type[:40]!r}.",
            hint=f"Use {', '.join(_SEARCHES)} or all.",
        )
    named = [find_column(name, dataset.columns, synonyms) for name in arguments.columns]
    columns = (named or list_measures(dataset.columns))[:MOST_COLUMNS]
    if not columns:
        raise ToolFailed(f"{dataset.name} has no numeric column to look for patterns in.")
    if arguments.time_column:
        time = find_column(arguments.time_column, dataset.columns, synonyms)
    else:
        time = next((one for one in dataset.columns if one.is_time), None)
    search = _Search(
        session=session,
        dataset=dataset,
        columns=columns,
        conditions=build_conditions(arguments.filters, dataset.columns, synonyms),
        time=time,
    )
    output: JsonObject = {"table": dataset.name, "columns": [one.name for one in columns]}
    rows: list[tuple[str, str, float | None, str]] = []
    queries: list[GuardedQuery] = []
    for name, find in _SEARCHES.items():
        if target == name or (target == "all" and (name != "trends" or time is not None)):
            pattern = await find(search)
            output[name] = pattern.output
            rows += pattern.rows
            queries += pattern.queries
    kinds = {"pattern": "VARCHAR", "column": "VARCHAR", "value": "DOUBLE", "meaning": "VARCHAR"}
    checks = await describe_left_out(session, dataset, columns, search.conditions)
    return ToolResult(
        output=output | ({"warnings": checks} if checks else {}),
        title=f"Patterns of {dataset.name}: {target}",
        table=build_table(kinds.items(), rows),
        lineage=await build_lineage(session, queries, checks=checks),
    )


async def find_correlations(search: _Search) -> _Pattern:
    """Return Pearson's correlation of each pair of columns, the strongest first."""
    pairs = list(combinations(search.columns, 2))
    if not pairs:
        raise ToolFailed("Correlations need two numeric columns.")
    items: list[exp.Expr] = []
    for index, (a, b) in enumerate(pairs):
        numbers = to_number(a), to_number(b)
        items += [
            as_name(call("corr", *numbers), f"corr_{index}"),
            as_name(call("regr_count", *(one.copy() for one in numbers)), f"count_{index}"),
        ]
    values, query = await read_row(search.session, search.select(items))
    found: list[JsonObject] = [
        {
            "a": a.name,
            "b": b.name,
            "correlation": _round(values[f"corr_{index}"]),
            "count": values[f"count_{index}"],
            "strength": name_strength(to_float(values[f"corr_{index}"])),
        }
        for index, (a, b) in enumerate(pairs)
    ]
    found = [one for one in found if one["correlation"] is not None]
    found.sort(key=lambda one: -abs(one["correlation"]))
    rows = [
        ("correlation", f"{one['a']} / {one['b']}", one["correlation"], str(one["strength"]))
        for one in found
    ]
    clear = [one for one in found if one["strength"] != "none"]
    selection = clear[:MOST_PAIRS] if len(clear) > FEWEST_PAIRS else found[:FEWEST_PAIRS]
    return _Pattern(output=selection, rows=rows, queries=[query])


def name_strength(correlation: float | None) -> str:
    """Describe the strength and direction of a correlation in words."""
    size = abs(correlation or 0)
    word = next((word for limit, word in _WORDS if size < limit), "very strong")
    if word == "none" or correlation is None:
        return "none"
    return f"{word} {'positive' if correlation > 0 else 'negative'}"


async def find_outliers(search: _Search) -> _Pattern:
    """Count values beyond Tukey's fences, and beyond three standard deviations; name extremes."""
    items: list[exp.Expr] = []
    for index, column in enumerate(search.columns):
        items += [as_name(measure(column, name), f"{name}_{index}") for name in _FENCES]
    values, query = await read_row(search.session, search.select(items))
    fences = [_read_fences(values, index) for index in range(len(search.columns))]
    items = []
    for index, (column, fence) in enumerate(zip(search.columns, fences, strict=True)):
        if fence is not None:
            low, high, z_low, z_high = fence
            items += [
                as_name(_count_beyond(to_number(column), low, high), f"iqr_{index}"),
                as_name(_count_beyond(to_number(column), z_low, z_high), f"z_{index}"),
            ]
    if not items:
        return _Pattern(output=[], rows=[], queries=[query])
    counts, counting = await read_row(search.session, search.select(items))
    queries = [query, counting]
    found: list[JsonObject] = []
    for index, (column, fence) in enumerate(zip(search.columns, fences, strict=True)):
        if fence is None:
            continue
        low, high, _, _ = fence
        one: JsonObject = {
            "column": column.name,
            "count": values[f"count_{index}"],
            "outliers_iqr": counts[f"iqr_{index}"],
            "outliers_z": counts[f"z_{index}"],
            "low_fence": _round(low),
            "high_fence": _round(high),
        }
        if one["outliers_iqr"]:
            one["extremes"], query = await _list_extremes(search, column, low, high)
            queries.append(query)
        found.append(one)
    rows = [
        (
            "outliers",
            str(one["column"]),
            float(one["outliers_iqr"]),
            f"outside {one['low_fence']} to {one['high_fence']}",
        )
        for one in found
    ]
    return _Pattern(output=found, rows=rows, queries=queries)


def _read_fences(values: Mapping[str, Any], index: int) -> tuple[float, float, float, float] | None:
    q1, q3, average, deviation = (to_float(values[f"{name}_{index}"]) for name in _FENCES[1:])
    if q1 is None or q3 is None or average is None:
        return None
    reach, spread = FENCE * (q3 - q1), Z_LIMIT * (deviation or 0)
    z_low, z_high = average - spread, average + spread
    if not reach:  # most values are equal, so all others would be outliers
        return z_low, z_high, z_low, z_high
    return q1 - reach, q3 + reach, z_low, z_high


def _count_beyond(value: exp.Expr, low: float, high: float) -> exp.Expr:
    is_beyond = _build_beyond(value, low, high)
    return call("count_if", is_beyond)


def _build_beyond(value: exp.Expr, low: float, high: float) -> exp.Expr:
    return exp.or_(
        exp.LT(this=value, expression=build_literal(low)),
        exp.GT(this=value.copy(), expression=build_literal(high)),
    )


async def _list_extremes(
    search: _Search, column: Column, low: float, high: float
) -> "tuple[list[JsonObject], GuardedQuery]":
    """Return the most extreme rows."""
    number = to_number(column)
    middle = build_literal((low + high) / 2)
    distance = exp.Abs(this=exp.Paren(this=exp.Sub(this=number.copy(), expression=middle)))
    labels = [one for one in search.dataset.columns if one != column][:2]
    items = [name_column(one.name) for one in (*labels, column)]
    tree = search.select(items).where(_build_beyond(number, low, high))
    tree = tree.order_by(exp.Ordered(this=distance, desc=True)).limit(MOST_OUTLIERS)
    table, query = await run_tree(search.session, tree, limit=MOST_OUTLIERS)
    return list_records(table), query


async def find_trends(search: _Search) -> _Pattern:
    """Fit a line through each column over time, and return its slope per day and in total."""
    if search.time is None:
        raise ToolFailed(
            f"{search.dataset.name} has no column with a time.",
            hint="Name one as time_column, or look for correlations or outliers.",
        )
    time = exp.TryCast(this=name_column(search.time.name), to=exp.DataType.build("TIMESTAMP"))
    days = exp.Div(this=call("epoch", time), expression=build_literal(_SECONDS_PER_DAY))
    items = [
        as_name(call("min", name_column(search.time.name)), "first"),
        as_name(call("max", name_column(search.time.name)), "last"),
    ]
    for index, column in enumerate(search.columns):
        for name in ("regr_slope", "regr_r2", "regr_count", "regr_avgy"):
            items.append(as_name(call(name, to_number(column), days.copy()), f"{name}_{index}"))
    values, query = await read_row(search.session, search.select(items))
    span = _count_days(values["first"], values["last"])
    found: list[JsonObject] = []
    for index, column in enumerate(search.columns):
        slope = to_float(values[f"regr_slope_{index}"])
        if slope is None:
            continue
        fit, average = (to_float(values[f"{name}_{index}"]) for name in ("regr_r2", "regr_avgy"))
        change = slope * span
        one: JsonObject = {
            "column": column.name,
            "slope_per_day": _round(slope),
            "change": _round(change),
            "r_squared": _round(fit),
            "count": values[f"regr_count_{index}"],
            "direction": name_direction(change, fit, average),
        }
        found.append(one)
    found.sort(key=lambda one: -(one["r_squared"] or 0))
    rows = [
        ("trend", str(one["column"]), one["slope_per_day"], str(one["direction"])) for one in found
    ]
    output: JsonObject = {
        "time_column": search.time.name,
        "first": to_plain(values["first"]),
        "last": to_plain(values["last"]),
        "trends": found,
    }
    return _Pattern(output=output, rows=rows, queries=[query])


def name_direction(change: float, fit: float | None, average: float | None) -> str:
    """Return `rising`, `falling` or `flat`; a fit that explains almost nothing is flat."""
    is_small = bool(average) and abs(change) < 0.01 * abs(average or 0)
    if (fit or 0) < 0.01 or is_small or not change:
        return "flat"
    return "rising" if change > 0 else "falling"


def _count_days(first: Any, last: Any) -> float:
    if first is None or last is None:
        return 0.0
    try:
        return (last - first).total_seconds() / _SECONDS_PER_DAY
    except (TypeError, AttributeError):  # a text column with times
        return 0.0


def _round(value: Any) -> float | None:
    number = to_float(value)
    return None if number is None else float(f"{number:.6g}")


_SEARCHES: Mapping[str, Callable[[_Search], Awaitable[_Pattern]]] = {
    "correlations": find_correlations,
    "outliers": find_outliers,
    "trends": find_trends,
}
