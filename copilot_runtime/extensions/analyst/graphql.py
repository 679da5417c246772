"""GraphQL fields of the data analyst, one per tool, generated from the tool's definition.

Every field runs as the caller, with the same guard and row filters as a question in a chat. Tools
that store data are mutations. A runtime without an analyst has none of these fields.
"""

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union, cast, get_args, get_origin

import strawberry
from pydantic.fields import FieldInfo
from strawberry.tools import create_type

from copilot_runtime.extensions.analyst.http.access import AnalystAccess, Viewer
from copilot_runtime.extensions.analyst.question import Question
from copilot_runtime.extensions.analyst.results import Lineage, ToolResult, to_plain
from copilot_runtime.extensions.analyst.session import Session
from copilot_runtime.extensions.analyst.tools.call import TOOLS, call_tool
from copilot_runtime.extensions.analyst.tools.tool import AnalystTool
from copilot_runtime.transports.graphql.context import Context
from copilot_runtime.transports.graphql.schema import CopilotInfo
from copilot_runtime.transports.graphql.types import JSON, JSONObject

_MOST_FIELDS = 10
"""Maximum number of analyst fields per request: each may run a query up to its timeout."""

_MOST_ROWS = 500
_PLAIN: Mapping[Any, Any] = {str: str, int: int, float: float, bool: bool}


@strawberry.type(description="A column of a result; the type is DuckDB's")
class AnalystColumn:
    name: str
    type: str


@strawberry.type(description="Rows for a person: those of `output` are for a model")
class AnalystTable:
    title: str
    columns: list[AnalystColumn]
    rows: list[JSON] = strawberry.field(description="A list of values each, at most 500")
    total_rows: int | None
    truncated: bool


@strawberry.type(description="A chart with its data, in two languages")
class AnalystChart:
    id: str
    title: str
    plotly: JSONObject
    vega_lite: JSONObject
    png_url: str = strawberry.field(description="On this server, without origin")


@strawberry.type(description="A file that its owner may fetch until it expires")
class AnalystDownload:
    id: str
    filename: str
    format: str
    row_count: int
    expires_at: str
    url: str = strawberry.field(description="On this server, without origin")


@strawberry.type(description="Where the numbers of a result come from")
class AnalystLineage:
    trust: str = strawberry.field(description="verified, derived or free_sql")
    sql: str
    tables: list[str]
    filters: list[str]
    metrics: list[str]
    rows_scanned: int | None
    checks: list[str] = strawberry.field(description="Possible errors, a sentence each")
    fixes: list[str]


@strawberry.type(description="The result of a tool, with `error` if it failed")
class AnalystResult:
    output: JSONObject = strawberry.field(
        description="The output for a model, at most 6,000 characters"
    )
    error: str | None
    table: AnalystTable | None
    chart: AnalystChart | None
    download: AnalystDownload | None
    lineage: AnalystLineage | None
    approval: str | None = strawberry.field(
        description="A question to a person; `approved: true` confirms it"
    )


@strawberry.type(description="Data that questions can be about")
class AnalystDataset:
    name: str
    description: str
    rows: int | None = strawberry.field(description="Those that the caller may see")
    columns: list[AnalystColumn]
    fingerprint: str = strawberry.field(description="Of the names and types of the columns")


async def _list_datasets(info: CopilotInfo) -> list[AnalystDataset]:
    viewer, session = await _open_session(info.context, "", "")
    counts = await viewer.analyst.count_rows(viewer.scope)
    return [
        AnalystDataset(
            name=one.name,
            description=one.description,
            rows=counts.get(one.name),
            columns=[AnalystColumn(name=it.name, type=it.type) for it in one.columns],
            fingerprint=one.fingerprint,
        )
        for one in session.list_datasets()
    ]


def _build_field(tool: AnalystTool) -> Any:
    """Return the field of a tool, with its defined arguments and three common ones."""

    async def resolve(info: CopilotInfo, **values: Any) -> AnalystResult:
        dataset, agent = values.pop("dataset", None), values.pop("agent_name", None)
        is_approved = values.pop("approved", None)
        arguments = {name: value for name, value in values.items() if value is not None}
        _, session = await _open_session(info.context, dataset or "", agent or "")
        if is_approved:
            session.approve(tool.name, arguments)
        return _encode(await call_tool(session, tool.name, arguments))

    parameters = [inspect.Parameter("info", _KEYWORD, annotation=CopilotInfo)]
    parameters += [
        _build_parameter(name, field) for name, field in tool.arguments.model_fields.items()
    ]
    names = {parameter.name for parameter in parameters}
    ours: Mapping[str, Any] = {"dataset": str, "agent_name": str}
    if tool.effect != "none":
        ours = {**ours, "approved": bool}
    parameters += [
        inspect.Parameter(name, _KEYWORD, annotation=kind | None, default=None)
        for name, kind in ours.items()
        if name not in names
    ]
    resolve.__signature__ = inspect.Signature(parameters, return_annotation=AnalystResult)
    resolve.__annotations__ = {one.name: one.annotation for one in parameters}
    resolve.__annotations__["return"] = AnalystResult
    resolve.__name__ = tool.name  # strawberry identifies fields by it
    make: Callable[..., Any] = strawberry.mutation if tool.effect == "write" else strawberry.field
    return make(resolver=resolve, name=name_field(tool.name), description=tool.description)


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def _build_parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    kind = _read_type(field.annotation)
    if field.is_required():
        return inspect.Parameter(name, _KEYWORD, annotation=kind)
    return inspect.Parameter(name, _KEYWORD, annotation=kind | None, default=None)


