"""Images of charts: PNG and SVG by vl-convert, without a browser, network or files."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeVar

from copilot_runtime.base.concurrency import ThreadPool
from copilot_runtime.base.errors import CopilotError, LimitExceeded
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject, as_object
from copilot_runtime.extensions.analyst.charts.style import THEMES
from copilot_runtime.extensions.analyst.results import Chart

MAX_SPEC = 4_000_000
"""Maximum length of a chart specification, in characters."""

MAX_SIDE = 2_000
"""Maximum width and height of an image in pixels, before `scale`."""

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

    def __init__(self, threads: int = 1) -> None:
        self._pool = ThreadPool(threads, "chart")

    async def render_png(
        self,
        chart: Chart,
        *,
        theme: ThemeName = "light",
        width: int = 720,
        height: int = 400,
        scale: float = 2.0,
    ) -> bytes:
        """Return a PNG. Raises `ImageFailed`, or `LimitExceeded` for a huge chart."""
        spec = prepare_image(chart, theme, width, height)
        return await self._run(partial(_draw_png, spec, min(max(scale, 0.5), 3.0)))

    async def render_svg(
        self, chart: Chart, *, theme: ThemeName = "light", width: int = 720, height: int = 400
    ) -> str:
        """Return an SVG. Raises `ImageFailed`, or `LimitExceeded` for a huge chart."""
        return await self._run(partial(_draw_svg, prepare_image(chart, theme, width, height)))

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(SECONDS):
                return await self._pool.run(work)
        except TimeoutError:
            raise ImageFailed("The chart took too long to draw.") from None
        except ValueError as error:
            raise ImageFailed("The chart could not be drawn.") from error


def prepare_image(chart: Chart, theme: ThemeName, width: int, height: int) -> str:
    """Return a Vega-Lite specification for an image: with size and colours, without URLs."""
    look = THEMES[theme]
    spec: JsonObject = dict(chart.vega_lite)
    spec["data"] = {"values": as_object(spec.get("data")).get("values", [])}
    spec |= {
        "width": min(max(width, 100), MAX_SIDE),
        "height": min(max(height, 100), MAX_SIDE),
        "background": look.background,
        "padding": 16,
        "config": {
            "font": _FONT,
            "title": {"color": look.text, "fontSize": 17, "fontWeight": "bold", "offset": 14},
            "axis": {
                "labelColor": look.muted,
                "titleColor": look.text,
                "gridColor": look.grid,
                "domainColor": look.grid,
                "tickColor": look.grid,
                "labelFontSize": 12,
                "titleFontSize": 12,
                "titleFontWeight": "normal",
                "titlePadding": 10,
            },
            "legend": {
                "labelColor": look.muted,
                "titleColor": look.text,
                "labelFontSize": 12,
                "titleFontSize": 12,
                "orient": "right",
            },
            "view": {"stroke": None},
            "line": {"strokeWidth": 2.5},
        },
    }
    text = dumps(spec).decode()
    if len(text) > MAX_SPEC:
        raise LimitExceeded("The chart has too many points for an image.")
    return text


def _draw_png(spec: str, scale: float) -> bytes:
    import vl_convert

    return vl_convert.vegalite_to_png(spec, scale=scale, allowed_base_urls=_NO_URLS)


def _draw_svg(spec: str) -> str:
    import vl_convert

    return vl_convert.vegalite_to_svg(spec, allowed_base_urls=_NO_URLS)
