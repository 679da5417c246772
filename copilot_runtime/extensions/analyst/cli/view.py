"""The terminal output of `copilot-runtime analyst ask`: thoughts, text, tables and charts."""

import os
import shutil
import sys
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import typer

from copilot_runtime.api.events import Activity, Event, TextMessageContent, TextMessageEnd
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.formatting import clean_text
from copilot_runtime.base.jsonvalue import JsonObject, as_list, as_object, as_objects, get_text
from copilot_runtime.cli.screen import Screen
from copilot_runtime.cli.tables import format_table


@dataclass(slots=True)
class Answer:
    """The answer to a question, as frontends get it."""

    text: str = ""
    thoughts: list[JsonObject] = field(default_factory=list[JsonObject])
    charts: list[JsonObject] = field(default_factory=list[JsonObject])
    tables: list[JsonObject] = field(default_factory=list[JsonObject])
    downloads: list[JsonObject] = field(default_factory=list[JsonObject])
    trust: str = ""
    lineage: list[JsonObject] = field(default_factory=list[JsonObject])
    question: JsonObject = field(default_factory=dict[str, object])
    """The clarification question of the answer, or an empty value."""
    error: str = ""

    def add(self, event: Event) -> None:
        """Add the content of an event to the answer."""
        match event:
            case TextMessageContent(content=content):
                self.text += content
            case TextMessageEnd() if self.text and not self.text.endswith("\n\n"):
                self.text += "\n\n"
            case Activity(activity_type=kind, content=content) if kind.startswith("analyst-"):
                self._add_activity(kind.removeprefix("analyst-"), as_object(content))
            case _:
                pass

    def _add_activity(self, kind: str, content: JsonObject) -> None:
        match kind:
            case "thoughts":
                self.thoughts = [*as_objects(content.get("thoughts"))]
            case "chart":
                self.charts.append(content)
            case "table":
                self.tables.append(content)
            case "download":
                self.downloads.append(content)
            case "answer":
                self.trust = get_text(content, "trust")
                self.lineage = [*as_objects(content.get("lineage"))]
            case "question":
                self.question = content
            case _:
                pass

    def describe(self) -> JsonObject:
        """Return the answer as JSON, for programs."""
        return {
            "answer": self.text.strip(),
            "trust": self.trust or None,
            "lineage": self.lineage,
            "tables": self.tables,
            "charts": self.charts,
            "downloads": self.downloads,
            "question": self.question or None,
            "thoughts": self.thoughts,
            "error": self.error or None,
        }


_MARKS = {"tool_use": "→", "observation": "←", "error": "!", "success": "✓", "decision": "!"}
_ROWS = 30
"""Maximum number of table rows that a terminal shows."""
_CELL = 40
_BADGES = {
    "verified": "verified: computed from metrics that the operator defined",
    "derived": "derived: computed by the server's tools from the columns of the data",
    "free_sql": "free SQL: the model wrote it; read it before you rely on it",
}


class AnswerView:
    """Prints an answer as it streams: thoughts and text immediately, the rest at its end.

    Thoughts go to stderr, so that redirected output contains only the answer. Without `base_url`,
    no links to files are printed.
    """

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        self._screen = Screen()
        self._thoughts: set[str] = set()

    def show(self, event: Event, answer: Answer) -> None:
        """Print the content of an event."""
        for thought in answer.thoughts:
            if (id := get_text(thought, "id")) not in self._thoughts:
                self._thoughts.add(id)
                self._print_thought(thought)
        if isinstance(event, TextMessageContent | TextMessageEnd):
            self._screen.show(event)

    def finish(self, answer: Answer, png: bytes | None) -> None:
        """Print the tables, the charts and the provenance of the numbers."""
        self._screen.end_line()
        for table in answer.tables:
            typer.echo(f"\n{draw_table(table)}")
        for chart in answer.charts:
            self._print_chart(chart, png if chart is answer.charts[-1] else None)
        for download in answer.downloads if self._base_url else ():
            url = f"{self._base_url}/{get_text(download, 'url')}"
            typer.echo(f"\nDownload {clean_text(get_text(download, 'filename'))}: {url}")
        if answer.trust:
            names = dict.fromkeys(
                str(name) for one in answer.lineage for name in as_list(one.get("metrics"))
            )
            metrics = f" ({clean_text(', '.join(names))})" if names else ""
            typer.echo(f"\n[{_BADGES.get(answer.trust, answer.trust)}{metrics}]")
        for one in answer.lineage:
            for check in as_list(one.get("checks")):
                typer.echo(f"  ! {clean_text(str(check))}")
            typer.echo(f"  SQL: {clean_text(' '.join(get_text(one, 'sql').split()))}")
        if options := [clean_text(str(one)) for one in as_list(answer.question.get("options"))]:
            typer.echo(f"\nAsk again with one of: {', '.join(options)}")

    def _print_thought(self, thought: JsonObject) -> None:
        kind = get_text(thought, "type")
        tool = get_text(thought, "tool_name")
        mark = _MARKS.get(kind, "·")
        words = f"{tool}: " if tool else ""
        self._screen.end_line()
        text = f"  {mark} {clean_text(words + get_text(thought, 'content'))}"
        width = shutil.get_terminal_size((100, 24)).columns
        if sys.stderr.isatty():
            text = f"\x1b[2m{text[: width - 1]}\x1b[0m"
        typer.echo(text, err=True)

    def _print_chart(self, chart: JsonObject, png: bytes | None) -> None:
        typer.echo()
        protocol = find_protocol()
        if png and protocol:
            typer.echo(clean_text(get_text(chart, "title")))
            sys.stdout.write(encode_picture(png, protocol))
            sys.stdout.flush()
            return
        width = shutil.get_terminal_size((100, 24)).columns
        typer.echo(draw_text_chart(chart, width))


