"""One page that a model writes: the arguments of its call become what a browser draws."""

from collections.abc import Iterator
from typing import Any

from copilot_runtime.events import ActionExecutionArgs, ActionExecutionStart, Activity, Event
from copilot_runtime.jsonstream import JsonPart, JsonReader
from copilot_runtime.jsonvalue import JsonObject

TOOL = "generateSandboxedUi"
"""The tool by which models write pages; the page of the application declares and answers it."""

ACTIVITY = "open-generative-ui"

_PATHS = (("*",), ("placeholderMessages", "*"), ("jsExpressions", "*"))

_TEXTS = ("css", "jsFunctions")
"""Arguments that count when they are complete."""

_LISTS = ("placeholderMessages", "jsExpressions")

_LEAST = 16
"""Characters of HTML that are worth an event."""

MAX_SIZE = 2_000_000
"""Characters of the arguments of one page; what follows is not drawn."""

MAX_ITEMS = 1_000
"""Placeholder messages, and expressions, of one page; what follows is left out."""


class SandboxedPage:
    """A page that grows.

    The beginning of its call is held back until there is something to draw, so that a browser
    shows the page where the call begins.
    """

    def __init__(self, start: ActionExecutionStart) -> None:
        self.call_id = start.call_id
        self._held_back: list[Event] = [start]
        self._reader = JsonReader(_PATHS)
        self._size = 0
        self._content: JsonObject = {}
        self._html: list[str] = []
        """The pieces that the browser has."""
        self._new_html: list[str] = []
        self._new_size = 0
        self._html_size = 0
        self._is_drawn = False

    def feed(self, event: ActionExecutionArgs) -> Iterator[Event]:
        """Yield a piece of the arguments, and what it changes of the page."""
        has_changed = self._read(event.delta)
        if not self._is_drawn and not has_changed:
            self._held_back.append(event)
            return
        if not self._is_drawn:
            yield self._draw_beginning()
        yield from self._release()
        yield event
        if has_changed and self._content.keys() - {"initialHeight"}:
            yield self._draw()

    def finish(self) -> Iterator[Event]:
        """Yield what comes before the end of the call: the rest of the page, if there is one."""
        if not self._is_drawn:
            yield from self._release()
            return
        self._add_html()
        yield self._draw(is_generating=False)

    def _release(self) -> Iterator[Event]:
        yield from self._held_back
        self._held_back.clear()

    def _read(self, delta: str) -> bool:
        """Read a piece of the arguments, and return whether there is more to draw."""
        self._size += len(delta)
        if self._size > MAX_SIZE:
            return False
        changes = [self._take(part) for part in self._reader.feed(delta)]
        return any(changes)

    def _take(self, part: JsonPart) -> bool:
        content, value = self._content, part.value
        match part.path, part.kind:
            case ("initialHeight",), "end" if _is_number(value):
                content["initialHeight"] = value
            case ("html",), "text":
                self._new_html.append(value)
                self._new_size += len(value)
                # a long page comes in fewer pieces: each event has the list of all of them
                if self._new_size < max(_LEAST, self._html_size // 32):
                    return False
                self._add_html()
            case ("html",), "end" if isinstance(value, str):
                self._add_html()
                content["htmlComplete"] = True
            case (str(name),), "end" if name in _TEXTS and isinstance(value, str):
                content[name], content[f"{name}Complete"] = value, True
            case (str(name),), "begin" if name in _LISTS and value == "array":
                content[name] = []
            case (str(name), int()), "end" if name in _LISTS and isinstance(value, str):
                items = _as_list(content.get(name))
                if len(items) == MAX_ITEMS:
                    return False
                content[name] = [*items, value]
            case ("jsExpressions",), "end" if isinstance(value, list):
                content["jsExpressionsComplete"] = True
            case _:
                return False
        return True

    def _add_html(self) -> None:
        if self._new_html:
            self._html = [*self._html, "".join(self._new_html)]
            self._html_size += self._new_size
            self._new_html, self._new_size = [], 0
        if self._html:
            self._content["html"] = list[Any](self._html)

    def _draw_beginning(self) -> Activity:
        """Return the page before anything is on it."""
        self._is_drawn = True
        height = self._content.get("initialHeight")
        return self._build({} if height is None else {"initialHeight": height})

    def _draw(self, *, is_generating: bool = True) -> Activity:
        return self._build(self._content, is_generating=is_generating)

    def _build(self, content: JsonObject, *, is_generating: bool = True) -> Activity:
        return Activity(
            message_id=f"{self.call_id}-activity",
            activity_type=ACTIVITY,
            content={**content, "generating": is_generating},
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
