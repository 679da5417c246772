"""`copilot-runtime analyst ask`: ask a question, and print its answer as it streams."""

import asyncio
import csv
import os
import shutil
import sys
from base64 import b64encode
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import typer

from copilot_runtime.agui.outcome import AgentFailed
from copilot_runtime.api.events import Event, Interrupt, TextMessageContent, TextMessageEnd
from copilot_runtime.api.messages import ActionExecutionMessage, Message, TextMessage, new_id
from copilot_runtime.api.run_input import Resume, RunInput
from copilot_runtime.base.errors import Cancelled, ConfigurationFailed, CopilotError
from copilot_runtime.base.formatting import clean_text, format_column
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_list,
    as_object,
    as_objects,
    get_object,
    get_text,
)
from copilot_runtime.cli.agent_client import AgentClient
from copilot_runtime.cli.questions import answer_interrupt
from copilot_runtime.cli.screen import Screen
from copilot_runtime.cli.tables import format_table
from copilot_runtime.extensions.analyst.cli.client import AnalystClient, serve_here
from copilot_runtime.extensions.analyst.view import CHART, DOWNLOAD, QUESTION, TABLE, Answer

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
        self._screen = Screen(base_url)
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
        for table in answer.list(TABLE):
            typer.echo(f"\n{draw_table(table)}")
        for chart in answer.list(CHART):
            self._print_chart(chart, png if chart is answer.find(CHART) else None)
        for download in answer.list(DOWNLOAD) if self._base_url else ():
            url = f"{self._base_url}/{_write_path(download)}"
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


def describe_answer(answer: Answer) -> JsonObject:
    """Return an answer as JSON, for programs."""
    return {
        "answer": answer.text.strip(),
        "trust": answer.trust or None,
        "lineage": [*answer.lineage],
        "tables": [*answer.list(TABLE)],
        "charts": [*answer.list(CHART)],
        "downloads": [*answer.list(DOWNLOAD)],
        "question": answer.find(QUESTION),
        "thoughts": [*answer.thoughts],
        "error": answer.error or None,
    }


def draw_table(table: JsonObject) -> str:
    """Render a table as text columns, with a last line that counts the rows left out."""
    names = [clean_text(get_text(one, "name")) for one in as_objects(table.get("columns"))]
    rows = [as_list(row) for row in as_list(table.get("rows"))]
    columns = [format_column(cells, _CELL) for cells in zip(*rows[:_ROWS], strict=True)]
    preview = [*zip(*columns, strict=True)]
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
    table = answer.find(TABLE)
    if table is None:
        return []
    head = [get_text(one, "name") for one in as_objects(table.get("columns"))]
    return [head, *(as_list(row) for row in as_list(table.get("rows")))]


_BLOCK = 4096
"""Maximum length of an image chunk in one command of kitty's protocol, in characters."""
_KITTY = ("xterm-kitty", "xterm-ghostty")
_ITERM = frozenset({"iTerm.app", "WezTerm", "mintty", "rio"})

PictureProtocol = Literal["iterm", "kitty"]


def find_protocol() -> PictureProtocol | None:
    """Return the inline image protocol of this terminal, or `None` if it supports none."""
    if not sys.stdout.isatty() or os.environ.get("TMUX"):
        return None
    if "KITTY_WINDOW_ID" in os.environ or os.environ.get("TERM") in _KITTY:
        return "kitty"
    if os.environ.get("TERM_PROGRAM") in _ITERM or os.environ.get("LC_TERMINAL") == "iTerm2":
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


_FAILED, _WAITING = 1, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOptions:
    """Options of a question and of the output of its answer."""

    url: str | None = None
    """URL of a server, or `None` to start a server in this process."""
    agent: str = "analyst"
    headers: Sequence[str] = ()
    config: Path | None = None
    data: Sequence[str] = ()
    png: Path | None = None
    is_approved: bool = False
    as_json: bool = False
    as_csv: bool = False

    @property
    def is_quiet(self) -> bool:
        """`True` if the output is machine-readable, so that progress is not printed."""
        return self.as_json or self.as_csv


def ask_question(question: str | None, options: AskOptions) -> int:
    """Ask a question, print the answer, and return the exit status.

    Raises `ConfigurationFailed` for an invalid question or option, and `NetworkError` for a server
    that cannot be reached.
    """
    text = sys.stdin.read() if question is None and not sys.stdin.isatty() else question or ""
    if not text.strip():
        raise ConfigurationFailed(
            "There is no question.",
            hint="Example: copilot-runtime analyst ask 'Which item costs most?' --data shop.csv",
        )
    if options.url and options.data:
        raise ConfigurationFailed("--data is for questions without a server, --url for those with.")
    try:
        return asyncio.run(_ask(text.strip(), options))
    except KeyboardInterrupt:
        typer.echo("\n(stopped)", err=True)
        return _FAILED


