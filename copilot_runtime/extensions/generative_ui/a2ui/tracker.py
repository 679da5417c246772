"""Track the rendering calls of a run and the state of their surfaces."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from copilot_runtime.api.events import ActionExecutionResult, ActionExecutionStart, Activity
from copilot_runtime.api.messages import new_uuid
from copilot_runtime.base.jsonvalue import JsonObject, as_object, as_text, parse_text
from copilot_runtime.extensions.generative_ui.a2ui.clicks import CLICK_TOOL
from copilot_runtime.extensions.generative_ui.a2ui.operations import OPERATIONS
from copilot_runtime.extensions.generative_ui.a2ui.results import EXHAUSTED, draw_result
from copilot_runtime.extensions.generative_ui.a2ui.surfaces import Render, Surface
from copilot_runtime.extensions.generative_ui.options import A2ui

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

    def finish(self) -> Iterator[ActionExecutionResult | Activity]:
        """Yield, at the end of the agent's run, results for the calls without one.

        A surface that was not drawn becomes a failed one, and the result tells the model why.
        """
        for call_id, render in self._renders.items():
            error = render.error
            if error and not render.surface.is_painted and not render.surface.is_failed:
                yield render.surface.fail(error)
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
