"""The KPI tools: `query_kpi_data`, and `describe_metric_signals` for the catalogue."""

from typing import TYPE_CHECKING

from sqlglot import exp

from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.analyst.results import ToolResult
from copilot_runtime.extensions.analyst.tools.filters import Filters, build_conditions
from copilot_runtime.extensions.analyst.tools.queries import (
    as_name,
    build_lineage,
    run_tree,
    select,
)
from copilot_runtime.extensions.analyst.tools.tool import (
    AnalystTool,
    Arguments,
    Field,
    ToolFailed,
    alias,
)
from copilot_runtime.extensions.analyst.tools.values import list_records

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.engine.datasets import Dataset
    from copilot_runtime.extensions.analyst.session import Session


MOST_RECORDS = 100


class KpiArguments(Arguments):
    """Arguments of the `query_kpi_data` tool."""

    filters: Filters = Field(
        default_factory=dict[str, object],
        description='Conditions by column: a value, a list, or operators like {"gte": 3}.',
    )
    category: str | None = Field(
        default=None,
        description="A text that the category contains.",
        validation_alias=alias("category", "filter_category"),
    )
    limit: int = Field(default=50, description="Rows to return, at most 100.")


async def query_kpi_data(session: "Session", arguments: KpiArguments) -> ToolResult:
    """Return rows of the KPI table."""
    dataset = _find_kpi_dataset(session)
    synonyms = session.services.find_synonyms(dataset.name)
    filters = dict(arguments.filters)
    if arguments.category:
        filters["kpi_category"] = {"contains": arguments.category}
    conditions = build_conditions(filters, dataset.columns, synonyms)
    limit = max(1, min(arguments.limit, MOST_RECORDS))
    table, query = await run_tree(
        session, select([exp.Star()], dataset.name, conditions), limit=MOST_RECORDS
    )
    total = len(table.rows)
    if table.is_truncated:
        count = as_name(exp.Count(this=exp.Star()), "total")
        counted, _ = await run_tree(session, select([count], dataset.name, conditions))
        total = int(counted.rows[0][0])
    records = list_records(table, limit)
    output: JsonObject = {
        "table": dataset.name,
        "total": total,
        "returned": len(records),
        "truncated": total > len(records),
        "records": records,
    }
    return ToolResult(
        output=output,
        title=f"{total:,} key figures",
        table=table,
        lineage=await build_lineage(session, [query]),
    )


def _find_kpi_dataset(session: "Session") -> "Dataset":
    datasets = session.list_datasets()
    target = session.services.kpi_table.lower()
    exact = [one for one in datasets if one.name.lower() == target]
    similar = [one for one in datasets if "kpi" in one.name.lower().split("_")]
    for dataset in (*exact, *similar):
        return dataset
    raise ToolFailed(
        "There is no table of key figures.",
        hint="Answer from the other data sets, or say that no KPI data is loaded.",
    )


QUERY_KPI_DATA = AnalystTool(
    name="query_kpi_data",
    description=(
        "Reads the table of key business figures (KPIs), by category or any other column. Use it "
        "for questions about KPIs and targets."
    ),
    arguments=KpiArguments,
    run=query_kpi_data,
    describe_call=lambda _: "Reading key figures",
)


NOTHING = "No metrics are defined for this data: use its numeric columns."


class SignalArguments(Arguments):
    """Arguments of the `describe_metric_signals` tool."""

    metric: str | None = Field(
        default=None,
        description="One metric; by default all.",
        validation_alias=alias("metric", "metric_name"),
    )
    table: str | None = Field(
        default=None, description="Another data set than the one of the question."
    )


async def describe_metric_signals(session: "Session", arguments: SignalArguments) -> ToolResult:
    """Return the catalogue's metrics that exist in the data."""
    dataset = session.find_dataset(arguments.table)
    describe = session.services.describe_metrics
    text = describe(dataset, arguments.metric) if describe is not None else ""
    output: JsonObject = {"metrics": text or NOTHING, "table": dataset.name}
    return ToolResult(output=output, title=f"Metrics of {dataset.name}")


DESCRIBE_METRIC_SIGNALS = AnalystTool(
    name="describe_metric_signals",
    description=(
        "Describes the metrics that are defined for the data: meaning, range, thresholds and the "
        "signals they are made of."
    ),
    arguments=SignalArguments,
    run=describe_metric_signals,
    describe_call=lambda _: "Reading the definitions of metrics",
)
