"""The tool that aggregates: by group, over time, or as a distribution of numbers."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.analyst.checks import check_result
from copilot_runtime.extensions.analyst.results import (
    Column,
    ToolResult,
    build_table,
    list_records,
    round_number,
)
from copilot_runtime.extensions.analyst.semantic.compile import Grain
from copilot_runtime.extensions.analyst.semantic.definition import parse_expression
from copilot_runtime.extensions.analyst.tools.filters import NO_FILTERS, Filters, build_conditions
from copilot_runtime.extensions.analyst.tools.metrics import analyze_metric, find_metric
from copilot_runtime.extensions.analyst.tools.model_sql import build_repair_context
from copilot_runtime.extensions.analyst.tools.queries import (
    STATISTICS,
    as_name,
    build_lineage,
    build_literal,
    call,
    describe_left_out,
    find_column,
    is_score,
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
    from copilot_runtime.extensions.analyst.semantic.catalog import Metric
    from copilot_runtime.extensions.analyst.session import Session

MOST_COLUMNS = 8
MOST_GROUPS = 500
MOST_GROUP_COLUMNS = 4

LOW, HIGH = 0.5, 0.8
"""Thresholds for average scores that are reported as low or high."""

_AGGREGATIONS: Mapping[str, str] = {
    **{name: name for name in ("count", "sum", "avg", "min", "max", "median")},
    "stddev": "stddev_samp",
}
_QUANTILES = {"min": 0.0, "q25": 0.25, "median": 0.5, "q75": 0.75, "max": 1.0}
_SYNONYMS = {
    "mean": "avg",
    "average": "avg",
    "total": "sum",
    "std": "stddev",
    "stdev": "stddev",
    "minimum": "min",
    "maximum": "max",
    "quantile": "quantiles",
    "percentiles": "quantiles",
    "distinct": "count_distinct",
    "unique": "count_distinct",
    "standard deviation": "stddev",
}
AGGREGATIONS = (*_AGGREGATIONS, "quantiles", "count_distinct")


class AnalyzeArguments(Arguments):
    """Arguments of the `analyze_data` tool."""

    group_by: Names = Field(
        default_factory=list[str],
        description="The column to group by; several are separated by commas.",
        validation_alias=alias("group_by", "group_column", "groupby"),
    )
    metric: Names = Field(
        default_factory=list[str],
        description="The column that is aggregated, or a metric of the catalogue.",
        validation_alias=alias("metric", "metrics", "metric_column", "column", "columns"),
    )
    aggregation: str = Field(
        default="",
        description=f"One of {', '.join(AGGREGATIONS)}. By default avg, or count without a metric.",
        validation_alias=alias("aggregation", "agg", "aggregate"),
    )
    filters: Filters = NO_FILTERS
    time_grain: Grain | None = Field(
        default=None,
        description="How dates of group_by are grouped: hour, day, week, month, quarter or year.",
    )
    limit: int = Field(default=50, description="Groups to return, at most 500.")
    table: TableName = None


@analyst_tool(
    description=(
        "Aggregates: counts, sums, averages, medians or quantiles of a column by one or several "
        "columns, also over time. Without group_by, it describes how numbers are distributed."
    ),
    describe_call=lambda arguments: _describe_call(arguments),
)
async def analyze_data(session: "Session", arguments: AnalyzeArguments) -> ToolResult:
    """Aggregate by groups, or describe the distribution of numbers."""
    metric = find_metric(session, arguments.metric[0]) if len(arguments.metric) == 1 else None
    if metric is not None and computes_as(metric, arguments.aggregation):
        return await analyze_metric(
            session,
            metric,
            group_by=arguments.group_by,
            filters=arguments.filters,
            grain=arguments.time_grain,
            limit=arguments.limit,
        )
    dataset = session.find_dataset(arguments.table)
    if metric is not None and not any(
        one.name.casefold() == metric.name.casefold() for one in dataset.columns
    ):
        raise ToolFailed(
            f"The metric {metric.name!r} is computed as it is defined, not as "
            f"{arguments.aggregation[:40]!r} of something.",
            hint="Leave the aggregation out, or name a column.",
        )
    if arguments.group_by or arguments.aggregation:
        return await _aggregate(session, dataset, arguments)
    return await _describe(session, dataset, arguments)


def parse_aggregation(name: str, *, has_metric: bool) -> str:
    """Return the canonical name of an aggregation. Raises `ToolFailed`."""
    target = name.strip().lower() or ("avg" if has_metric else "count")
    target = _SYNONYMS.get(target, target)
    if target not in AGGREGATIONS:
        raise ToolFailed(
            f"There is no aggregation {name[:40]!r}.", hint=f"Use {', '.join(AGGREGATIONS)}."
        )
    return target


def computes_as(metric: "Metric", aggregation: str) -> bool:
    """Return `True` if the aggregation is empty or equals that of the metric's definition."""
    if not aggregation.strip():
        return True
    target = parse_aggregation(aggregation, has_metric=True)
    kind = _ROOTS.get(target)
    text = metric.definition.sql
    return kind is not None and text is not None and isinstance(parse_expression(text), kind)


