"""Charts as Vega-Lite specifications, and their images by vl-convert, without network or files."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

from copilot_runtime.base.concurrency import ThreadPool
from copilot_runtime.base.errors import CopilotError, LimitExceeded
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonList, JsonObject, JsonValue, as_object
from copilot_runtime.extensions.analyst.charts.data import ChartData, list_labels, order_labels
from copilot_runtime.extensions.analyst.charts.plotly import is_across
from copilot_runtime.extensions.analyst.charts.style import (
    NEUTRAL,
    PALETTE,
    THEMES,
    Theme,
    choose_number_format,
    choose_time_format,
    humanize,
    parse_time,
    write_title,
)
from copilot_runtime.extensions.analyst.results import Chart

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"

_MOST_DOTS = 60


def build_vega_lite(data: ChartData) -> JsonObject:
    """Return a chart as a Vega-Lite specification. Fields are `x`, `y`, `series` and `color`."""
    spec: JsonObject = {
        "$schema": SCHEMA,
        "width": "container",
        "height": 320,
        "autosize": {"type": "fit", "contains": "padding"},
        "data": {"values": _list_values(data)},
        "mark": _build_mark(data),
        "encoding": _build_encoding(data),
    }
    if data.title:
        spec["title"] = {"text": write_title(data.title), "anchor": "start"}
    return spec


def _list_values(data: ChartData) -> JsonList:
    if data.kind == "heatmap":
        one = data.series[0]
        cells = zip(one.x, one.y, data.z_values, strict=True)
        return [{"x": x, "y": y, "color": z} for x, y, z in cells]
    if data.kind == "histogram":
        return [{"x": x} for x in data.series[0].x]
    if data.kind == "pie":
        pairs = zip(data.series[0].x, data.series[0].y, strict=True)
        return [{"x": x, "y": y, "index": index} for index, (x, y) in enumerate(pairs)]
    to_x = _to_utc if data.x.is_time else _keep
    return [
        {"x": to_x(x), "y": y, "series": one.name}
        for one in data.series
        for x, y in zip(one.x, one.y, strict=True)
    ]


def _keep(value: JsonValue) -> JsonValue:
    return value


def _to_utc(value: JsonValue) -> JsonValue:
    """Return a time that JavaScript parses the same everywhere: without a zone, it is UTC."""
    time = parse_time(value)
    if time is None:
        return value
    return time.isoformat() + ("Z" if time.tzinfo is None else "")


def _build_mark(data: ChartData) -> JsonObject:
    match data.kind:
        case "bar":
            return {"type": "bar", "cornerRadiusEnd": 3, "tooltip": True}
        case "scatter":
            return {"type": "point", "filled": True, "size": 50, "opacity": 0.75, "tooltip": True}
        case "pie":
            return {"type": "arc", "tooltip": True, "stroke": "white", "strokeWidth": 1}
        case "histogram":
            return {"type": "bar", "tooltip": True, "binSpacing": 1}
        case "heatmap":
            return {"type": "rect", "tooltip": True}
        case "box":
            rule: JsonObject = {"color": NEUTRAL}
            return {"type": "boxplot", "extent": 1.5, "size": 36, "rule": rule}
        case "area":
            return {"type": "area", "line": True, "opacity": 0.6, "tooltip": True}
        case "line":
            longest = max((len(one.x) for one in data.series), default=0)
            return {"type": "line", "point": longest <= _MOST_DOTS, "tooltip": True}


def _build_encoding(data: ChartData) -> JsonObject:
    if data.kind == "pie":
        labels = list(data.series[0].x)
        return {
            "theta": {"field": "y", "type": "quantitative", "stack": True},
            "order": {"field": "index", "type": "quantitative"},
            "color": {**_build_color(labels), "field": "x", "title": humanize(data.x.name)},
        }
    if data.kind == "histogram":
        title = humanize(data.x.name)
        bins: JsonObject = {"maxbins": 30}
        return {
            "x": {"field": "x", "type": "quantitative", "bin": bins, "title": title},
            "y": {"aggregate": "count", "type": "quantitative", "title": "Count"},
            "color": {"value": PALETTE[0]},
        }
    x, y = _build_x(data), _build_y(data)
    if data.kind == "heatmap":
        title = humanize(data.z.name) if data.z else ""
        scheme: JsonObject = {"scheme": "viridis"}
        color = {"field": "color", "type": "quantitative", "title": title, "scale": scheme}
        one = data.series[0]
        orders = order_labels(one.x), order_labels(one.y)
        return {
            "x": {**x, "sort": orders[0]},
            "y": {**y, "sort": orders[1]},
            "color": color,
        }
    if is_across(data):
        x, y = y, x
    encoding: JsonObject = {"x": x, "y": y}
    names: JsonList = [one.name for one in data.series]
    if len(names) > 1:
        title = humanize(data.split_by) if data.split_by else None
        encoding["color"] = {**_build_color(names), "field": "series", "title": title}
        if data.kind == "bar":
            encoding["yOffset" if is_across(data) else "xOffset"] = {
                "field": "series",
                "sort": names,
            }
        if data.kind == "box" and not data.x.is_numeric:
            encoding["xOffset"] = {"field": "series"}
    else:
        encoding["color"] = {"value": PALETTE[0]}
    return encoding


def _build_color(names: Sequence[JsonValue]) -> JsonObject:
    colors = [PALETTE[index % len(PALETTE)] for index in range(len(names))]
    scale: JsonObject = {"domain": list(names), "range": colors}
    return {"type": "nominal", "scale": scale, "sort": None}


def _build_x(data: ChartData) -> JsonObject:
    values = [value for one in data.series for value in one.x]
    base: JsonObject = {"field": "x", "title": humanize(data.x.name)}
    is_continuous = data.kind in ("line", "area", "scatter")
    if data.x.is_time:
        form = choose_time_format(values)
        if is_continuous:
            axis: JsonObject = {"labelOverlap": True, "grid": False}
            if len(list_labels(values)) <= 12:
                axis |= {"format": form, "values": [_to_utc(one) for one in list_labels(values)]}
            return {**base, "type": "temporal", "scale": {"type": "utc"}, "axis": axis}
        label = f"utcFormat(toDate(datum.value), '{form}')"
        axis = {"labelExpr": label, "labelAngle": 0, "labelOverlap": True, "grid": False}
        return {**base, "type": "ordinal", "sort": None, "axis": axis}
    labels = list_labels(values)
    if data.x.is_numeric and is_continuous:
        axis = {"format": choose_number_format(values, data.x.name)}
        return {**base, "type": "quantitative", "scale": {"zero": False}, "axis": axis}
    return {**base, "type": "ordinal", "sort": labels, "axis": _build_label_axis(values, data)}


def _build_label_axis(values: Sequence[JsonValue], data: ChartData) -> JsonObject:
    labels = list_labels(values)
    axis: JsonObject = {"labelLimit": 180, "grid": False}
    if is_across(data):
        return axis
    room = WIDTH / max(len(labels), 1) / 8
    longest = max((len(str(label)) for label in labels), default=0)
    return {**axis, "labelAngle": 0 if longest <= room else -40, "labelOverlap": longest <= 2}


def _build_y(data: ChartData) -> JsonObject:
    base: JsonObject = {"field": "y", "title": humanize(data.y_title) or None}
    if data.kind == "heatmap":
        return {**base, "type": "ordinal"}
    values = [value for one in data.series for value in one.y]
    axis: JsonObject = {"format": choose_number_format(values, data.y_title)}
    encoding: dict[str, Any] = {**base, "type": "quantitative", "axis": axis}
    if data.kind in ("bar", "area"):
        encoding["stack"] = "zero" if data.kind == "area" and data.split_by else None
    else:
        encoding["scale"] = {"zero": False}
    return encoding


MAX_SPEC = 4_000_000
"""Maximum length of a chart specification, in characters."""

WIDTH = 480
"""Width of an image before scaling, in pixels: small, so that a phone shows readable letters."""

SECONDS = 60.0
"""Time limit for one image, in seconds; the first one also starts the engine."""

ThemeName = Literal["light", "dark"]

_FONT = "Inter, Helvetica, Arial, Liberation Sans, sans-serif"
"""A font that vl-convert includes on every platform."""

T = TypeVar("T")

_NO_URLS: list[str] = []
"""The base URLs that a chart may load from: none."""


class ImageFailed(CopilotError):
    """A chart could not be drawn."""

    code = "IMAGE_FAILED"
    status_code = 500


class ChartRenderer:
    """Renders charts in its own threads: rendering takes about half a second of CPU time."""

    def __init__(self) -> None:
        self._pool = ThreadPool(1, "chart")

    async def render_png(
        self,
        chart: Chart,
        *,
        theme: ThemeName = "light",
        scale: float = 2.5,
    ) -> bytes:
        """Return a PNG. Raises `ImageFailed`, or `LimitExceeded` for a huge chart."""
        spec = prepare_image(chart, theme)
        return await self._run(partial(_draw_png, spec, min(max(scale, 0.5), 3.0)))

    async def render_svg(self, chart: Chart, *, theme: ThemeName = "light") -> str:
        """Return an SVG. Raises `ImageFailed`, or `LimitExceeded` for a huge chart."""
        return await self._run(partial(_draw_svg, prepare_image(chart, theme)))

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(SECONDS):
                return await self._pool.run(work)
        except TimeoutError:
            raise ImageFailed("The chart took too long to draw.") from None
        except ValueError as error:
            raise ImageFailed("The chart could not be drawn.") from error


def prepare_image(chart: Chart, theme: ThemeName) -> str:
    """Return a Vega-Lite specification for an image: with size and colours, without URLs."""
    look = THEMES[theme]
    spec: JsonObject = dict(chart.vega_lite)
    spec["data"] = {"values": as_object(spec.get("data")).get("values", [])}
    if as_object(spec.get("mark")).get("type") == "arc":
        spec["mark"] = {**as_object(spec["mark"]), "stroke": look.background}
    encoding = as_object(spec.get("encoding"))
    if "color" in encoding:
        spec["encoding"] = {**encoding, "color": _paint(as_object(encoding["color"]), look)}
    spec |= {
        "width": WIDTH,
        "height": 260,
        "autosize": {"type": "fit-x", "contains": "padding"},  # a legend adds to the height
        "background": look.background,
        "padding": 8,
        "config": {
            "font": _FONT,
            "title": {"color": look.text, "fontSize": 18, "fontWeight": "bold", "offset": 16},
            "axis": {
                "labelColor": look.muted,
                "titleColor": look.text,
                "gridColor": look.grid,
                "domainColor": look.grid,
                "tickColor": look.grid,
                "labelFontSize": 15,
                "titleFontSize": 15,
                "titleFontWeight": "normal",
                "titlePadding": 10,
            },
            "legend": {
                "labelColor": look.muted,
                "titleColor": look.text,
                "labelFontSize": 15,
                "titleFontSize": 15,
                "orient": "bottom",
                "columns": 3,
                "offset": 8,
            },
            "view": {"stroke": None},
            "line": {"strokeWidth": 2.5},
        },
    }
    text = dumps(spec).decode()
    if len(text) > MAX_SPEC:
        raise LimitExceeded("The chart has too many points for an image.")
    return text


def _paint(color: JsonObject, look: Theme) -> JsonObject:
    """Return an encoding of colours in which those of `PALETTE` are those of a theme."""
    if "value" in color:
        return {"value": look.series[0]}
    scale = as_object(color.get("scale"))
    if isinstance(colors := scale.get("range"), list):
        series = [look.series[index % len(look.series)] for index in range(len(colors))]
        return {**color, "scale": {**scale, "range": series}}
    return color


def _draw_png(spec: str, scale: float) -> bytes:
    import vl_convert

    return vl_convert.vegalite_to_png(spec, scale=scale, allowed_base_urls=_NO_URLS)


def _draw_svg(spec: str) -> str:
    import vl_convert

    return vl_convert.vegalite_to_svg(spec, allowed_base_urls=_NO_URLS)
