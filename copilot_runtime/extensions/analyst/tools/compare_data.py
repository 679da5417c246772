"""The tool that compares groups by numeric columns, with the confidence of each difference."""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from copilot_runtime.base.jsonvalue import JsonObject, drop_none
from copilot_runtime.extensions.analyst.results import (
    Column,
    Table,
    ToolResult,
    build_table,
    list_records,
    round_number,
    to_float,
    to_plain,
)
from copilot_runtime.extensions.analyst.tools.filters import (
    NO_FILTERS,
    Filters,
    build_condition,
    build_conditions,
)
from copilot_runtime.extensions.analyst.tools.queries import (
    as_name,
    build_lineage,
    call,
    describe_left_out,
    find_column,
    list_measures,
    name_column,
    read_row,
    run_tree,
    select,
    to_number,
    to_text,
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

MOST_GROUPS = 30
MOST_METRICS = 6
LEVEL = 0.95
"""The level of the confidence intervals."""

_NAMED_VALUES = 20
_EFFECTS = ((0.2, "negligible"), (0.5, "small"), (0.8, "medium"))
"""Effect sizes by Cohen's d, with Cohen's names for them."""

Value = str | int | float | bool


class CompareArguments(Arguments):
    """Arguments of the `compare_data` tool."""

    group_column: str = Field(
        description="The column whose values are compared.",
        validation_alias=alias("group_column", "group_by", "column"),
    )
    group_a: Value | None = Field(
        default=None, description="The first value, such as before; without it, all are listed."
    )
    group_b: Value | None = Field(default=None, description="The second value, such as after.")
    metrics: Names = Field(
        default_factory=list[str],
        description="The numeric columns that are compared; by default up to 6.",
        validation_alias=alias("metrics", "metric", "metric_column"),
    )
    filters: Filters = NO_FILTERS
    table: TableName = None


@analyst_tool(
    description=(
        "Compares two values of a column on numbers: averages, difference, size of the effect and "
        "its confidence interval. Without two values, it lists the averages of all groups."
    ),
    describe_call=lambda arguments: _describe_call(arguments),
)
async def compare_data(session: "Session", arguments: CompareArguments) -> ToolResult:
    """Compare two groups, or list all groups."""
    dataset = session.find_dataset(arguments.table)
    synonyms = session.services.find_synonyms(dataset.name)
    column = find_column(arguments.group_column, dataset.columns, synonyms)
    named = [find_column(name, dataset.columns, synonyms) for name in arguments.metrics]
    rest = [one for one in dataset.columns if one != column]
    metrics = (named or list_measures(rest))[:MOST_METRICS]
    if not metrics:
        raise ToolFailed(f"{dataset.name} has no numeric column to compare.")
    conditions = build_conditions(arguments.filters, dataset.columns, synonyms)
    if arguments.group_a is None or arguments.group_b is None:
        return await _list_groups(session, dataset, column, metrics, conditions)
    groups = (arguments.group_a, arguments.group_b)
    return await _compare(session, dataset, column, metrics, conditions, groups)


async def _list_groups(
    session: "Session",
    dataset: "Dataset",
    column: Column,
    metrics: Sequence[Column],
    conditions: Sequence[exp.Expr],
) -> ToolResult:
    items = [name_column(column.name), as_name(exp.Count(this=exp.Star()), "row_count")]
    items += [as_name(call("avg", to_number(one)), f"{one.name}_avg") for one in metrics]
    order = exp.Ordered(this=name_column("row_count"), desc=True)
    tree = select(items, dataset.name, conditions).group_by(name_column(column.name))
    tree = tree.order_by(order, exp.Ordered(this=name_column(column.name), nulls_first=False))
    table, query = await run_tree(session, tree, limit=MOST_GROUPS)
    output: JsonObject = {
        "group_column": column.name,
        "metrics": [one.name for one in metrics],
        "groups": len(table.rows),
        "truncated": table.is_truncated,
        "data": list_records(table),
    }
    checks = await describe_left_out(session, dataset, metrics, conditions)
    return ToolResult(
        output=output | ({"warnings": checks} if checks else {}),
        title=f"{len(table.rows)} groups of {column.name}",
        table=table,
        lineage=await build_lineage(session, [query], checks=checks),
    )


async def _compare(
    session: "Session",
    dataset: "Dataset",
    column: Column,
    metrics: Sequence[Column],
    conditions: Sequence[exp.Expr],
    groups: tuple[Value, Value],
) -> ToolResult:
    found: list[Mapping[str, Any]] = []
    queries: list[GuardedQuery] = []
    for group in groups:
        items = [as_name(exp.Count(this=exp.Star()), "rows")]
        for index, metric in enumerate(metrics):
            number = to_number(metric)
            items += [
                as_name(call("count", number.copy()), f"count_{index}"),
                as_name(call("avg", number.copy()), f"avg_{index}"),
                as_name(call("var_samp", number), f"variance_{index}"),
            ]
        own = [*[one.copy() for one in conditions], build_condition(column, "eq", group)]
        numbers, query = await read_row(session, select(items, dataset.name, own))
        found.append(numbers)
        queries.append(query)
    empty = [group for group, numbers in zip(groups, found, strict=True) if not numbers["rows"]]
    if empty:
        raise ToolFailed(
            f"No row has the value {str(empty[0])[:80]!r} in {column.name!r}.",
            hint=await _list_values(session, dataset, column),
        )
    comparison = {
        metric.name: compare_samples(*(read_sample(numbers, index) for numbers in found))
        for index, metric in enumerate(metrics)
    }
    output: JsonObject = {
        "group_column": column.name,
        "group_a": groups[0],
        "group_b": groups[1],
        "rows_a": found[0]["rows"],
        "rows_b": found[1]["rows"],
        "comparison": comparison,
        "note": "delta is b - a; the interval is its 95% confidence interval (Welch).",
    }
    both = exp.or_(*(build_condition(column, "eq", group) for group in groups))
    checks = await describe_left_out(session, dataset, metrics, [*conditions, both])
    return ToolResult(
        output=output | ({"warnings": checks} if checks else {}),
        title=f"{groups[0]} and {groups[1]} compared",
        table=_build_table(comparison, groups),
        lineage=await build_lineage(session, queries, checks=checks),
    )


async def _list_values(session: "Session", dataset: "Dataset", column: Column) -> str:
    """Return the existing values, for the error message about an unknown value."""
    tree = select([as_name(to_text(name_column(column.name)), "value")], dataset.name)
    tree = tree.group_by(exp.Literal.number(1)).order_by(
        exp.Ordered(this=exp.Count(this=exp.Star()), desc=True)
    )
    table, _ = await run_tree(session, tree, limit=_NAMED_VALUES)
    values = ", ".join(str(to_plain(row[0]))[:60] for row in table.rows)
    kind = "Values" if column.is_text else "Some values"
    return f"{kind} of {column.name}: {values or 'none'}."


Sample = tuple[int, float | None, float | None]
"""Count, average and variance of numbers."""


def read_sample(numbers: Mapping[str, Any], index: int) -> Sample:
    """Return count, mean and variance of a metric in one group."""
    average, variance = numbers[f"avg_{index}"], numbers[f"variance_{index}"]
    return numbers[f"count_{index}"], to_float(average), to_float(variance)


def compare_samples(a: Sample, b: Sample) -> JsonObject:
    """Return means, their difference, Cohen's d, and Welch's confidence interval."""
    (count_a, average_a, variance_a), (count_b, average_b, variance_b) = a, b
    result: JsonObject = {
        "a": round_number(average_a),
        "b": round_number(average_b),
        "count_a": count_a,
        "count_b": count_b,
    }
    if average_a is None or average_b is None:
        return {**result, "note": "One group has no numbers."}
    delta = average_b - average_a
    result["delta"] = round_number(delta)
    if average_a:
        result["relative_delta"] = round_number(delta / abs(average_a))
    if variance_a is None or variance_b is None:
        return result
    return result | _describe_certainty(delta, (count_a, variance_a), (count_b, variance_b))


def _describe_certainty(delta: float, a: tuple[int, float], b: tuple[int, float]) -> JsonObject:
    (count_a, variance_a), (count_b, variance_b) = a, b
    degrees = count_a + count_b - 2
    pooled = ((count_a - 1) * variance_a + (count_b - 1) * variance_b) / degrees
    effect = delta / math.sqrt(pooled) if pooled > 0 else None
    parts = variance_a / count_a, variance_b / count_b
    error = math.sqrt(sum(parts))
    if not error:
        return {}
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / (count_a - 1) + parts[1] ** 2 / (count_b - 1))
    margin = compute_t_quantile(freedom) * error
    low, high = delta - margin, delta + margin
    return drop_none(
        {
            "effect_size": round_number(effect),
            "effect": name_effect(effect),
            "confidence_interval": [round_number(low), round_number(high)],
            "is_significant": not low <= 0 <= high,
        }
    )


