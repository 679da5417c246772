"""Draw activities of our own agents as A2UI surfaces, from components of the basic catalog."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from importlib import import_module
from inspect import isawaitable
from typing import Any, Literal

from copilot_runtime.api.agent import Agent, Middleware
from copilot_runtime.api.events import Activity, Events
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.jsonvalue import JsonObject, as_object
from copilot_runtime.extensions.generative_ui.a2ui.catalog import HAS_CARDS, draws_surfaces
from copilot_runtime.extensions.generative_ui.a2ui.operations import (
    BASIC_CATALOG,
    OPERATIONS,
    SURFACE,
    Operation,
    create_surface,
    update_components,
)
from copilot_runtime.extensions.generative_ui.options import A2ui

Variant = Literal["h1", "h2", "h3", "h4", "h5", "caption", "body"]

COMPONENTS = frozenset({"Button", "Card", "Column", "Divider", "Image", "Row", "Text"})
"""The components that a `Surface` uses: any catalog that has them can draw it."""


class Surface:
    """A surface that is built component by component; each method returns the new component's id.

    At most `most` components are accepted, not counting the root: when `is_full` is `True`, further
    ones are dropped. Their id is empty, and `column` and `row` ignore it.
    """

    def __init__(self, surface_id: str, *, most: int = 2_000) -> None:
        self.id = surface_id
        self._most = most
        self._components: list[Mapping[str, Any]] = []

    @property
    def is_full(self) -> bool:
        return len(self._components) >= self._most

    def text(self, text: str, variant: Variant = "body") -> str:
        """Add a text. It is rendered as Markdown, so apply `escape_markdown` to user input."""
        return self._add("Text", text=text, variant=variant)

    def image(self, url: str, description: str) -> str:
        """Add an image from a URL, which may be a `data:` URL."""
        fields = {"url": url, "description": description, "fit": "contain"}
        return self._add("Image", **fields, variant="largeFeature")

    def divider(self) -> str:
        """Add a divider."""
        return self._add("Divider")

    def row(self, children: Sequence[str], justify: str = "start") -> str:
        """Arrange components horizontally."""
        present = [child for child in children if child]
        return self._add("Row", children=present, justify=justify, align="center")

    def column(self, children: Sequence[str]) -> str:
        """Arrange components vertically."""
        return self._add("Column", children=[child for child in children if child])

    def card(self, child: str) -> str:
        """Put a component into a card."""
        return self._add("Card", child=child) if child else ""

    def link(self, label: str, url: str) -> str:
        """Add a button that opens a URL."""
        call = {"call": "openUrl", "args": {"url": url}}
        child = self.text(label)
        if not child:
            return ""
        return self._add("Button", child=child, variant="borderless", action={"functionCall": call})

    def button(self, label: str, action: str, context: Mapping[str, Any]) -> str:
        """Add a button whose click sends an action of the given name to the agent."""
        child = self.text(label)
        if not child:
            return ""
        event = {"name": action, "context": dict(context)}
        return self._add("Button", child=child, action={"event": event})

    def build(
        self, children: Sequence[str], catalog_id: str = BASIC_CATALOG
    ) -> Sequence[Operation]:
        """Return the operations that draw the surface, with these components in a column."""
        present = [child for child in children if child]
        root = {"id": "root", "component": "Column", "children": present}
        return [
            create_surface(self.id, catalog_id),
            update_components(self.id, [root, *self._components]),
        ]

    def _add(self, component: str, **fields: Any) -> str:
        if self.is_full:
            return ""
        id = f"c{len(self._components) + 1}"
        self._components.append({"id": id, "component": component, **fields})
        return id


def escape_markdown(text: str) -> str:
    """Return a text escaped for Markdown, on one line."""
    flat = " ".join(text.split())
    return "".join(f"\\{char}" if char in _MARKUP else char for char in flat)


_MARKUP = frozenset("\\`*_{}[]<>()#+-!|~")


Operations = Sequence[Operation] | None
DrawCard = Callable[[Surface, JsonObject], Operations | Awaitable[Operations]]
"""Adds the content of an activity to a surface; returns its operations, or `None` to keep the
activity."""

CARDS: Mapping[str, str] = {
    "plan": "copilot_runtime.extensions.planner.cards:draw_plan",
    "sources": "copilot_runtime.extensions.planner.cards:draw_sources",
    "analyst-answer": "copilot_runtime.extensions.analyst.cards:draw_answer",
    "analyst-chart": "copilot_runtime.extensions.analyst.cards:draw_chart",
    "analyst-question": "copilot_runtime.extensions.analyst.cards:draw_question",
    "analyst-table": "copilot_runtime.extensions.analyst.cards:draw_table",
}
"""Activity type to the import string of its `DrawCard`, imported on first use."""


class CardMiddleware(Middleware):
    """Converts activities of our own agents into surfaces; other events pass through."""

    def __init__(self, options: A2ui | None) -> None:
        self.options = options

    def wrap(self, agent: Agent, run: RunInput) -> Agent:
        """Return the agent with cards, unless the frontend draws the activities itself."""
        if self.options is not None and not self.options.cards:
            return agent
        if run.properties.get(HAS_CARDS) is False:
            return agent
        return CardAgent(agent) if draws_surfaces(run, self.options) else agent


class CardAgent(Agent):
    """An agent whose activities of the types in `CARDS` become surfaces."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.executes_actions = agent.executes_actions

    async def run(self, run: RunInput) -> Events:
        """Yield the events of the agent."""
        async with aclosing(self.agent.run(run)) as events:
            async for event in events:
                if isinstance(event, Activity) and event.activity_type in CARDS:
                    yield await _draw_activity(event)
                else:
                    yield event


async def _draw_activity(activity: Activity) -> Activity:
    """Return an activity as a surface of the same message; unchanged if it cannot be drawn."""
    surface = Surface(activity.message_id)
    operations = _load_card(activity.activity_type)(surface, as_object(activity.content))
    if isawaitable(operations):
        operations = await operations
    if operations is None or surface.is_full:
        return activity
    return Activity(
        message_id=activity.message_id,
        activity_type=SURFACE,
        content={OPERATIONS: operations},
        replace=activity.replace,
    )


def _load_card(kind: str) -> DrawCard:
    module, _, name = CARDS[kind].partition(":")
    card: DrawCard = getattr(import_module(module), name)
    return card
