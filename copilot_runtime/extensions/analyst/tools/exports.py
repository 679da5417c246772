"""The tools that store rows: `save_as_dataset`, the only tool that writes, and `download_data`."""

from typing import TYPE_CHECKING, Literal

from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.analyst.results import ApprovalRequest, ToolResult
from copilot_runtime.extensions.analyst.tools.model_sql import count_result, execute_sql
from copilot_runtime.extensions.analyst.tools.plot_data import Names
from copilot_runtime.extensions.analyst.tools.tool import (
    AnalystTool,
    Arguments,
    Field,
    ToolFailed,
    alias,
    dump_arguments,
)
from copilot_runtime.extensions.analyst.tools.values import number_names

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.session import Session


_PREVIEW = 50


class SaveArguments(Arguments):
    """Arguments of the `save_as_dataset` tool."""

    name: str = Field(
        description="What the data set is called.",
        min_length=1,
        max_length=200,
        validation_alias=alias("name", "dataset_name"),
    )
    sql: str = Field(
        description="One SELECT statement that returns its rows.",
        validation_alias=alias("sql", "query"),
    )
    description: str = Field(default="", description="What is in it.", max_length=2_000)
    tags: Names = Field(default_factory=list[str], description="Words to find it by.")


async def save_as_dataset(session: "Session", arguments: SaveArguments) -> ToolResult:
    """Keep the rows of a statement as a data set that only this user sees."""
    services = session.services
    if not services.allow_save:
        raise ToolFailed("Data sets cannot be saved here.", hint="Answer without saving one.")
    execution = await execute_sql(
        session, arguments.sql, limit=_PREVIEW, tool="save_as_dataset", is_measured=False
    )
    rows = await count_result(session, execution.query, execution.table)
    is_large = rows is None or rows > services.approval_rows
    needs_approval = services.approve_saves or is_large
    if needs_approval and not session.is_approved("save_as_dataset", dump_arguments(arguments)):
        count = "an unknown number of" if rows is None else f"{rows:,}"
        question = f"Save {count} rows as the data set {arguments.name!r}, for you alone?"
        approval = ApprovalRequest(
            tool="save_as_dataset",
            arguments=dump_arguments(arguments),
            question=question,
            rows=rows,
        )
        return ToolResult(output={}, approval=approval)
    dataset = await services.engine.save(
        arguments.name,
        execution.query,
        owner=session.scope.owner or "",
        description=arguments.description,
        tags=arguments.tags,
    )
    output: JsonObject = {
        "dataset_id": dataset.name,
        "name": arguments.name,
        "table": dataset.name,
        "row_count": dataset.row_count,
        "columns": [{"name": one.name, "type": one.type} for one in dataset.columns],
    }
    return ToolResult(
        output=output,
        title=f"Saved {dataset.row_count:,} rows as {dataset.name}",
        lineage=execution.lineage,
    )


SAVE_AS_DATASET = AnalystTool(
    name="save_as_dataset",
    description=(
        "Saves the rows of a SELECT statement as a new data set, for later questions. Only when "
        "the person asks for it: they are asked before it happens."
    ),
    arguments=SaveArguments,
    run=save_as_dataset,
    describe_call=lambda arguments: f"Saving the data set {arguments.name[:80]}",
    effect="write",
    is_cached=False,
    is_sql_writing=True,
)


class DownloadArguments(Arguments):
    """Arguments of the `download_data` tool."""

    sql: str = Field(
        description="One SELECT statement that returns what is in the file.",
        validation_alias=alias("sql", "query"),
    )
    format: Literal["csv", "json"] = Field(
        default="csv", description="csv or json.", validation_alias=alias("format", "file_format")
    )
    filename: str = Field(
        default="data",
        description="The name of the file.",
        max_length=300,
        validation_alias=alias("filename", "file_name", "name"),
    )


async def download_data(session: "Session", arguments: DownloadArguments) -> ToolResult:
    """Offer the rows of a statement as a file that only this caller may fetch."""
    execution = await execute_sql(
        session, arguments.sql, limit=_PREVIEW, tool="download_data", is_measured=False
    )
    services, table = session.services, execution.table
    rows = await count_result(session, execution.query, table)
    if rows is None:
        raise ToolFailed(
            "The rows of the file could not be counted in time.", hint="Filter or aggregate first."
        )
    is_large = rows > services.approval_rows
    if is_large and not session.is_approved("download_data", dump_arguments(arguments)):
        question = f"Export {rows:,} rows as the file {arguments.filename!r}, for you alone?"
        approval = ApprovalRequest(
            tool="download_data", arguments=dump_arguments(arguments), question=question, rows=rows
        )
        return ToolResult(output={}, approval=approval)
    names = number_names([column.name for column in table.columns])
    download = await services.downloads.create(
        execution.query,
        session.scope,
        filename=arguments.filename,
        format=arguments.format,
        row_count=rows,
        columns=names,
    )
    output: JsonObject = {
        "result": f"The person sees a link to {download.filename}.",
        "filename": download.filename,
        "format": download.format,
        "row_count": rows,
        "columns": names,
        "expires_at": download.expires_at,
    }
    return ToolResult(
        output=output,
        title=f"{download.filename}: {rows:,} rows",
        download=download,
        lineage=execution.lineage,
    )


DOWNLOAD_DATA = AnalystTool(
    name="download_data",
    description=(
        "Offers the rows of a SELECT statement as a CSV or JSON file. The person gets a link: do "
        "not write one yourself."
    ),
    arguments=DownloadArguments,
    run=download_data,
    describe_call=lambda arguments: f"Preparing the file {arguments.filename[:80]}",
    effect="output",
    is_cached=False,
    is_sql_writing=True,
)
