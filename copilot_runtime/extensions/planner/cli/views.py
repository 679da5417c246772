"""Views of a running plan: a live tree in a terminal, and otherwise lines of text or JSON."""

import asyncio
import shutil
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from time import monotonic, time
from typing import Any

import typer

from copilot_runtime.api.events import Event, TextMessageContent, TextMessageEnd
from copilot_runtime.base.formatting import clean_text
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject, as_list, as_objects, get_text
from copilot_runtime.cli.questions import print_context
from copilot_runtime.cli.screen import Screen
from copilot_runtime.extensions.planner.cli.tree import (
    describe_cost,
    describe_note,
    describe_totals,
    draw_tree,
    walk_tasks,
)

_TICK = 0.25
"""Seconds between redraws for durations."""

_CHANGES = ("status", "assistant", "evaluation", "rounds", "reason")
"""The fields of a task whose changes are printed."""


class PlanView:
    """Prints a plan while it runs, and the texts of its run line by line."""

    def __init__(self, url: str = "") -> None:
        self._screen = Screen(url)

    def show(self, plan: JsonObject) -> None:
        """Print the changes in the JSON of a plan since the last call."""
        raise NotImplementedError

    def print_event(self, event: Event) -> None:
        """Print any other event of a run, such as a chunk of text."""
        self._screen.show(event)

    def print_text(self, text: str) -> None:
        """Print a whole text, such as the output."""
        self._screen.print_text(text)

    def refresh(self) -> None:
        """Redraw values that change with time, such as durations."""

    def pause(self) -> None:
        """Finish the current output, because a prompt or other output follows."""
        self._screen.end_line()


class TreeView(PlanView):
    """Draws a plan as a tree in a terminal, and redraws it in place."""

    def __init__(self, url: str = "") -> None:
        super().__init__(url)
        self._plan: JsonObject | None = None
        self._drawn = 0
        self._began_at = monotonic()
        self._is_ascii = "utf" not in (sys.stdout.encoding or "ascii").lower()

    def show(self, plan: JsonObject) -> None:
        if self._plan is None:
            self._began_at = monotonic()
        if plan == self._plan and not self._drawn:
            return  # it is on the screen already
        self._screen.end_line()
        self._plan = plan
        self._draw()

    def print_event(self, event: Event) -> None:
        if isinstance(event, TextMessageContent):
            self.pause()
        super().print_event(event)

    def refresh(self) -> None:
        if self._drawn:
            self._draw()

    def pause(self) -> None:
        if self._drawn:
            self._draw(is_last=True)
            self._drawn = 0
        super().pause()

    def _draw(self, *, is_last: bool = False) -> None:
        """Redraw the tree in place; the last time without a limit on its height."""
        assert self._plan is not None
        size = shutil.get_terminal_size((100, 24))
        lines = draw_tree(
            self._plan,
            _read_clock(self._plan, self._began_at),
            width=size.columns - 1,
            height=0 if is_last else size.lines - 1,
            color=True,
            ascii_only=self._is_ascii,
        )
        erase = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
        sys.stdout.write(erase + "".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        self._drawn = len(lines)


class LineView(PlanView):
    """Prints a line of text for each change, for files, pipes and logs."""

    def __init__(self, url: str = "") -> None:
        super().__init__(url)
        self._plan: JsonObject = {}
        self._began_at = monotonic()

    def show(self, plan: JsonObject) -> None:
        self._screen.end_line()
        if not self._plan:
            typer.echo(f"plan {get_text(plan, 'id')}: {clean_text(get_text(plan, 'request'))}")
        for task in find_changes(self._plan, plan):
            cells = describe_cost(task, 0.0)[: None if task.get("ended_at") else 1]
            cost = f" ({', '.join(filter(None, cells))})" if any(cells) else ""
            note = f": {text}" if (text := describe_note(task)) else ""
            name = clean_text(get_text(task, "name"))
            typer.echo(f"  {get_text(task, 'id')} {name}: {get_text(task, 'status')}{cost}{note}")
        status = get_text(plan, "status")
        if status != self._plan.get("status", "running"):
            totals = describe_totals(plan, _read_clock(plan, self._began_at))
            typer.echo(f"plan {status}  {totals}")
        self._plan = plan
        sys.stdout.flush()


class JsonView(PlanView):
    """Prints a line of JSON for each change and each text."""

    def __init__(self) -> None:
        super().__init__()
        self._plan: JsonObject = {}
        self._text: list[str] = []

    def show(self, plan: JsonObject) -> None:
        for task in find_changes(self._plan, plan):
            self._print("task", plan, {name: task[name] for name in task if name != "tasks"})
        for question in as_objects(plan.get("questions")):
            if question not in as_objects(self._plan.get("questions")):
                self._print("question", plan, question)
        if plan.get("status") != self._plan.get("status"):
            names = ("request", "status", "reason", "progress", "tokens", "dollars")
            self._print("plan", plan, {name: plan.get(name) for name in names})
        self._plan = plan

    def print_event(self, event: Event) -> None:
        match event:
            case TextMessageContent():
                self._text.append(event.content)
            case TextMessageEnd():
                self.print_text("".join(self._text))
                self._text.clear()
            case _:
                pass

    def print_text(self, text: str) -> None:
        self._print("text", self._plan, {"text": text})

    def _print(self, kind: str, plan: JsonObject, fields: Mapping[str, Any]) -> None:
        line = {"type": kind, "plan_id": plan.get("id"), **fields}
        typer.echo(dumps(line).decode())
        sys.stdout.flush()


def build_view(url: str, *, as_json: bool) -> PlanView:
    """Return the view for the standard output, of a plan of the server at a URL."""
    if as_json:
        return JsonView()
    return TreeView(url) if sys.stdout.isatty() else LineView(url)


@asynccontextmanager
async def refresh_often(view: PlanView) -> AsyncGenerator[None]:
    """Refresh a view periodically within a block."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(_TICK)
            view.refresh()

    ticker = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticker.cancel()


def print_plan(plan: JsonObject, url: str) -> None:
    """Print the state of a plan of the server at a URL, with its questions and its output."""
    encoding = (sys.stdout.encoding or "ascii").lower()
    lines = draw_tree(
        plan,
        time(),
        width=shutil.get_terminal_size((100, 24)).columns,
        color=sys.stdout.isatty(),
        ascii_only="utf" not in encoding,
    )
    typer.echo("\n".join(lines))
    for question in as_objects(plan.get("questions")):
        answers = "/".join(map(str, as_list(question.get("answers"))))
        text = clean_text(get_text(question, "text"))
        print_context(question)
        typer.echo(f"? {text} [{answers}]  question {question.get('id')}")
    for text in (get_text(plan, "reason"), get_text(plan, "output")):
        if text:
            Screen(url).print_text(text)


def find_changes(before: JsonObject, after: JsonObject) -> Iterator[JsonObject]:
    """Yield the tasks that are new or changed in one of `_CHANGES`."""
    earlier = {task.get("id"): task for task in walk_tasks(as_objects(before.get("tasks")))}
    for task in walk_tasks(as_objects(after.get("tasks"))):
        old = earlier.get(task.get("id"))
        if old is None or any(old.get(name) != task.get(name) for name in _CHANGES):
            yield task


def _read_clock(plan: JsonObject, began_at: float) -> float:
    """Return the server's time, estimated as the plan's creation time plus the time watched."""
    created = plan.get("created_at")
    return (created if isinstance(created, int | float) else 0.0) + monotonic() - began_at
