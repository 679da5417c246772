"""Charts as Plotly figures: `{"data": [...], "layout": {...}}`, validated by Plotly."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from copilot_runtime.base.jsonvalue import JsonObject, JsonValue
from copilot_runtime.extensions.analyst.charts.data import (
    ChartData,
    Series,
    list_labels,
    order_labels,
)
from copilot_runtime.extensions.analyst.charts.style import (
    FONT,
    GRID,
    NEUTRAL,
    PALETTE,
    choose_hover_format,
    choose_number_format,
    has_long_labels,
    humanize,
    remove_tags,
    write_title,
)
from copilot_runtime.extensions.analyst.tools.tool import ToolFailed

_TRANSPARENT = "rgba(0,0,0,0)"
_MOST_MARKERS = 60
_MAX_PROBLEM = 400
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def build_plotly(data: ChartData) -> JsonObject:
    """Return a chart as a Plotly figure."""
    match data.kind:
        case "pie":
            traces = [_build_pie(data)]
        case "heatmap":
            traces = [_build_heatmap(data)]
        case "histogram":
            traces = [_build_histogram(data)]
        case _:
            traces = [
                _build_trace(data, series, PALETTE[index % len(PALETTE)])
                for index, series in enumerate(data.series)
            ]
    return {"data": traces, "layout": _build_layout(data, traces)}


def validate_plotly(figure: JsonObject) -> None:
    """Validate a figure. Raises `ToolFailed` with Plotly's message, which suggests names."""
    from plotly.graph_objects import Figure  # pyright: ignore[reportMissingTypeStubs]

    try:
        Figure(figure)
    except (ValueError, TypeError) as error:
        text = " ".join(_ANSI.sub("", str(error)).split())
        raise ToolFailed(
            f"Plotly refuses the chart: {text[:_MAX_PROBLEM]}", hint="Correct it, and plot again."
        ) from error


def _build_trace(data: ChartData, series: Series, color: str) -> JsonObject:
    trace: JsonObject = {"name": series.name, "x": list(series.x), "y": list(series.y)}
    match data.kind:
        case "bar":
            trace |= {"type": "bar", "marker": {"color": color}}
            if is_across(data):
                trace |= {"orientation": "h", "x": list(series.y), "y": list(series.x)}
        case "scatter":
            marker = {"color": color, "size": 7, "opacity": 0.75}
            trace |= {"type": "scatter", "mode": "markers", "marker": marker}
        case "box":
            trace |= {"type": "box", "marker": {"color": color}, "boxpoints": "outliers"}
        case _:
            mode = "lines+markers" if len(series.x) <= _MOST_MARKERS else "lines"
            line = {"color": color, "width": 2.5}
            trace |= {"type": "scatter", "mode": mode, "line": line, "marker": {"size": 5}}
            if data.kind == "area":
                is_stacked = data.split_by is not None
                trace |= {"stackgroup": "one"} if is_stacked else {"fill": "tozeroy"}
    return trace


def is_across(data: ChartData) -> bool:
    """Return `True` if the bars are horizontal because their labels are long."""
    is_nominal = not (data.x.is_time or data.x.is_numeric)
    labels = list_labels(value for one in data.series for value in one.x)
    return data.kind == "bar" and is_nominal and has_long_labels(labels)


def _build_pie(data: ChartData) -> JsonObject:
    one = data.series[0]
    return {
        "type": "pie",
        "labels": list(one.x),
        "values": list(one.y),
        "sort": False,
        "direction": "clockwise",
        "textinfo": "percent",
        "marker": {"colors": list(PALETTE[: len(one.x)]), "line": {"color": "#ffffff", "width": 1}},
    }


def _build_histogram(data: ChartData) -> JsonObject:
    return {
        "type": "histogram",
        "name": data.x.name,
        "x": list(data.series[0].x),
        "nbinsx": 30,
        "marker": {"color": PALETTE[0], "line": {"color": _TRANSPARENT, "width": 1}},
    }


def _build_heatmap(data: ChartData) -> JsonObject:
    xs, ys, cells = list_cells(data)
    return {
        "type": "heatmap",
        "x": xs,
        "y": ys,
        "z": [[cells.get((x, y)) for x in xs] for y in ys],
        "colorscale": "Viridis",
        "colorbar": {"title": {"text": humanize(data.z.name) if data.z else ""}, "thickness": 12},
    }


def list_cells(
    data: ChartData,
) -> tuple[list[JsonValue], list[JsonValue], Mapping[tuple[JsonValue, JsonValue], JsonValue]]:
    """Return the columns, the rows and the cells of a heatmap."""
    one = data.series[0]
    xs = order_labels(one.x)
    ys = order_labels(one.y)
    pairs = zip(one.x, one.y, data.z_values, strict=True)
    return xs, ys, {(x, y): z for x, y, z in pairs}