def _read_type(annotation: Any) -> Any:
    """Return the GraphQL type of an argument; types other than scalars and lists become JSON."""
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return str
    if origin in (Union, types.UnionType):
        kinds = [part for part in parts if part is not type(None)]
        return _read_type(kinds[0]) if len(kinds) == 1 else JSON
    if origin is list and parts and parts[0] in _PLAIN:
        return list[_PLAIN[parts[0]]]
    return JSON


def name_field(name: str) -> str:
    """Return the camel-case GraphQL name of a tool or an argument."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


async def _open_session(context: Context, dataset: str, agent_name: str) -> tuple[Viewer, Session]:
    """Return the caller and their session.

    Raises `LimitExceeded` for too many fields per request.
    """
    context.count_field("the analyst", _MOST_FIELDS)
    access = context.services.parts.find(AnalystAccess)
    assert access is not None
    viewer = await access.identify(context.caller, "", agent_name or None)
    question = Question(message="", dataset_label=dataset, agent_name=agent_name or None)
    return viewer, await viewer.analyst.open_session(viewer.scope, question=question)


def _encode(result: ToolResult) -> AnalystResult:
    table, chart, download = result.table, result.chart, result.download
    return AnalystResult(
        output=JSONObject({**result.output}),
        error=str(result.output["error"]) if result.is_error else None,
        table=table
        and AnalystTable(
            title=result.title,
            columns=[AnalystColumn(name=one.name, type=one.type) for one in table.columns],
            rows=[JSON([to_plain(cell) for cell in row]) for row in table.rows[:_MOST_ROWS]],
            total_rows=table.total_rows,
            truncated=table.is_truncated or len(table.rows) > _MOST_ROWS,
        ),
        chart=chart
        and AnalystChart(
            id=chart.id,
            title=chart.title,
            plotly=JSONObject({**chart.plotly}),
            vega_lite=JSONObject({**chart.vega_lite}),
            png_url=chart.url,
        ),
        download=download
        and AnalystDownload(
            id=download.id,
            filename=download.filename,
            format=download.format,
            row_count=download.row_count,
            expires_at=download.expires_at,
            url=download.url,
        ),
        lineage=result.lineage and _encode_lineage(result.lineage),
        approval=result.approval.question if result.approval else None,
    )


def _encode_lineage(lineage: Lineage) -> AnalystLineage:
    return AnalystLineage(
        trust=lineage.trust,
        sql=lineage.sql,
        tables=[*lineage.tables],
        filters=[*lineage.filters],
        metrics=[*lineage.metrics],
        rows_scanned=lineage.rows_scanned,
        checks=[*lineage.checks],
        fixes=[fix.description for fix in lineage.fixes],
    )


_DATASETS: Any = strawberry.field(
    resolver=_list_datasets, name="datasets", description="The data sets that the caller may see"
)

Analyst = create_type(
    "Analyst",
    [_DATASETS, *(_build_field(tool) for tool in TOOLS.values() if tool.effect != "write")],
    description="The tools of the data analyst that only read, each with its own arguments",
)

AnalystChanges = create_type(
    "AnalystChanges",
    [_build_field(tool) for tool in TOOLS.values() if tool.effect == "write"],
    description="The tools of the data analyst that keep data",
)


def _start() -> Any:
    return cast("Any", Analyst)()


def _start_changes() -> Any:
    return cast("Any", AnalystChanges)()


def _root(name: str, of: type, resolve: Callable[[], Any], make: Callable[..., Any]) -> type:
    resolve.__annotations__["return"] = of
    field = make(resolver=resolve, name="analyst", description="The data analyst, as the caller")
    return create_type(name, [field])


ROOTS = {
    "Query": _root("AnalystQuery", Analyst, _start, strawberry.field),
    "Mutation": _root("AnalystMutation", AnalystChanges, _start_changes, strawberry.mutation),
}