def draw_table(table: JsonObject) -> str:
    """Render a table as text columns, with a last line that counts the rows left out."""
    names = [clean_text(get_text(one, "name")) for one in as_objects(table.get("columns"))]
    rows = [as_list(row) for row in as_list(table.get("rows"))]
    preview = [[_format_cell(cell) for cell in row] for row in rows[:_ROWS]]
    lines = [format_table([names, ["-" * len(name) for name in names], *preview])]
    total = table.get("total_rows")
    if len(rows) > _ROWS or table.get("is_truncated"):
        count = total if isinstance(total, int) else f"at least {len(rows)}"
        lines.append(f"  {len(preview)} of {count} rows; --csv writes all that came.")
    return "\n".join(lines)


def draw_text_chart(chart: JsonObject, width: int) -> str:
    """Return a chart drawn with characters."""
    from copilot_runtime.extensions.analyst.charts.terminal import draw_chart

    return draw_chart(read_chart(chart), width)


async def render_picture(chart: JsonObject) -> bytes:
    """Return a chart as PNG. Raises `CopilotError` if a required package is missing."""
    from copilot_runtime.extensions.analyst.charts.image import ChartRenderer

    return await ChartRenderer().render_png(read_chart(chart))


async def try_picture(chart: JsonObject) -> bytes | None:
    """Return a chart as PNG, or `None` if a required package is missing."""
    try:
        return await render_picture(chart)
    except CopilotError:
        return None


def read_chart(chart: JsonObject) -> Any:
    """Return the chart in an event's content."""
    from copilot_runtime.extensions.analyst.results import Chart

    return Chart(
        id=get_text(chart, "id"),
        title=get_text(chart, "title"),
        plotly=dict(chart.get("plotly") or {}),
        vega_lite=dict(chart.get("vega_lite") or {}),
    )


def list_csv_rows(answer: Answer) -> Sequence[Sequence[Any]]:
    """Return the last table of an answer with its head; empty without a table."""
    if not answer.tables:
        return []
    table = answer.tables[-1]
    head = [get_text(one, "name") for one in as_objects(table.get("columns"))]
    return [head, *(as_list(row) for row in as_list(table.get("rows")))]


def _format_cell(cell: Any) -> str:
    if cell is None:
        return "NULL"
    if isinstance(cell, float):
        return f"{cell:,.4f}".rstrip("0").rstrip(".")
    text = clean_text(str(cell))
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"


_BLOCK = 4096
"""Maximum length of an image chunk in one command of kitty's protocol, in characters."""
_ITERM = frozenset({"iTerm.app", "WezTerm", "mintty", "rio"})

PictureProtocol = Literal["iterm", "kitty"]


def find_protocol(environment: Mapping[str, str] = os.environ) -> PictureProtocol | None:
    """Return the inline image protocol of this terminal, or `None` if it supports none."""
    if not sys.stdout.isatty() or environment.get("TMUX"):
        return None
    if environment.get("KITTY_WINDOW_ID") or environment.get("TERM") in (
        "xterm-kitty",
        "xterm-ghostty",
    ):
        return "kitty"
    if environment.get("TERM_PROGRAM") in _ITERM or environment.get("LC_TERMINAL") == "iTerm2":
        return "iterm"
    return None


def encode_picture(png: bytes, protocol: PictureProtocol) -> str:
    """Return the escape sequence that displays a PNG image."""
    text = b64encode(png).decode()
    if protocol == "iterm":
        return f"\x1b]1337;File=inline=1;size={len(png)}:{text}\x07\n"
    blocks = [text[at : at + _BLOCK] for at in range(0, len(text), _BLOCK)]
    commands: list[str] = []
    for number, block in enumerate(blocks):
        head = "a=T,f=100," if number == 0 else ""
        more = int(number < len(blocks) - 1)
        commands.append(f"\x1b_G{head}m={more};{block}\x1b\\")
    return "".join(commands) + "\n"