_ROOTS: Mapping[str, type[exp.Expr]] = {
    "count": exp.Count,
    "sum": exp.Sum,
    "avg": exp.Avg,
    "min": exp.Min,
    "max": exp.Max,
    "median": exp.Median,
}


def build_aggregates(aggregation: str, column: Column) -> Mapping[str, exp.Expr]:
    """Return the aggregates of a column, by result name."""
    if aggregation == "quantiles":
        return {
            f"{column.name}_{name}": call(
                "quantile_cont", to_number(column), build_literal(fraction)
            )
            for name, fraction in _QUANTILES.items()
        }
    if aggregation == "count_distinct":
        return {
            f"{column.name}_distinct": exp.Count(
                this=exp.Distinct(expressions=[name_column(column.name)])
            )
        }
    is_comparable = aggregation in ("min", "max") and (column.is_time or column.is_numeric)
    is_plain = aggregation == "count" or is_comparable
    value = name_column(column.name) if is_plain else to_number(column)
    return {f"{column.name}_{aggregation}": call(_AGGREGATIONS[aggregation], value)}


async def _aggregate(
    session: "Session", dataset: "Dataset", arguments: AnalyzeArguments
) -> ToolResult:
    synonyms = session.services.find_synonyms(dataset.name)
    columns = dataset.columns
    names = [name for name in arguments.metric[:MOST_COLUMNS] if name != "*"]
    metrics = [find_column(name, columns, synonyms) for name in names]
    aggregation = parse_aggregation(arguments.aggregation, has_metric=bool(metrics))
    groups = [
        find_column(name, columns, synonyms) for name in arguments.group_by[:MOST_GROUP_COLUMNS]
    ]
    if not metrics and aggregation not in ("count",):
        metrics = list_measures([one for one in columns if one not in groups])[:MOST_COLUMNS]
        if not metrics:
            raise ToolFailed(f"{dataset.name} has no numeric column to aggregate.")
    aggregates: dict[str, exp.Expr] = {}
    for metric in metrics:
        aggregates |= build_aggregates(aggregation, metric)
    keys = [build_group(group, arguments.time_grain) for group in groups]
    items = [as_name(key, group.name) for key, group in zip(keys, groups, strict=True)]
    items += [as_name(value, name) for name, value in aggregates.items()]
    items.append(as_name(exp.Count(this=exp.Star()), "row_count"))
    conditions = build_conditions(arguments.filters, columns, synonyms)
    tree = select(items, dataset.name, conditions)
    if keys:
        tree = tree.group_by(*[key.copy() for key in keys])
        tree = tree.order_by(*_build_order(groups, aggregates, arguments.time_grain))
    table, query = await run_tree(session, tree, limit=MOST_GROUPS)
    checks = [*await check_result(query.tree, table, context=build_repair_context(session))]
    if aggregation not in ("count", "count_distinct"):
        checks += await describe_left_out(session, dataset, metrics, conditions)
    lineage = await build_lineage(session, [query], checks=checks)
    records = list_records(table, max(1, min(arguments.limit, MOST_GROUPS)))
    output: JsonObject = {
        "table": dataset.name,
        "group_by": [group.name for group in groups],
        "aggregation": aggregation,
        "metric": [metric.name for metric in metrics],
        "groups": len(table.rows),
        "returned": len(records),
        "truncated": table.is_truncated or len(table.rows) > len(records),
        "data": records,
    }
    if checks:
        output["warnings"] = list(checks)
    by = ", ".join(group.name for group in groups) or dataset.name
    subject = ", ".join(metric.name for metric in metrics) or "rows"
    return ToolResult(
        output=output, title=f"{aggregation} of {subject} by {by}", table=table, lineage=lineage
    )


