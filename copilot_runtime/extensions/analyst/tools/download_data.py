"""The tool that offers rows as a file."""

from typing import TYPE_CHECKING, Literal

from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.analyst.results import ApprovalRequest, ToolResult
from copilot_runtime.extensions.analyst.tools.model_sql import count_result, execute_sql
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


class DownloadArguments(Arguments):
    """What `download_data` takes."""

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
