"""The tool that returns all that earlier questions taught about a data set."""

from typing import TYPE_CHECKING

from copilot_runtime.extensions.analyst.results import ToolResult
from copilot_runtime.extensions.analyst.tools.tool import AnalystTool, Arguments, Field

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.session import Session

NOTHING = "No memory recorded yet for this data set."


class RecallArguments(Arguments):
    """What `recall_memory` takes."""

    table: str | None = Field(
        default=None, description="Another data set than the one of the question."
    )


async def recall_memory(session: "Session", arguments: RecallArguments) -> ToolResult:
    """Return the memory of a data set, in full, for this caller."""
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
