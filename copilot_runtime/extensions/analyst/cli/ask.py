"""`copilot-runtime analyst ask`: ask a question and stream its answer."""

import asyncio
import csv
import sys
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import typer

from copilot_runtime.agui.outcome import AgentFailed
from copilot_runtime.api.events import Interrupt
from copilot_runtime.api.messages import ActionExecutionMessage, Message, TextMessage, new_id
from copilot_runtime.api.run_input import Resume, RunInput
from copilot_runtime.base.errors import Cancelled, ConfigurationFailed
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject, as_object, get_object, get_text
from copilot_runtime.cli.agent_client import AgentClient
from copilot_runtime.cli.questions import answer_interrupt
from copilot_runtime.extensions.analyst.cli.client import AnalystClient, serve_here
from copilot_runtime.extensions.analyst.cli.view import (
    Answer,
    AnswerView,
    find_protocol,
    list_csv_rows,
    render_picture,
    try_picture,
)

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
            hint="As in: copilot-runtime analyst ask 'What is the average price?' --data shop.csv",
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
        png: bytes | None = None
        if options.png and answer.charts:
            png = await render_picture(answer.charts[-1])
            options.png.write_bytes(png)
            typer.echo(f"The chart is in {options.png}.", err=True)
        elif options.png:
            typer.echo("There is no chart in the answer.", err=True)
        if options.as_json:
            typer.echo(dumps(answer.describe()).decode())
        elif options.as_csv and answer.downloads:
            sys.stdout.buffer.write(await self._read_file(answer.downloads[-1]))
            sys.stdout.flush()
        elif options.as_csv:
            csv.writer(sys.stdout, lineterminator="\n").writerows(list_csv_rows(answer))
        else:
            if png is None and answer.charts and find_protocol():
                png = await try_picture(answer.charts[-1])
            self._view.finish(answer, png)
            if options.url is None:  # the links are only valid while this command runs
                for download in answer.downloads:
                    content = await self._read_file(download)
                    path = _save_file(Path(get_text(download, "filename")).name, content)
                    typer.echo(f"\n{download.get('row_count'):,} rows are in {path}.")

    async def _read_file(self, download: JsonObject) -> bytes:
        async with aclosing(AnalystClient(self._client.url, self._options.headers)) as client:
            return await client.read(get_text(download, "url"))


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
