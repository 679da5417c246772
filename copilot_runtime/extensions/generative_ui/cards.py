"""Draw activities of our own agents as A2UI surfaces, if the frontend supports A2UI."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from importlib import import_module
from inspect import isawaitable

from copilot_runtime.api.agent import Agent, Middleware
from copilot_runtime.api.events import Activity, Events
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.jsonvalue import JsonObject, as_object
from copilot_runtime.extensions.generative_ui.a2ui.components import Surface
from copilot_runtime.extensions.generative_ui.a2ui.operations import OPERATIONS, SURFACE, Operation
from copilot_runtime.extensions.generative_ui.a2ui.scope import HAS_CARDS, draws_surfaces
from copilot_runtime.extensions.generative_ui.options import A2ui

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
