"""The sources of an answer as a card of links."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from copilot_runtime.base.jsonvalue import JsonObject, as_objects, as_text
from copilot_runtime.extensions.generative_ui.a2ui.components import Surface, escape_markdown
from copilot_runtime.extensions.generative_ui.a2ui.operations import Operation

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
