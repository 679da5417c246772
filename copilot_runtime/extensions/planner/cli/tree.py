"""Draws a plan as a tree of plain text for the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from copilot_runtime.base.formatting import (
    clean_text,
    fit_text,
    format_count,
    format_dollars,
    format_duration,
)
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_count,
    as_objects,
    get_object,
    get_text,
)

_ICONS: Mapping[str, str] = {
    "pending": "○",
    "running": "◐",
    "waiting": "?",
    "finished": "✓",
    "failed": "✗",
    "skipped": "⊘",
    "stopped": "■",
}
_COLORS: Mapping[str, str] = {
    "pending": "\x1b[2m",
    "running": "\x1b[36m",
    "waiting": "\x1b[33m",
    "finished": "\x1b[32m",
    "failed": "\x1b[31m",
    "skipped": "\x1b[2m",
    "stopped": "\x1b[35m",
}
_PLAIN = "\x1b[0m"
_FRAMES = "◐◓◑◒"
_PLAIN_CHARACTERS = str.maketrans("○◐◓◑◒✓✗⊘■├└│─…µ→", "o****vx-#|`|-~u>")
_RANKS: Mapping[str, int] = {"waiting": 0, "running": 0, "failed": 0, "pending": 1}
"""Priorities of statuses if not all tasks fit; others come last."""
_MIN_WIDTH = 40
_MIN_HEIGHT = 6


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the tree: aligned cells, and a note in the rest of the line."""

    lead: str
    status: str
    name: str
    cells: Sequence[str]
    note: str


def walk_tasks(tasks: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """Yield the JSON of all tasks, each before its subtasks."""
    for task in tasks:
        yield task
        yield from walk_tasks(as_objects(task.get("tasks")))


def draw_tree(
    plan: JsonObject,
    now: float,
    *,
    width: int = 100,
    height: int = 0,
    color: bool = False,
    ascii_only: bool = False,
) -> Sequence[str]:
    """Return the lines of a plan: the request, and each task with its status.

    Args:
    plan: The JSON of the plan.
    now: The time of the server, for the duration of running tasks.
    width: Maximum columns; at least 40 are used.
    height: Maximum lines; the least important tasks are omitted. 0 for all.
    color: Use ANSI colors for statuses.
    ascii_only: Use only ASCII characters.
    """
    width = max(_MIN_WIDTH, width)
    rows = [*_build_rows(as_objects(plan.get("tasks")), "", now)]
    chosen = _choose(rows, max(_MIN_HEIGHT, height) - 2) if 0 < height < len(rows) + 1 else rows
    names = max((_measure(row) for row in chosen), default=0)
    names = min(names, width // 2)
    sizes = [max((len(row.cells[at]) for row in chosen), default=0) for at in range(4)]
    lines = [_draw_head(plan, now, width, color=color)]
    for row in chosen:
        lines.append(_draw_row(row, names, sizes, width, now, color=color))
    if left_out := len(rows) - len(chosen):
        lines.append(f"… and {format_count(left_out, 'more task')}")
    if ascii_only:
        return [
            line.translate(_PLAIN_CHARACTERS).encode("ascii", "replace").decode() for line in lines
        ]
    return lines


def describe_totals(plan: JsonObject, now: float) -> str:
    """Return the progress, duration, tokens and cost of a plan in one line."""
    progress = get_object(plan, "progress")
    tokens, dollars = as_count(plan.get("tokens")), _get_number(plan, "dollars")
    parts = [
        f"{as_count(progress.get('finished')) or 0}/{as_count(progress.get('total')) or 0} tasks",
        _format_time({"started_at": plan.get("created_at"), **plan}, now),
        format_count(tokens, "token") if tokens else "",
        format_dollars(dollars) if dollars else "",
    ]
    return "  ".join(part for part in parts if part)


def describe_cost(task: JsonObject, now: float) -> Sequence[str]:
    """Return the assistant, duration, tokens and cost of a task; unknown ones are empty."""
    tokens, dollars = as_count(task.get("tokens")), _get_number(task, "dollars")
    return (
        clean_text(get_text(task, "assistant"))[:24],
        _format_time(task, now),
        format_count(tokens, "token") if tokens else "",
        format_dollars(dollars) if dollars else "",
    )


def describe_note(task: JsonObject) -> str:
    """Return the note of a task: the reason of its outcome, its evaluation or dependencies."""
    evaluation = task.get("evaluation")
    parts = ["correction"] if task.get("is_correction") else []
    if reason := get_text(task, "reason"):
        parts.append(reason)
    elif isinstance(evaluation, dict):
        missing = get_text(evaluation, "missing")
        parts.append("checked" if evaluation.get("passed") else f"missing: {missing}")
    elif task.get("status") == "pending" and isinstance(names := task.get("depends_on"), list):
        parts.append(f"after {', '.join(map(str, names))}")
    return clean_text("; ".join(parts))


def _build_rows(tasks: Sequence[JsonObject], lead: str, now: float) -> Iterator[_Row]:
    for at, task in enumerate(tasks):
        is_last = at == len(tasks) - 1
        yield _Row(
            lead=f"{lead}{'└─' if is_last else '├─'} ",
            status=get_text(task, "status"),
            name=clean_text(get_text(task, "name")),
            cells=describe_cost(task, now),
            note=describe_note(task),
        )
        below = as_objects(task.get("tasks"))
        yield from _build_rows(below, f"{lead}{'   ' if is_last else '│  '}", now)


def _choose(rows: Sequence[_Row], count: int) -> Sequence[_Row]:
    """Return the most important rows, in their order."""
    order = sorted(range(len(rows)), key=lambda at: (_RANKS.get(rows[at].status, 2), at))
    return [rows[at] for at in sorted(order[:count])]


def _measure(row: _Row) -> int:
    return len(row.lead) + 2 + len(row.name)


def _draw_head(plan: JsonObject, now: float, width: int, *, color: bool) -> str:
    status, totals = get_text(plan, "status"), describe_totals(plan, now)
    room = max(10, width - len(totals) - 4)
    request = fit_text(clean_text(get_text(plan, "request")), room).rstrip()
    return f"{_draw_icon(status, now, color=color)} {request}  {totals}"


def _draw_row(
    row: _Row, names: int, sizes: Sequence[int], width: int, now: float, *, color: bool
) -> str:
    cells = [
        cell.ljust(size) if at == 0 else cell.rjust(size)
        for at, (cell, size) in enumerate(zip(row.cells, sizes, strict=True))
        if size
    ]
    name = fit_text(row.name, max(4, names - len(row.lead) - 2))
    text = "  ".join([name, *cells, row.note])
    text = fit_text(text, max(4, width - len(row.lead) - 2)).rstrip()
    return f"{row.lead}{_draw_icon(row.status, now, color=color)} {text}"


def _draw_icon(status: str, now: float, *, color: bool) -> str:
    icon = _ICONS.get(status, "·")
    if status == "running" and color:
        icon = _FRAMES[int(now * 4) % len(_FRAMES)]
    return f"{_COLORS.get(status, '')}{icon}{_PLAIN}" if color else icon


def _format_time(of: JsonObject, now: float) -> str:
    """Return the duration of a task or plan so far; empty if it has not started."""
    started, ended = _get_number(of, "started_at"), _get_number(of, "ended_at")
    if started is None:
        return ""
    return format_duration(max(0.0, (now if ended is None else ended) - started))


def _get_number(of: JsonObject, key: str) -> float | None:
    number = of.get(key)
    return float(number) if isinstance(number, int | float) else None
