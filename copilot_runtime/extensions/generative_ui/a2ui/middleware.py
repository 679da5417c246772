"""Draw surfaces that an agent writes, in the arguments of a tool or in results of any tool."""

from asyncio import CancelledError
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar

from copilot_runtime.api.agent import Agent, Middleware
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionResult,
    ActionExecutionStart,
    Activity,
    Events,
    RunFinished,
)
from copilot_runtime.api.run_input import CURRENT_RUN, RunInput
from copilot_runtime.extensions.generative_ui.a2ui.clicks import (
    ClickLog,
    ReadRuns,
    describe_place,
    read_click,
)
from copilot_runtime.extensions.generative_ui.a2ui.input import prepare_input
from copilot_runtime.extensions.generative_ui.a2ui.scope import draws_surfaces
from copilot_runtime.extensions.generative_ui.a2ui.tracker import SurfaceTracker
from copilot_runtime.extensions.generative_ui.options import A2ui
from copilot_runtime.telemetry import Span, semconv

T = TypeVar("T")


class A2uiMiddleware(Middleware):
    """Wraps agents so that their surfaces are drawn.

    Without options, it applies to frontends that declare a catalog.
    """

    def __init__(self, options: A2ui | None, read_runs: ReadRuns | None = None) -> None:
        self.options = options
        self.clicks = ClickLog(read_runs)

    def mark(self, run: RunInput) -> RunInput:
        """Return a run marked with its click, which a later request may bring to another process.

        Raises the errors of `read_click`.
        """
        if not draws_surfaces(run, self.options):
            return run
        click = describe_place(run)
        return replace(run, click=click) if click else run

    def wrap(self, agent: Agent, run: RunInput) -> Agent:
        """Return the agent with surfaces, or the agent itself if A2UI does not apply.

        Raises the errors of `read_click`, before the run starts.
        """
        if not draws_surfaces(run, self.options):
            return agent
        read_click(run)
        return A2uiAgent(agent, self.options or A2ui(), self.clicks)


class A2uiAgent(Agent):
    """An agent whose surfaces are drawn.

    A surface is placed before the event that changed it, or after the result that contains it.
    Calls of drawing tools get a result at the end of the run, unless the agent has sent one.
    """

    def __init__(self, agent: Agent, options: A2ui, clicks: ClickLog) -> None:
        self.agent = agent
        self.executes_actions = agent.executes_actions
        self.options = options
        self.clicks = clicks

    def check(self, run: RunInput) -> None:
        """Raise the errors of the agent that do not depend on a request."""
        self.agent.check(run)

    async def run(self, run: RunInput) -> Events:
        """Yield the events of the agent, and its surfaces."""
        prepared = await prepare_input(
            run, self.options, self.clicks, executes_actions=self.executes_actions
        )
        tracker = SurfaceTracker(
            self.options,
            tool_names=prepared.tool_names,
            catalog_id=prepared.catalog_id,
            catalog=prepared.catalog,
            shares_message=self.executes_actions,
        )
        last: RunFinished | None = None
        try:
            async with aclosing(self.agent.run(prepared.run)) as events:
                async for event in events:
                    match event:
                        case ActionExecutionArgs(call_id=call_id, delta=delta):
                            for surface in tracker.feed(call_id, delta):
                                yield surface
                            yield event
                        case ActionExecutionStart():
                            for surface in tracker.start(event):
                                yield surface
                            yield event
                        case ActionExecutionResult():
                            yield event
                            for surface in _trace_failures(run.span, tracker.answer(event)):
                                yield surface
                        case RunFinished():
                            last = event
                            break
                        case _:
                            yield event
            for answer in _trace_failures(run.span, tracker.finish()):
                yield answer
        except (CancelledError, GeneratorExit):
            if (slot := CURRENT_RUN.get(None)) is not None:
                slot.closing_events = [*slot.closing_events, *tracker.cut()]
            raise
        except Exception:
            for surface in _trace_failures(run.span, tracker.cut()):
                yield surface
            raise
        if last is not None:
            yield last


def _trace_failures(span: Span, events: Iterable[T]) -> Iterator[T]:
    """Yield the events unchanged, and record failed surfaces on the span of the run."""
    for event in events:
        if isinstance(event, Activity) and event.content.get("status") == "failed":
            span.add_event(semconv.EVENT_SURFACE_FAILED)
        yield event
