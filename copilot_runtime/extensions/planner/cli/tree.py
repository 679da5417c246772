"""A plan as a tree in plain text, for a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from copilot_runtime.base.formatting import (
    clean_text,
    count_words,
    fit_text,
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
"""What is shown first where there is no room for all; everything else comes last."""
_NARROWEST = 40
_LOWEST = 6


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the tree: cells beside each other, and a note in the rest of the line."""

    lead: str
    status: str
    name: str
    cells: Sequence[str]
    note: str


def walk_tasks(tasks: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """Yield tasks as a page gets them, each before those below it."""
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
    """Return a plan in lines: what was asked for, and each task with its state.

    Args:
        plan: The plan as a page gets it.
        now: The time of the server, for how long tasks have been running.
        width: Columns that a line may have; it has at least 40.
        height: Lines that there may be; of more, those that matter least are left out. 0: all.
        color: Whether to color states by the codes of terminals.
        ascii_only: Whether to do without other characters than those of ASCII.
    """
    width = max(_NARROWEST, width)
    rows = [*_build_rows(as_objects(plan.get("tasks")), "", now)]
    chosen = _choose(rows, max(_LOWEST, height) - 2) if 0 < height < len(rows) + 1 else rows
    names = max((_measure(row) for row in chosen), default=0)
    names = min(names, width // 2)
    sizes = [max((len(row.cells[at]) for row in chosen), default=0) for at in range(4)]
    lines = [_draw_head(plan, now, width, color=color)]
    for row in chosen:
        lines.append(_draw_row(row, names, sizes, width, now, color=color))
    if left_out := len(rows) - len(chosen):
        lines.append(f"… and {count_words(left_out, 'more task')}")
    if ascii_only:
        return [
            line.translate(_PLAIN_CHARACTERS).encode("ascii", "replace").decode() for line in lines
        ]
    return lines


def describe_totals(plan: JsonObject, now: float) -> str:
    """Return how far a plan is, how long it has been going on, and what it has cost."""
    progress = get_object(plan, "progress")
    tokens, dollars = as_count(plan.get("tokens")), _get_number(plan, "dollars")
    parts = [
        f"{as_count(progress.get('finished')) or 0}/{as_count(progress.get('total')) or 0} tasks",
        _format_time({"started_at": plan.get("created_at"), **plan}, now),
        count_words(tokens, "token") if tokens else "",
        format_dollars(dollars) if dollars else "",
    ]
    return "  ".join(part for part in parts if part)


def describe_cost(task: JsonObject, now: float) -> Sequence[str]:
    """Return who does a task, how long it took, its tokens, and what they cost; "" for unknown."""
    tokens, dollars = as_count(task.get("tokens")), _get_number(task, "dollars")
    return (
        clean_text(get_text(task, "assistant"))[:24],
        _format_time(task, now),
        count_words(tokens, "token") if tokens else "",
        format_dollars(dollars) if dollars else "",
    )


def describe_note(task: JsonObject) -> str:
    """Return what else is to be said of a task: why it is where it is, and what is missing."""
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
    """Return the rows that matter most, in their order. A task is as far as those below it."""
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
    """Return for how long something has been going on, or how long it took."""
    started, ended = _get_number(of, "started_at"), _get_number(of, "ended_at")
    if started is None:
        return ""
    return format_duration(max(0.0, (now if ended is None else ended) - started))


def _get_number(of: JsonObject, key: str) -> float | None:
    number = of.get(key)
    return float(number) if isinstance(number, int | float) else None
