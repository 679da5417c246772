"""Metrics of the operator's catalogue, computed as defined."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from sqlglot import exp

from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.analyst.results import ToolResult, list_records
from copilot_runtime.extensions.analyst.semantic.compile import DimensionFilter, Grain, Operator
from copilot_runtime.extensions.analyst.tools.queries import build_lineage, run_tree
from copilot_runtime.extensions.analyst.tools.tool import ToolFailed

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.semantic.catalog import Metric
    from copilot_runtime.extensions.analyst.session import Session

MOST_GROUPS = 500

_OPERATORS: Mapping[str, Operator] = {
    **{name: name for name in ("=", "!=", "<", "<=", ">", ">=", "in", "not in", "contains")},
    "eq": "=",
    "==": "=",
    "ne": "!=",
    "<>": "!=",
    "lt": "<",
    "max": "<=",
    "lte": "<=",
    "gt": ">",
    "min": ">=",
    "gte": ">=",
    "not_in": "not in",
    "like": "contains",
    "is_null": "is null",
}


def find_metric(session: "Session", name: str) -> "Metric | None":
    """Return a metric that this caller can compute, or `None`."""
    catalog = session.services.catalog
    metric = catalog.metrics.get(name.strip().casefold()) if catalog is not None else None
    table = metric.definition.table if metric is not None else None
    if table is None or table.lower() not in session.rules.names:
        return None
    return metric


def match_metrics(session: "Session", tree: exp.Expr) -> Sequence[str]:
    """Return the names of the metrics that SQL computes exactly as defined."""
    catalog = session.services.catalog
    return catalog.match(tree) if catalog is not None and len(catalog) else []


def match_metric_values(session: "Session", tree: exp.Expr) -> Sequence[str]:
    """Return the names of the metrics whose value SQL with joins computes."""
    catalog = session.services.catalog
    return catalog.match_values(tree) if catalog is not None else []


def check_metrics(session: "Session", metrics: Sequence[str], *texts: str) -> Sequence[str]:
    """Return a warning if the question or a text names only other metrics, or an empty list.

    The texts are shown to users with the numbers, so users would take them for that metric.
    """
    computed = {name.casefold() for name in metrics}
    for text in (session.question, *texts) if computed else ():
        names = list_metrics_in(session, text)
        if names and not computed & {name.casefold() for name in names}:
            others, done = " and ".join(names), " and ".join(metrics)
            return [f"This is the metric {done}, and not {others}, which is defined otherwise."]
    return []


def list_metrics_in(session: "Session", text: str) -> Sequence[str]:
    """Return the metrics named in a text; longer names match first, and each word counts once."""
    catalog = session.services.catalog
    metrics = catalog.metrics.values() if catalog is not None else ()
    found: list[str] = []
    for metric in sorted(metrics, key=lambda one: -len(one.name)):
        words = r"[\s_-]+".join(map(re.escape, metric.name.replace("_", " ").split()))
        text, count = re.subn(rf"(?<!\w){words}(?!\w)", "|", text, flags=re.IGNORECASE)
        if count and find_metric(session, metric.name) is not None:
            found.append(metric.name)
    return found


async def analyze_metric(
    session: "Session",
    metric: "Metric",
    *,
    group_by: Sequence[str],
    filters: Mapping[str, Any],
    grain: Grain | None,
    limit: int,
) -> ToolResult:
    """Return a metric by its dimensions. Raises `ConfigurationFailed` for an unknown one."""
    catalog = session.services.catalog
    assert catalog is not None
    time = (metric.definition.time or "").casefold()
    dimensions = [name for name in group_by if name.casefold() != time]
    if grain is None and len(dimensions) < len(group_by):
        grain = "day"
    compiled = catalog.compile(
        metric.name, group_by=dimensions, filters=[*read_filters(filters)], grain=grain
    )
    table, query = await run_tree(session, compiled.tree, limit=MOST_GROUPS)
    records = list_records(table, max(1, min(limit, MOST_GROUPS)))
    output: JsonObject = {
        "metric": metric.name,
        "definition": metric.definition.description or compiled.sql,
        "group_by": list(compiled.dimensions),
        "groups": len(table.rows),
        "returned": len(records),
        "truncated": table.is_truncated or len(table.rows) > len(records),
        "data": records,
        "trust": "verified: computed as the operator defined it",
    }
    if checks := check_metrics(session, [metric.name]):
        output |= {"trust": "derived", "warnings": [*checks]}
    by = f" by {', '.join(compiled.dimensions)}" if compiled.dimensions else ""
    return ToolResult(
        output=output,
        title=f"{metric.name}{by}",
        table=table,
        lineage=await build_lineage(
            session,
            [query],
            trust="derived" if checks else "verified",
            metrics=[metric.name],
            checks=checks,
        ),
    )


def read_filters(filters: Mapping[str, Any]) -> Iterator[DimensionFilter]:
    """Yield the conditions of filters. Raises `ToolFailed` for an unknown operator."""
    for name, value in filters.items():
        if isinstance(value, list):
            yield DimensionFilter(name, "in", value)
        elif isinstance(value, Mapping):
            for operator, item in cast("Mapping[str, Any]", value).items():
                yield from _read_condition(name, operator.strip().lower(), item)
        else:
            yield DimensionFilter(name, "=", value)


def _read_condition(name: str, operator: str, value: Any) -> Iterator[DimensionFilter]:
    if operator == "between" and isinstance(value, list):
        bounds = cast("list[Any]", value)
        yield from (DimensionFilter(name, ">=", one) for one in bounds[:1])
        yield from (DimensionFilter(name, "<=", one) for one in bounds[1:2])
        return
    canonical = _OPERATORS.get(operator)
    if canonical is None:
        raise ToolFailed(
            f"There is no operator {operator[:40]!r}.",
            hint=f"Known operators: {', '.join(dict.fromkeys(_OPERATORS.values()))}.",
        )
    yield DimensionFilter(name, canonical, value)
