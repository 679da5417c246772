"""Draw surfaces that an agent writes, in the arguments of a tool or in results of any tool."""

import json
from asyncio import CancelledError
from collections.abc import Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeVar

from copilot_runtime.api.agent import Agent, Middleware
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionResult,
    ActionExecutionStart,
    Activity,
    Events,
    MessagesSnapshot,
    RunFinished,
)
from copilot_runtime.api.messages import new_uuid
from copilot_runtime.api.run_input import CURRENT_RUN, RunInput
from copilot_runtime.base.jsonvalue import JsonObject, as_object, as_text, parse_text
from copilot_runtime.extensions.generative_ui.a2ui.catalog import draws_surfaces
from copilot_runtime.extensions.generative_ui.a2ui.clicks import (
    CLICK_TOOL,
    ClickLog,
    ReadRuns,
    describe_place,
    read_click,
)
from copilot_runtime.extensions.generative_ui.a2ui.input import prepare_input
from copilot_runtime.extensions.generative_ui.a2ui.operations import OPERATIONS
from copilot_runtime.extensions.generative_ui.a2ui.surfaces import (
    EXHAUSTED,
    Render,
    Surface,
    draw_result,
)
from copilot_runtime.extensions.generative_ui.options import A2ui
from copilot_runtime.telemetry import Span, semconv

_STOPPED = "The answer was cut off."
_PARTLY_DRAWN = "The surface is drawn without what follows."
_NO_RETRY = "The surface could not be drawn."


class SurfaceTracker:
    """The surfaces of a run.

    A call of one of the tools in `tool_names` is drawn in the message of the enclosing open call,
    if there is one, otherwise in its own message. With `shares_message`, all attempts of an agent
    that repairs its surfaces within a run share one message.
    """

    def __init__(
        self,
        options: A2ui,
        *,
        tool_names: frozenset[str],
        catalog_id: str = "",
        catalog: Mapping[str, Any] | None = None,
        shares_message: bool = False,
    ) -> None:
        self._options = options
        self._tool_names = tool_names
        self._catalog_id = catalog_id
        self._catalog = catalog
        self._shares_message = shares_message
        self._outer = ""
        self._names: dict[str, str] = {}
        """Tool names of the rendering calls, by call identifier."""
        self._renders: dict[str, Render] = {}
        """Rendering calls without a result, by call identifier."""
        self._forgotten: set[str] = set()
        self._surfaces: dict[str, Surface] = {}
        """Surfaces by key, which is a call identifier."""
        self._rejected_key = ""
        self._streamed_ids: set[str] = set()
        """Identifiers of the surfaces that calls have drawn."""
        self._drawn_calls: set[str] = set()
        """Identifiers of these calls and their enclosing calls."""

    def start(self, event: ActionExecutionStart) -> Iterator[Activity]:
        """Yield the activities that precede the start of a call."""
        if event.name not in self._tool_names:
            if event.name != CLICK_TOOL:
                self._outer = event.call_id
            return
        key = self._outer or self._rejected_key or event.call_id
        surface = self._surfaces.get(key)
        if surface is None:
            surface = self._surfaces[key] = Surface(key, self._options)
        if (state := surface.begin_attempt()) is not None:
            yield state
        self._names[event.call_id] = event.name
        self._renders[event.call_id] = Render(
            surface, self._options, catalog_id=self._catalog_id, catalog=self._catalog
        )

    def feed(self, call_id: str, delta: str) -> Iterator[Activity]:
        """Yield the activities that precede a chunk of a call's arguments."""
        render = self._renders.get(call_id)
        if render is None:
            return
        yield from render.feed(delta)
        if render.is_painted:
            self._streamed_ids.add(render.surface_id)
            self._drawn_calls |= {call_id, render.surface.key}
            self._rejected_key = ""
        elif render.problems and self._shares_message and not self._outer:
            self._rejected_key = render.surface.key

    def answer(self, event: ActionExecutionResult) -> Iterator[Activity]:
        """Yield the activities that follow the result of a call."""
        key = event.call_id
        render = self._renders.pop(key, None)
        if key == self._outer:
            self._outer = ""
        surface = render.surface if render is not None else self._surfaces.get(key)
        if render is not None and render.error and self._shares_message and not self._outer:
            self._rejected_key = render.surface.key
        if EXHAUSTED in event.result:
            value = as_object(parse_text(parse_text(event.result)))
            if value.get("code") == EXHAUSTED:
                surface = surface or Surface(key, self._options)
                self._rejected_key = ""
                if not surface.is_painted:
                    error = as_text(value.get("error")) or "The surface could not be made."
                    yield surface.fail(error, value.get("attempts", []))
                return
        if OPERATIONS in event.result and key not in self._drawn_calls:
            place = surface.key if surface is not None else key
            for activity in draw_result(event, self._options, place, self._streamed_ids):
                if surface is not None:
                    surface.is_painted = True
                yield activity

    def forget(self, snapshot: MessagesSnapshot) -> None:
        """Note calls that a snapshot removes from the conversation: they need no result.

        A graph keeps the calls of its inner model only in its stream.
        """
        self._forgotten |= self._renders.keys() - {message.id for message in snapshot.messages}

    def finish(self) -> Iterator[ActionExecutionResult | Activity]:
        """Yield, at the end of the agent's run, results for the calls without one.

        A surface that was not drawn becomes a failed one, and the result tells the model why.
        """
        for call_id, render in self._renders.items():
            error = render.error
            if error and not render.surface.is_painted and not render.surface.is_failed:
                yield render.surface.fail(error)
            if call_id not in self._forgotten:
                yield ActionExecutionResult(
                    call_id=call_id,
                    name=self._names[call_id],
                    result=_write_outcome(render),
                    message_id=new_uuid(),
                )
        self._renders.clear()
        yield from self._fail_rest(_NO_RETRY)

    def cut(self, reason: str = _STOPPED) -> Iterator[Activity]:
        """Yield failed states for unfinished surfaces when the run fails or is stopped."""
        for render in self._renders.values():
            if not render.surface.is_painted and not render.surface.is_failed:
                yield render.surface.fail(render.error or reason)
        yield from self._fail_rest(reason)

    def _fail_rest(self, reason: str) -> Iterator[Activity]:
        """Yield failed states for surfaces that wait for another attempt."""
        for surface in self._surfaces.values():
            if not surface.is_painted and not surface.is_failed:
                yield surface.fail(f"{reason} {surface.rejection}".rstrip())


def _write_outcome(render: Render) -> str:
    """Return the result of a call for the model."""
    if render.is_painted and render.break_off:
        return _dump({"status": "incomplete", "error": f"{render.break_off} {_PARTLY_DRAWN}"})
    # one of several attempts has succeeded once the surface is drawn
    if not render.error or render.surface.is_painted:
        return _RENDERED
    errors = [dict(one._asdict()) for one in render.problems]
    return _dump(
        {"status": "failed", "error": render.error, **({"errors": errors} if errors else {})}
    )


def _dump(outcome: JsonObject) -> str:
    return json.dumps(outcome, ensure_ascii=False, separators=(",", ":"))


_RENDERED = '{"status":"rendered"}'


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
    """Wraps an agent, and adds the surfaces that it draws to its events.

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
                        case MessagesSnapshot():
                            tracker.forget(event)
                            yield event
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
