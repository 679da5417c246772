"""Cards of a plan (its tasks as a tree with states) and of the sources of an answer (links)."""

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from copilot_runtime.base.jsonvalue import JsonObject, as_object, as_objects, as_text
from copilot_runtime.extensions.generative_ui.a2ui.operations import Operation
from copilot_runtime.extensions.generative_ui.cards import Surface, escape_markdown

MOST_TASKS = 200
"""Tasks that a card shows, which a page draws at once."""

_SIGNS = {
    "finished": "✓",
    "failed": "✗",
    "stopped": "■",
    "running": "▸",
    "waiting": "?",
}


def draw_plan(surface: Surface, content: JsonObject) -> Sequence[Operation] | None:
    """Return the surface of an activity `plan`; None for one that is not of our planner."""
    progress = as_object(content.get("progress"))
    if "total" not in progress:
        return None
    title = escape_markdown(as_text(content.get("request"))) or "Plan"
    count = f"{progress.get('over', 0)} of {progress.get('total', 0)}"
    status = f"{as_text(content.get('status'))} · {count}"
    parts = [surface.text(title, "h4"), surface.text(status, "caption")]
    tasks = [*_list_tasks(content, 0)]
    parts += [surface.text(line) for line in tasks[:MOST_TASKS]]
    if len(tasks) > MOST_TASKS:
        parts.append(surface.text(f"and {len(tasks) - MOST_TASKS} more", "caption"))
    for question in as_objects(content.get("questions")):
        parts.append(surface.text(f"**{escape_markdown(as_text(question.get('text')))}**"))
    if reason := as_text(content.get("reason")):
        parts.append(surface.text(escape_markdown(reason), "caption"))
    return surface.build([surface.card(surface.column(parts))])


def _list_tasks(parent: JsonObject, depth: int) -> Iterator[str]:
    for task in as_objects(parent.get("tasks")):
        status = as_text(task.get("status"))
        # no-break spaces: Markdown drops others at the beginning of a line
        line = "\u00a0" * 4 * depth + f"{_SIGNS.get(status, '·')} {_name(task)}"
        if assistant := as_text(task.get("assistant")):
            line += f" ({escape_markdown(assistant)})"
        if status == "failed" and (reason := as_text(task.get("reason"))):
            line += f": {escape_markdown(reason)}"
        yield line
        yield from _list_tasks(task, depth + 1)


def _name(task: JsonObject) -> str:
    return escape_markdown(as_text(task.get("name")) or as_text(task.get("id")))


_MOST_SOURCES = 50


def draw_sources(surface: Surface, content: JsonObject) -> Sequence[Operation] | None:
    """Return the surface of an activity `sources`; sources without an address are texts.

    None for one that is not of our knowledge.
    """
    sources = as_objects(content.get("sources"))[:_MOST_SOURCES]
    if not sources or not all({"number", "title"} <= source.keys() for source in sources):
        return None
    lines = [_draw_source(surface, source) for source in sources]
    return surface.build(
        [surface.card(surface.column([surface.text("Sources", "caption"), *lines]))]
    )


def _draw_source(surface: Surface, source: JsonObject) -> str:
    title, url = as_text(source.get("title")), as_text(source.get("url"))
    name = escape_markdown(title or as_text(source.get("id")))
    label = f"{source.get('number')}\\. {name}"
    return surface.link(label, url) if _is_web_address(url) else surface.text(label)


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