def name_effect(effect: float | None) -> str | None:
    """Return Cohen's name for an effect size."""
    if effect is None:
        return None
    return next((word for limit, word in _EFFECTS if abs(effect) < limit), "large")


def compute_t_quantile(freedom: float) -> float:
    """Return the half-width of a two-sided interval in standard errors, by Student's distribution.

    It is exact for one and two degrees of freedom, and uses the Cornish-Fisher expansion above.
    """
    probability = (1 + LEVEL) / 2
    if freedom < 1.5:
        return math.tan(math.pi * (probability - 0.5))
    if freedom < 2.5:
        alpha = 4 * probability * (1 - probability)
        return 2 * (probability - 0.5) * math.sqrt(2 / alpha)
    z = NormalDist().inv_cdf(probability)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / freedom + second / freedom**2 + third / freedom**3 + fourth / freedom**4


def _to_percent(part: float | None) -> float | None:
    return None if part is None else round(100 * part, 1)


def _build_table(comparison: Mapping[str, JsonObject], groups: tuple[Value, Value]) -> Table:
    """Build the table for the user: a column per group, and changes in percent."""
    first, second = (str(group) for group in groups)
    numbers = [first, second, "difference", "difference %"]
    numbers += [f"values of {first}", f"values of {second}"]
    doubles = [(name, "DOUBLE") for name in numbers]
    columns = [("metric", "VARCHAR"), *doubles, ("effect", "VARCHAR")]
    rows = [
        [
            metric,
            *(round_number(one.get(name), 4) for name in ("a", "b", "delta")),
            _to_percent(one.get("relative_delta")),
            one["count_a"],
            one["count_b"],
            one.get("effect"),
        ]
        for metric, one in comparison.items()
    ]
    return build_table(columns, rows)


def _describe_call(arguments: CompareArguments) -> str:
    if arguments.group_a is None or arguments.group_b is None:
        return f"Comparing the groups of {arguments.group_column}"[:200]
    pair = f"{arguments.group_a} with {arguments.group_b}"
    return f"Comparing {pair} by {arguments.group_column}"[:200]
