"""The tool that draws a chart of the result of SQL."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import BeforeValidator

from copilot_runtime.base.jsonvalue import JsonObject, drop_none, get_object, get_text, parse_text
from copilot_runtime.extensions.analyst.charts.data import (
    KINDS,
    ChartData,
    ChartKind,
    Roles,
    build_chart_data,
)
from copilot_runtime.extensions.analyst.charts.image import build_vega_lite
from copilot_runtime.extensions.analyst.charts.plotly import (
    build_plotly,
    check_trace,
    clean_part,
    merge_layout,
    validate_plotly,
)
from copilot_runtime.extensions.analyst.charts.style import write_title
from copilot_runtime.extensions.analyst.results import Chart, Table, ToolResult, to_plain
from copilot_runtime.extensions.analyst.tools.model_sql import Execution, execute_sql
from copilot_runtime.extensions.analyst.tools.queries import find_column
from copilot_runtime.extensions.analyst.tools.tool import (
    Arguments,
    Field,
    Names,
    ToolFailed,
    alias,
    analyst_tool,
)

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.session import Session

MOST_POINTS = 500
MOST_VALUES = 5_000
"""Maximum number of rows of a chart that aggregates them: a histogram or a box plot."""

_ID_BYTES = 32


Parts = Annotated[list[dict[str, Any]], BeforeValidator(parse_text)]
Part = Annotated[dict[str, Any], BeforeValidator(parse_text)]


class PlotArguments(Arguments):
    """Arguments of the `plot_data` tool."""

    chart_type: str = Field(
        default="",
        description="bar, line, area, scatter, pie, histogram, heatmap or box.",
        validation_alias=alias("chart_type", "type", "kind"),
    )
    sql: str = Field(
        description="One SELECT statement that returns what is drawn, at most 500 rows.",
        validation_alias=alias("sql", "query"),
    )
    x_column: str | None = Field(
        default=None,
        description="The column along the x axis, or of the labels of a pie.",
        validation_alias=alias("x_column", "x"),
    )
    y_column: Names = Field(
        default_factory=list[str],
        description="The column of the values; several are separated by commas.",
        validation_alias=alias("y_column", "y", "y_columns"),
    )
    title: str = Field(default="", description="What the chart shows, in a few words.")
    series_column: str | None = Field(
        default=None,
        description="A third column: each of its values is a series with a color.",
        validation_alias=alias("series_column", "series", "color", "color_column", "group_column"),
    )
    traces: Parts = Field(
        default_factory=list[dict[str, Any]],
        description="Instead of the columns: traces of Plotly, with column names as x, y and z.",
    )
    layout: Part = Field(
        default_factory=dict[str, Any], description="A layout of Plotly that is put on top."
    )


@analyst_tool(
    description=(
        "Draws a chart of the rows of a SELECT statement, which the person sees at once. "
        "Aggregate in SQL. For a series a color, name its column in series_column."
    ),
    describe_call=lambda arguments: f"Drawing a chart: {arguments.title or arguments.chart_type}",
    effect="output",
    is_cached=False,
)
async def plot_data(session: "Session", arguments: PlotArguments) -> ToolResult:
    """Draw the rows of a statement as a chart."""
    kind = _choose_kind(arguments)
    limit = MOST_VALUES if kind in ("histogram", "box") else MOST_POINTS
    title = write_title(arguments.title or _read_title(arguments.layout))
    execution = await execute_sql(
        session, arguments.sql, limit=limit, tool="plot_data", title=title
    )
    table = execution.table
    if not table.rows:
        return ToolResult(
            output={"result": "No data returned for the chart.", "chart": None},
            title="No data for a chart",
        )
    is_ordered = execution.query.tree.args.get("order") is not None
    data = build_chart_data(kind, table, _read_roles(arguments), title, is_ordered=is_ordered)
    plotly = _build_plotly(data, table, arguments)
    # Plotly is large: the first import takes a second, so it runs in a thread
    await asyncio.to_thread(validate_plotly, plotly)
    id = secrets.token_urlsafe(_ID_BYTES)
    chart = Chart(
        id=id,
        title=title,
        plotly=plotly,
        vega_lite=build_vega_lite(data),
        url=session.services.charts.write_url(f"{id}.png"),
    )
    await session.services.charts.add(chart.id, chart, session.scope)
    return ToolResult(
        output=_describe_chart(data, plotly, execution),
        title=title or f"A {kind} chart of {data.x.name}",
        chart=chart,
        lineage=execution.lineage,
    )


def _describe_chart(data: ChartData, plotly: JsonObject, execution: Execution) -> JsonObject:
    count = len(plotly["data"])
    notes = list(data.notes)
    if execution.table.is_truncated:
        rows = len(execution.table.rows)
        notes.append(f"Only the first {rows:,} rows are drawn: aggregate in SQL to draw all.")
    text = f"The person sees the chart: {data.kind}, {data.point_count} points, {count} series."
    return drop_none(
        {
            "result": text,
            "chart_type": data.kind,
            "points": data.point_count,
            "series": count,
            "x": data.x.name,
            "y": [column.name for column in data.y] or None,
            "notes": notes or None,
            "fixes": [fix.description for fix in execution.fixes] or None,
            "warnings": list(execution.lineage.checks) or None,
        }
    )


def _choose_kind(arguments: PlotArguments) -> ChartKind:
    target = arguments.chart_type.strip().lower().replace("_", " ")
    if not target and arguments.traces:
        trace = arguments.traces[0]
        check_trace(trace)
        target = get_text(trace, "type") or "scatter"
        mode = get_text(trace, "mode")
        if target.startswith("scatter") and ("lines" in mode or not mode):
            target = "area" if trace.get("fill") or trace.get("stackgroup") else "line"
        target = target if target in KINDS else "bar"
    kind = KINDS.get(target.removesuffix(" chart").removesuffix(" plot"))
    if kind is None:
        raise ToolFailed(
            f"There is no chart of the type {arguments.chart_type[:40]!r}.",
            hint="Use bar, line, area, scatter, pie, histogram, heatmap or box.",
        )
    return kind


def _read_roles(arguments: PlotArguments) -> Roles:
    xs = [_read_name(trace, "x", "labels") for trace in arguments.traces]
    ys = [_read_name(trace, "y", "values") for trace in arguments.traces]
    return Roles(
        x=arguments.x_column or next(filter(None, xs), ""),
        y=arguments.y_column or list(dict.fromkeys(filter(None, ys))),
        split_by=arguments.series_column or "",
    )


def _read_name(trace: Mapping[str, Any], *keys: str) -> str:
    return next((value for key in keys if isinstance(value := trace.get(key), str)), "")


def _read_title(layout: Mapping[str, Any]) -> str:
    title = layout.get("title")
    return title if isinstance(title, str) else get_text(get_object(dict(layout), "title"), "text")


def _build_plotly(data: ChartData, table: Table, arguments: PlotArguments) -> JsonObject:
    plotly = build_plotly(data)
    if arguments.traces:
        traces = [_fill_trace(trace, table) for trace in arguments.traces]
        plotly["data"] = traces
        plotly["layout"]["showlegend"] = len(traces) > 1
    if arguments.layout:
        layout = cast("JsonObject", clean_part(arguments.layout))
        plotly["layout"] = merge_layout(plotly["layout"], layout)
    return plotly


_ARRAYS = ("x", "y", "z", "labels", "values", "text")


def _fill_trace(trace: Mapping[str, Any], table: Table) -> JsonObject:
    """Return a trace with column names replaced by the columns' values."""
    check_trace(trace)
    filled = cast("JsonObject", clean_part(dict(trace)))
    for key in _ARRAYS:
        if isinstance(name := trace.get(key), str):
            filled[key] = _list_values(name, table)
    return filled


def _list_values(name: str, table: Table) -> Sequence[Any]:
    position = list(table.columns).index(find_column(name, table.columns))
    return [to_plain(row[position]) for row in table.rows]