async def _ask(question: str, options: AskOptions) -> int:
    if options.url:
        return await _ask_server(question, options.url, options.agent, options)
    async with serve_here(options.config, options.data) as (url, agent):
        return await _ask_server(question, url, agent, options)


async def _ask_server(question: str, url: str, agent: str, options: AskOptions) -> int:
    async with aclosing(AgentClient(url, agent, options.headers)) as client:
        session = _Session(client, question, options)
        return await session.run()


class _Session:
    """A question to a server, with the user's replies to its follow-up questions."""

    def __init__(self, client: AgentClient, question: str, options: AskOptions) -> None:
        self._client = client
        self._options = options
        self._thread_id = str(uuid4())
        self._messages: list[Message] = [TextMessage(id=new_id(), role="user", content=question)]
        self._view = AnswerView(client.url.rstrip("/") if options.url else "")
        self._answer = Answer()

    async def run(self) -> int:
        answers: Sequence[Resume] = ()
        waiting = False
        try:
            while questions := await self._run_once(answers):
                self._messages += [_build_call(one) for one in questions if one.call_id]
                answers = [answer for one in questions if (answer := self._answer_one(one))]
                if waiting := not answers:
                    break
        except (AgentFailed, Cancelled) as error:
            self._answer.error = error.message
        await self._finish()
        if self._answer.error:
            if not self._options.as_json:
                typer.echo(self._answer.error, err=True)
            return _FAILED
        return _WAITING if waiting else 0

    async def _run_once(self, answers: Sequence[Resume]) -> Sequence[Interrupt]:
        run = RunInput(
            thread_id=self._thread_id,
            run_id=str(uuid4()),
            messages=[*self._messages],
            agent=self._client.agent,
            resume=answers,
        )
        questions: list[Interrupt] = []
        try:
            async with aclosing(self._client.run(run, {})) as events:
                async for event in events:
                    if isinstance(event, Interrupt):
                        questions.append(event)
                    self._answer.add(event)
                    if not self._options.is_quiet:
                        self._view.show(event, self._answer)
        except asyncio.CancelledError:
            await self._client.stop(self._thread_id)
            raise
        return questions

    def _answer_one(self, question: Interrupt) -> Resume | None:
        may_ask = sys.stdin.isatty() and not self._options.is_quiet
        return answer_interrupt(question, may_ask, is_approved=self._options.is_approved, plan={})

    async def _finish(self) -> None:
        answer, options = self._answer, self._options
        chart, download = answer.find(CHART), answer.find(DOWNLOAD)
        png: bytes | None = None
        if options.png and chart:
            png = await render_picture(chart)
            options.png.write_bytes(png)
            typer.echo(f"The chart is in {options.png}.", err=True)
        elif options.png:
            typer.echo("There is no chart in the answer.", err=True)
        if options.as_json:
            typer.echo(dumps(describe_answer(answer)).decode())
        elif options.as_csv and download:
            sys.stdout.buffer.write(await self._read_file(download))
            sys.stdout.flush()
        elif options.as_csv:
            csv.writer(sys.stdout, lineterminator="\n").writerows(list_csv_rows(answer))
        else:
            if png is None and chart and find_protocol():
                with suppress(CopilotError):  # a required package is missing
                    png = await render_picture(chart)
            self._view.finish(answer, png)
            if options.url is None:  # the links are only valid while this command runs
                for download in answer.list(DOWNLOAD):
                    content = await self._read_file(download)
                    path = _save_file(Path(get_text(download, "filename")).name, content)
                    typer.echo(f"\n{download.get('row_count'):,} rows are in {path}.")

    async def _read_file(self, download: JsonObject) -> bytes:
        async with aclosing(AnalystClient(self._client.url, self._options.headers)) as client:
            return await client.read(_write_path(download))


def _write_path(download: JsonObject) -> str:
    return f"analyst/downloads/{get_text(download, 'id')}"


def _build_call(question: Interrupt) -> ActionExecutionMessage:
    """Return the call that an approval question is about, for the resumed conversation."""
    about = as_object(question.metadata)
    return ActionExecutionMessage(
        id=question.call_id or "",
        name=get_text(about, "tool"),
        arguments=dumps(get_object(about, "arguments")).decode(),
    )


def _save_file(name: str, content: bytes) -> Path:
    """Write a file into this folder under an unused name."""
    path, number = Path(name), 2
    while True:
        try:
            with path.open("xb") as file:
                file.write(content)
            return path
        except FileExistsError:
            path = Path(name).with_stem(f"{Path(name).stem}_{number}")
            number += 1