def build_group(column: Column, grain: Grain | None) -> exp.Expr:
    """Build the grouping expression; a time is truncated to the grain, from hour to year."""
    named = name_column(column.name)
    if grain is None or not column.is_time:
        return named
    return call("date_trunc", build_literal(grain), named)


def _build_order(
    groups: Sequence[Column], aggregates: Mapping[str, exp.Expr], grain: Grain | None
) -> list[exp.Expr]:
    """Return a deterministic order: by time, otherwise the largest first."""
    names = [name_column(group.name) for group in groups]
    if any(group.is_time for group in groups) or grain:
        return [exp.Ordered(this=name, nulls_first=False) for name in names]
    first = next(iter(aggregates), "row_count")
    largest = exp.Ordered(this=name_column(first), desc=True, nulls_first=False)
    return [largest, *(exp.Ordered(this=name, nulls_first=False) for name in names)]


async def _describe(
    session: "Session", dataset: "Dataset", arguments: AnalyzeArguments
) -> ToolResult:
    synonyms = session.services.find_synonyms(dataset.name)
    named = [find_column(name, dataset.columns, synonyms) for name in arguments.metric]
    columns = (named or list_measures(dataset.columns))[:MOST_COLUMNS]
    if not columns:
        raise ToolFailed(
            f"{dataset.name} has no numeric column.", hint="Group by a column to count its rows."
        )
    items = [
        as_name(measure(column, name), f"{index}_{name}")
        for index, column in enumerate(columns)
        for name in STATISTICS
    ]
    conditions = build_conditions(arguments.filters, dataset.columns, synonyms)
    values, query = await read_row(session, select(items, dataset.name, conditions))
    distributions = {
        column.name: {name: round_number(values[f"{index}_{name}"]) for name in STATISTICS}
        for index, column in enumerate(columns)
    }
    checks = await describe_left_out(session, dataset, columns, conditions)
    output: JsonObject = {
        "table": dataset.name,
        "distributions": distributions,
        "columns_analyzed": [column.name for column in columns],
        "insights": list_insights(distributions),
    }
    if checks:
        output["warnings"] = checks
    return ToolResult(
        output=output,
        title=f"Distribution of {', '.join(column.name for column in columns)}",
        table=build_table(
            [("column", "VARCHAR"), *((name, "DOUBLE") for name in STATISTICS)],
            [[name, *numbers.values()] for name, numbers in distributions.items()],
        ),
        lineage=await build_lineage(session, [query], checks=checks),
    )


def list_insights(distributions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return sentences about low or high scores."""
    insights: list[str] = []
    for name, numbers in distributions.items():
        average, least, most = numbers["avg"], numbers["min"], numbers["max"]
        if average is None or least is None or most is None or not 0 <= least <= most <= 1:
            continue
        if not is_score(name):
            continue
        if average < LOW:
            insights.append(f"{name} is low: {average:.3f} on average.")
        elif average >= HIGH:
            insights.append(f"{name} is high: {average:.3f} on average.")
    return insights


def _describe_call(arguments: AnalyzeArguments) -> str:
    subject = ", ".join(arguments.metric) or "the data"
    by = f" by {', '.join(arguments.group_by)}" if arguments.group_by else ""
    return f"Analyzing {subject}{by}"[:200]
