"""Cards for the analyst's tables, charts, questions and confidence."""

import base64
import logging
from collections.abc import Sequence

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    JsonValue,
    as_list,
    as_object,
    as_objects,
    as_text,
)
from copilot_runtime.extensions.analyst.charts.image import ChartRenderer
from copilot_runtime.extensions.analyst.charts.terminal import format_number
from copilot_runtime.extensions.analyst.results import Chart
from copilot_runtime.extensions.generative_ui.a2ui.operations import Operation
from copilot_runtime.extensions.generative_ui.cards import Surface, escape_markdown

logger = logging.getLogger(__name__)

_MOST_ROWS = 20
_MOST_COLUMNS = 8
_MOST_PNG = 300_000
"""Maximum size of a chart's image, in bytes: it is stored in the thread."""


def draw_table(surface: Surface, content: JsonObject) -> Sequence[Operation]:
    """Return the surface of an activity `analyst-table`: its first rows and columns."""
    columns = as_objects(content.get("columns"))
    rows = [as_list(row) for row in as_list(content.get("rows"))]
    names = [str(column.get("name", "")) for column in columns[:_MOST_COLUMNS]]
    lines = [
        *_draw_title(surface, content),
        surface.row([surface.text(f"**{escape_markdown(name)}**") for name in names], _SPREAD),
        surface.divider(),
    ]
    for row in rows[:_MOST_ROWS]:
        cells = [surface.text(_write_cell(cell)) for cell in row[:_MOST_COLUMNS]]
        lines.append(surface.row(cells, _SPREAD))
    if len(rows) > _MOST_ROWS or len(columns) > _MOST_COLUMNS:
        more = f"{len(rows):,} rows, {len(columns)} columns in all"
        lines.append(surface.text(more, "caption"))
    return surface.build([surface.card(surface.column(lines))])


async def draw_chart(surface: Surface, content: JsonObject) -> Sequence[Operation] | None:
    """Return the surface of an activity `analyst-chart`; `None` if it cannot be drawn.

    Rendering takes about half a second of CPU time and runs in a thread.
    """
    title = as_text(content.get("title"))
    chart = Chart(
        id=as_text(content.get("id")),
        title=title,
        plotly=as_object(content.get("plotly")),
        vega_lite=as_object(content.get("vega_lite")),
    )
    try:
        image = await ChartRenderer().render_png(chart, scale=1.0)
    except (TimeoutError, CopilotError) as error:
        logger.warning("The chart %r is no card: %s", chart.id, error)
        return None
    if len(image) > _MOST_PNG:
        return None
    url = f"data:image/png;base64,{base64.b64encode(image).decode()}"
    return surface.build([surface.card(surface.column([surface.image(url, title or "Chart")]))])


def draw_question(surface: Surface, content: JsonObject) -> Sequence[Operation]:
    """Return the surface of an activity `analyst-question`; the user answers it in the chat."""
    options = [as_text(option) for option in as_list(content.get("options"))]
    parts = [
        surface.text(escape_markdown(as_text(content.get("question")))),
        *(surface.text(f"• {escape_markdown(option)}") for option in options if option),
    ]
    return surface.build([surface.card(surface.column(parts))])


def draw_answer(surface: Surface, content: JsonObject) -> Sequence[Operation]:
    """Return the surface of an activity `analyst-answer`: its confidence and the reasons."""
    parts = [surface.text(f"**{escape_markdown(as_text(content.get('trust')))}**")]
    for lineage in as_objects(content.get("lineage")):
        tables = ", ".join(map(as_text, as_list(lineage.get("tables"))))
        if tables:
            parts.append(surface.text(f"From {escape_markdown(tables)}", "caption"))
        filters = map(as_text, as_list(lineage.get("filters")))
        parts += [surface.text(escape_markdown(one), "caption") for one in filters]
    return surface.build([surface.card(surface.column(parts))])


_SPREAD = "spaceBetween"


def _draw_title(surface: Surface, content: JsonObject) -> Sequence[str]:
    title = as_text(content.get("title"))
    return [surface.text(escape_markdown(title), "h4")] if title else []


def _write_cell(value: JsonValue) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return escape_markdown(format_number(value))
    text = "" if value is None else str(value)
    return escape_markdown(text if len(text) <= 80 else text[:79] + "…")
