"""The tool that describes the metrics which operators defined."""

from typing import TYPE_CHECKING

from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.analyst.results import ToolResult
from copilot_runtime.extensions.analyst.tools.tool import AnalystTool, Arguments, Field, alias

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.session import Session

NOTHING = "No metrics are defined for this data: use its numeric columns."


class SignalArguments(Arguments):
    """What `describe_metric_signals` takes."""

    metric: str | None = Field(
        default=None,
        description="One metric; by default all.",
        validation_alias=alias("metric", "metric_name"),
    )
    table: str | None = Field(
        default=None, description="Another data set than the one of the question."
    )


async def describe_metric_signals(session: "Session", arguments: SignalArguments) -> ToolResult:
    """Return the metrics of the catalogue that the data has."""
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
