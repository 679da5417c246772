"""Stream the arguments of a tool call into the content of a sandboxed page."""

from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

from copilot_runtime.api.agent import Agent, Middleware
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    Activity,
    Event,
    Events,
    RunFinished,
)
from copilot_runtime.api.run_input import CURRENT_RUN, RunInput
from copilot_runtime.base.jsonstream import JsonPart, JsonReader
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.generative_ui.options import OpenGenerativeUi

TOOL = "generateSandboxedUi"
"""The tool with which models write pages; the frontend declares it and returns its result."""

ACTIVITY = "open-generative-ui"

_PATHS = (("*",), ("placeholderMessages", "*"), ("jsExpressions", "*"))

_TEXTS = ("css", "jsFunctions")
"""Arguments that are only used once they are complete."""

_LISTS = ("placeholderMessages", "jsExpressions")

_PIECES = 64
"""A chunk of HTML is sent once it is at least 1/64 of the HTML before it."""

MAX_SIZE = 2_000_000
"""Maximum size of the arguments of a page, in characters; the rest is not drawn."""

MAX_ITEMS = 1_000
"""Maximum number of placeholder messages, and of expressions, of a page; the rest is dropped."""


class SandboxedPage:
    """A page under construction.

    The start of its tool call is held back until there is content to draw, so that the browser
    shows the page at the position of the call.
    """

    def __init__(self, start: ActionExecutionStart) -> None:
        self.call_id = start.call_id
        self._held_back: list[Event] = [start]
        self._reader = JsonReader(_PATHS, lags=True)
        self._size = 0
        self._content: JsonObject = {}
        self._new_html: list[str] = []
        """HTML that has not been sent to the browser yet."""
        self._new_size = 0
        self._html_size = 0
        self._new_items: list[str] = []
        """Unsent items of the current list."""
        self._keys: set[str | int] = set()
        """Keys whose values have started."""
        self._is_repeated = False
        self._is_drawn = False

    def feed(self, event: ActionExecutionArgs) -> Iterator[Event]:
        """Yield the event of an arguments chunk, and the resulting page updates one by one."""
        changes = self._read(event.delta)
        if self._is_drawn:
            yield event
        else:
            self._held_back.append(event)
        for content in changes:
            if not self._is_drawn:
                self._is_drawn = True
                height = content.get("initialHeight")
                yield self._build({} if height is None else {"initialHeight": height})
                yield from self._release()
            if content.keys() - {"initialHeight"}:
                yield self._build(content)

    def finish(self) -> Iterator[Event]:
        """Yield the events before the end of the call: the rest of the page, if any."""
        if not self._is_drawn:
            yield from self._release()
            return
        for _ in self._add_html():
            pass
        yield self._build(self._content, is_generating=False)

    def _release(self) -> Iterator[Event]:
        yield from self._held_back
        self._held_back.clear()

    def _read(self, delta: str) -> Iterator[JsonObject]:
        """Parse a chunk of the arguments, and yield the resulting page contents."""
        self._size += len(delta)
        if self._size <= MAX_SIZE:
            for part in self._reader.feed(delta):
                yield from self._take(part)

    def _take(self, part: JsonPart) -> Iterator[JsonObject]:
        value = part.value
        if part.kind == "begin" and len(part.path) == 1:
            self._is_repeated = part.path[0] in self._keys
            self._keys.add(part.path[0])
        if self._is_repeated:  # for a duplicate key, only the first value is drawn
            return
        match part.path, part.kind:
            case ("initialHeight",), "end" if _is_number(value):
                yield self._set("initialHeight", value)
            case ("html",), "text":
                self._new_html.append(value)
                self._new_size += len(value)
                # a long page has fewer chunks, since each event contains all previous ones
                if self._new_size >= self._html_size // _PIECES:
                    yield from self._add_html()
            case ("html",), "end" if isinstance(value, str):
                yield from self._add_html()
                yield self._set("htmlComplete", True)
            case (str(name),), "end" if name in _TEXTS and isinstance(value, str):
                if name in self._content:
                    return
                yield self._set(name, value)
                yield self._set(f"{name}Complete", True)
            case (str(name),), "begin" if name in _LISTS and value == "array":
                yield self._set(name, [])
            case (str(name), int(at)), "end" if name in _LISTS and isinstance(value, str):
                if at < MAX_ITEMS:
                    yield from self._add_items(name, [value])
            case (str(name),), "end" if name in _LISTS and isinstance(value, list):
                yield from self._add_items(name, [], is_complete=True)
                if name == "jsExpressions":
                    yield self._set("jsExpressionsComplete", True)
            case _:
                pass

    def _set(self, key: str, value: Any) -> JsonObject:
        """Return the content with one more value."""
        self._content = {**self._content, key: value}
        return self._content

    def _add_html(self) -> Iterator[JsonObject]:
        """Yield the content with the new HTML."""
        if not self._new_html:
            return
        html = _as_list(self._content.get("html"))
        if not html:
            yield self._set("html", [])
        self._html_size += self._new_size
        piece = "".join(self._new_html)
        self._new_html, self._new_size = [], 0
        yield self._set("html", [*html, piece])

    def _add_items(
        self, name: str, items: list[str], *, is_complete: bool = False
    ) -> Iterator[JsonObject]:
        """Yield the content with new list items; for a long list, several at once."""
        new, shown = self._new_items, _as_list(self._content.get(name))
        new += items
        if new and (is_complete or len(new) >= len(shown) // _PIECES):
            self._new_items = []
            yield self._set(name, [*shown, *new])

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


class OpenGenerativeUiMiddleware(Middleware):
    """Wraps agents so that their pages are drawn."""

    def __init__(self, options: OpenGenerativeUi) -> None:
        self.options = options

    def wrap(self, agent: Agent, run: RunInput) -> Agent:
        """Return the wrapped agent, or the agent itself if the options exclude it."""
        agents = self.options.agents
        if not self.options.enabled or (agents is not None and run.agent_name not in agents):
            return agent
        return OpenGenerativeUiAgent(agent)


class OpenGenerativeUiAgent(Agent):
    """An agent whose `generateSandboxedUi` calls are drawn as pages.

    The frontend returns the results of these calls, as for any of its tools.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.executes_actions = agent.executes_actions

    def check(self, run: RunInput) -> None:
        """Raise the errors of the agent that do not depend on a request."""
        self.agent.check(run)

    async def run(self, run: RunInput) -> Events:
        """Yield the agent's events, with page updates before and between those of its calls."""
        pages: dict[str, SandboxedPage] = {}
        last: RunFinished | None = None
        try:
            async with aclosing(self.agent.run(run)) as events:
                async for event in events:
                    match event:
                        case ActionExecutionArgs(call_id=key) if key in pages:
                            for one in pages[key].feed(event):
                                yield one
                        case ActionExecutionStart(name=name) if name == TOOL:
                            pages[event.call_id] = SandboxedPage(event)
                        case ActionExecutionEnd(call_id=key) if key in pages:
                            for one in pages.pop(key).finish():
                                yield one
                            yield event
                        case RunFinished():
                            last = event
                            break
                        case _:
                            yield event
        except (CancelledError, GeneratorExit):
            if (slot := CURRENT_RUN.get(None)) is not None:
                rest = [event for page in pages.values() for event in page.finish()]
                slot.closing_events = [*slot.closing_events, *rest]
            raise
        except Exception:
            for page in pages.values():
                for one in page.finish():
                    yield one
            raise
        for page in pages.values():
            for one in page.finish():
                yield one
        if last is not None:
            yield last