def _build_layout(data: ChartData, traces: Sequence[JsonObject]) -> JsonObject:
    has_legend = len(traces) > 1
    top = 20 + 40 * bool(data.title) + 24 * has_legend
    layout: JsonObject = {
        "autosize": True,
        "margin": {"l": 56, "r": 20, "t": top, "b": 48},
        "paper_bgcolor": _TRANSPARENT,
        "plot_bgcolor": _TRANSPARENT,
        "font": {"family": FONT, "size": 12, "color": NEUTRAL},
        "colorway": list(PALETTE),
        "showlegend": has_legend or data.kind == "pie",
        "title": {
            "text": write_title(data.title),
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yanchor": "top",
            "pad": {"l": 16, "t": 16},
            "font": {"size": 16},
        },
    }
    if layout["showlegend"] and data.kind != "pie":
        layout["legend"] = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
    if data.kind != "pie":
        axes = [_build_x_axis(data), _build_y_axis(data)]
        layout["xaxis"], layout["yaxis"] = reversed(axes) if is_across(data) else axes
        if is_across(data):
            layout["yaxis"] |= {"autorange": "reversed"}
    if data.kind in ("line", "area"):
        layout["hovermode"] = "x unified"
    if data.kind == "bar":
        layout |= {"bargap": 0.25, "barmode": "group", "barcornerradius": 3}
    if data.kind == "box" and len(data.series) > 1:
        layout["boxmode"] = "group"
    return layout


def _build_axis(title: str) -> JsonObject:
    return {
        "title": {"text": humanize(title), "standoff": 12},
        "automargin": True,
        "showgrid": True,
        "gridcolor": GRID,
        "zeroline": False,
    }


def _build_x_axis(data: ChartData) -> JsonObject:
    axis = _build_axis(data.x.name)
    values = [value for one in data.series for value in one.x]
    if data.x.is_time:
        return {**axis, "type": "date", "showgrid": data.kind not in ("bar", "box")}
    if data.x.is_numeric:
        if data.kind in ("scatter", "histogram", "line", "area"):
            return {**axis, "tickformat": choose_number_format(values, data.x.name)}
        return {**axis, "showgrid": False}
    labels = list_labels(values)
    axis |= {"type": "category", "showgrid": data.kind == "scatter"}
    if len(data.series) > 1:
        axis |= {"categoryorder": "array", "categoryarray": labels}
    return axis


def _build_y_axis(data: ChartData) -> JsonObject:
    if data.kind == "histogram":
        return {**_build_axis("Count"), "tickformat": ",d"}
    axis = _build_axis(data.y_title)
    if data.kind == "heatmap":
        return {**axis, "showgrid": False, "autorange": "reversed"}
    values = [value for one in data.series for value in one.y]
    axis |= {
        "tickformat": choose_number_format(values, data.y_title),
        "hoverformat": choose_hover_format(values, data.y_title),
    }
    return {**axis, "rangemode": "tozero"} if data.kind in ("bar", "area") else axis


_DANGEROUS = frozenset(
    [
        "images",
        "template",
        "updatemenus",
        "sliders",
        "mapbox",
        "map",
        "geo",
        "source",
        "sources",
        "href",
        "uirevision",
    ]
)
"""Properties that can load external resources, react to clicks or hide content."""

_TRACES = frozenset(
    [
        "bar",
        "scatter",
        "scattergl",
        "pie",
        "histogram",
        "heatmap",
        "box",
        "violin",
        "funnel",
        "waterfall",
        "histogram2d",
    ]
)
_MAX_DEPTH = 12
_MAX_ITEMS = 5_000
_TAG = re.compile(r"</?(?!(?:b|i|br|sub|sup)\b)[a-z][^>]*>?", re.I)


def merge_layout(layout: JsonObject, more: Mapping[str, Any]) -> JsonObject:
    """Merge the model's layout into ours. A title may be a plain text."""
    merged = dict(layout)
    for key, value in more.items():
        own = merged.get(key)
        if key == "title" and isinstance(value, str):
            value = {"text": value}
        if isinstance(own, dict) and isinstance(value, Mapping):
            merged[key] = merge_layout(cast("JsonObject", own), cast("Mapping[str, Any]", value))
        else:
            merged[key] = value
    return merged


def clean_part(value: Any, depth: int = 0) -> Any:
    """Remove properties that could load, link or execute something from the model's layout."""
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, str):
        return remove_tags(_TAG, value)[:2_000]
    if isinstance(value, Mapping):
        return {
            str(key): clean_part(item, depth + 1)
            for key, item in cast("Mapping[Any, Any]", value).items()
            if str(key) not in _DANGEROUS
        }
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [clean_part(item, depth + 1) for item in items[:_MAX_ITEMS]]
    return value


def check_trace(trace: Mapping[str, Any]) -> None:
    """Raise `ToolFailed` for an unsupported trace type."""
    kind = trace.get("type", "scatter")
    if kind not in _TRACES:
        raise ToolFailed(
            f"Traces of the type {str(kind)[:40]!r} are not drawn here.",
            hint=f"Use one of: {', '.join(sorted(_TRACES))}.",
        )
