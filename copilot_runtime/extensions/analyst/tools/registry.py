"""The registry of the twelve tools, and the smallest of them, `recall_memory`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from copilot_runtime.extensions.analyst.results import ToolResult
from copilot_runtime.extensions.analyst.tools.analyze_data import ANALYZE_DATA
from copilot_runtime.extensions.analyst.tools.compare_data import COMPARE_DATA
from copilot_runtime.extensions.analyst.tools.exports import DOWNLOAD_DATA, SAVE_AS_DATASET
from copilot_runtime.extensions.analyst.tools.kpi_data import (
    DESCRIBE_METRIC_SIGNALS,
    QUERY_KPI_DATA,
)
from copilot_runtime.extensions.analyst.tools.patterns import ANALYZE_PATTERNS
from copilot_runtime.extensions.analyst.tools.plot_data import PLOT_DATA
from copilot_runtime.extensions.analyst.tools.query_data import QUERY_DATA, RUN_SQL
from copilot_runtime.extensions.analyst.tools.summarize_data import SUMMARIZE_DATA
from copilot_runtime.extensions.analyst.tools.tool import AnalystTool, Arguments, Field

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.session import Session


NOTHING = "No memory recorded yet for this data set."


class RecallArguments(Arguments):
    """Arguments of the `recall_memory` tool."""

    table: str | None = Field(
        default=None, description="Another data set than the one of the question."
    )


async def recall_memory(session: "Session", arguments: RecallArguments) -> ToolResult:
    """Return the complete memory of a data set, within the caller's scope."""
    dataset = session.find_dataset(arguments.table)
    recall = session.services.recall_memory
    text = await recall(dataset, session.scope) if recall is not None else ""
    return ToolResult(output={"memory": text or NOTHING}, title=f"Memory of {dataset.name}")


RECALL_MEMORY = AnalystTool(
    name="recall_memory",
    description=(
        "Returns what earlier questions about the data set taught: SQL that worked, columns that "
        "are used often, mistakes and their repairs. Use it before difficult SQL."
    ),
    arguments=RecallArguments,
    run=recall_memory,
    describe_call=lambda _: "Recalling earlier questions",
    is_cached=False,
)


TOOLS: Mapping[str, AnalystTool] = {
    tool.name: tool
    for tool in (
        *(SUMMARIZE_DATA, QUERY_DATA, ANALYZE_DATA, COMPARE_DATA, QUERY_KPI_DATA, RUN_SQL),
        *(PLOT_DATA, ANALYZE_PATTERNS, SAVE_AS_DATASET, DOWNLOAD_DATA),
        *(DESCRIBE_METRIC_SIGNALS, RECALL_MEMORY),
    )
}
