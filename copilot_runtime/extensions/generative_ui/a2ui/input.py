"""Prepare an agent's input for a run whose frontend draws surfaces."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from copilot_runtime.api.action import Action, ActionContext, RunAction
from copilot_runtime.api.run_input import ContextItem, RunInput
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.generative_ui.a2ui.catalog import (
    CATALOG_AVAILABLE,
    CATALOG_CONTEXT,
    find_catalog_id,
)
from copilot_runtime.extensions.generative_ui.a2ui.clicks import ClickLog
from copilot_runtime.extensions.generative_ui.a2ui.operations import Problem, validate_components
from copilot_runtime.extensions.generative_ui.a2ui.surfaces import EXHAUSTED
from copilot_runtime.extensions.generative_ui.options import A2ui

INJECTION = "injectA2UITool"
"""The property that tells agents that the rendering tool is offered: `True`, or its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class A2uiInput:
    """The input of an agent, and how its surfaces are drawn."""

    run: RunInput
    tool_names: frozenset[str]
    """The tools whose calls become surfaces."""
    catalog_id: str
    """The catalog of new surfaces; empty if neither operator nor frontend names one."""
    catalog: Mapping[str, Any] | None = None
    """The catalog for validation, `{components: {name: JSON schema}}`, or `None`."""


async def prepare_input(
    run: RunInput, options: A2ui, clicks: ClickLog, *, executes_actions: bool
) -> A2uiInput:
    """Return the run with its click, the operator's catalog, and the rendering tool.

    The tool is offered if the operator enables it, or by default if the frontend has a catalog. An
    agent that `executes_actions` gets it as a server action, others as a frontend tool. Raises the
    errors of `read_click`.
    """
    await clicks.load(run)
    catalog_id = options.default_catalog_id or find_catalog_id(run.context)
    catalog = _find_components(options.schema)
    run = replace(
        run,
        messages=clicks.add_click(run),
        context=_replace_catalog(run.context, options.schema),
    )
    names = {*options.tool_names}
    if injection := _find_injection(run, options):
        name = injection if isinstance(injection, str) else RENDER_TOOL
        names.add(name)
        recovery = SurfaceRecovery(name, catalog, options)
        tool = build_render_tool(name, recovery.check_surface if executes_actions else None)
        run = _offer_tool(run, tool, injection)
    return A2uiInput(
        run=run,
        tool_names=frozenset(names),
        catalog_id=catalog_id or "",
        catalog=catalog,
    )


def _find_injection(run: RunInput, options: A2ui) -> bool | str:
    """Return `True` or the tool's name to offer the rendering tool, else a false value."""
    if options.inject_tool is not None:
        return options.inject_tool
    return run.properties.get(CATALOG_AVAILABLE) is True


def _offer_tool(run: RunInput, tool: Action, injection: bool | str) -> RunInput:
    """Return a run with the tool and its guide, replacing others of these names."""
    guide = build_guide(tool.name)
    others = [item for item in run.context if item.description != guide.description]
    return replace(
        run,
        actions=[*(one for one in run.actions if one.name != tool.name), tool],
        context=[*others, guide],
        properties={**run.properties, INJECTION: injection},
    )


def _find_components(schema: Mapping[str, Any] | Sequence[Any] | None) -> Mapping[str, Any] | None:
    """Return a catalog for validation, or `None`: lists, the older format, cannot be used."""
    return schema if isinstance(schema, Mapping) and schema.get("components") else None


def _replace_catalog(
    context: Sequence[ContextItem], schema: Mapping[str, Any] | Sequence[Any] | None
) -> Sequence[ContextItem]:
    """Return a context in which the operator's catalog, if any, replaces the frontend's."""
    if not schema or (isinstance(schema, Mapping) and not schema.get("components")):
        return context
    others = [item for item in context if item.description != CATALOG_CONTEXT]
    return [*others, ContextItem(description=CATALOG_CONTEXT, value=dumps(schema).decode())]


RENDERED: Mapping[str, str] = {"status": "rendered"}
"""The result of a call whose surface is drawn."""

logger = logging.getLogger(__name__)


class SurfaceRecovery:
    """Validates the surfaces of a run; the model gets the problems and tries again.

    After `recovery.max_attempts` invalid surfaces in a row, the model must answer in words.
    """

    def __init__(self, tool: str, catalog: Mapping[str, Any] | None, options: A2ui) -> None:
        self._tool = tool
        self._catalog = catalog
        self._max_bytes = options.max_bytes
        self._max_attempts = max(1, options.recovery.max_attempts)
        self._attempts: list[JsonObject] = []

    async def check_surface(
        self, arguments: Mapping[str, Any], context: ActionContext
    ) -> Mapping[str, Any]:
        """Return the result of a call, for the model."""
        problems = self._find_problems(arguments)
        if not problems:
            self._attempts.clear()
            return RENDERED
        errors = [dict(problem._asdict()) for problem in problems]
        attempt = min(len(self._attempts) + 1, self._max_attempts)
        if len(self._attempts) < self._max_attempts:
            self._attempts.append({"attempt": attempt, "ok": False, "errors": errors})
        logger.info(
            "A surface of %r cannot be drawn, attempt %d: %s", context.agent, attempt, problems[0]
        )
        if attempt < self._max_attempts:
            return {
                "status": "rejected",
                "attempt": attempt,
                "maxAttempts": self._max_attempts,
                "errors": errors,
                "hint": f"Nothing was drawn. Correct every error, and call {self._tool} again "
                "with the whole surface.",
            }
        return {
            "code": EXHAUSTED,
            "error": f"The surface could not be drawn in {attempt} attempts.",
            "attempts": [*self._attempts],
            "hint": f"Do not call {self._tool} again. Answer the person in words.",
        }

    def _find_problems(self, arguments: Mapping[str, Any]) -> Sequence[Problem]:
        """Return the reasons why a surface is not drawn."""
        if len(dumps(arguments)) > self._max_bytes:
            message = f"The surface has more than {self._max_bytes} bytes."
            return [Problem("too_large", "components", message)]
        problems: list[Problem] = []
        if not isinstance(surface_id := arguments.get("surfaceId"), str) or not surface_id:
            message = "The surface needs a surfaceId, which is a text."
            problems.append(Problem("missing_surface_id", "surfaceId", message))
        return [*problems, *validate_components(arguments.get("components"), self._catalog)]


RENDER_TOOL = "render_a2ui"
"""The default name of the rendering tool."""

_DESCRIPTION = (
    "Render a dynamic A2UI v0.9 surface with structured parameters. "
    "Follow the A2UI render tool usage guide provided in context."
)

_PARAMETERS = {
    "type": "object",
    "properties": {
        "surfaceId": {"type": "string", "description": "Unique surface identifier."},
        "components": {
            "type": "array",
            "description": "A2UI v0.9 component array (flat format). "
            'The root component must have id "root".',
            "items": {"type": "object"},
        },
        "data": {
            "type": "object",
            "description": "Initial data model for the surface. Written to the root path. "
            'Use for pre-filling form values (e.g. {"form": {"name": "Alice"}}) '
            "or providing data for components bound to data model paths.",
        },
    },
    "required": ["surfaceId", "components"],
}

_GUIDE = """\
`%(tool)s` draws an interactive surface in the chat: cards, lists, tables, forms. Call it when \
looking, comparing or filling in is easier than reading; answer in words otherwise. The person \
sees the surface grow while you write the call, so write the arguments in this order:

1. `surfaceId`: a short new name, such as "flight-results".
2. `components`: all components of the surface in ONE flat list. Never leave it out.
3. `data`: the values that components show by path. Leave it out if none does.

Which catalog is used is not yours to say: there is no argument for it.

Components
- Each has an `id` that no other has, and a `component`: a name from the component schema in this \
context. Other names cannot be drawn. All its properties stand beside these two.
- Exactly one has the id "root". Let it be a container such as Column, Row or Card.
- Components do not contain each other: they name each other by id. Several with \
`"children": ["a", "b"]`, one with `"child": "a"`. Every id that is named must be in the list, and \
none may lead back to itself.

Data
- A property is a value, or is read from `data`: `{"path": "/form/name"}`.
- One component for each item of a list: \
`"children": {"componentId": "card", "path": "/flights"}`. \
Inside of it, paths without a slash at the front belong to the item: `{"path": "price"}`.
- Inputs write back to their path. Give each input one of its own.

Buttons
- `"action": {"event": {"name": "book", "context": {"id": {"path": "id"}}}}`. When it is pressed, \
you get the name and the values as the result of `log_a2ui_event`. Never call that tool yourself.

Example
{"surfaceId": "flight-results", "components": [
 {"id": "root", "component": "Column", "children": ["title", "list"]},
 {"id": "title", "component": "Text", "text": "Flights to Oslo"},
 {"id": "list", "component": "Column", "children": {"componentId": "card", "path": "/flights"}},
 {"id": "card", "component": "Card", "child": "line"},
 {"id": "line", "component": "Row", "children": ["number", "book"]},
 {"id": "number", "component": "Text", "text": {"path": "number"}},
 {"id": "book", "component": "Button", "child": "label", \
"action": {"event": {"name": "book", "context": {"number": {"path": "number"}}}}},
 {"id": "label", "component": "Text", "text": "Book"}],
 "data": {"flights": [{"number": "SK 802"}, {"number": "DY 1103"}]}}

Use only facts and image addresses that you have. Afterwards say in a sentence what is shown, and \
do not repeat it in words. If the result lists errors, nothing was drawn: correct all of them and \
call `%(tool)s` again with the whole surface."""


def build_render_tool(name: str, run: RunAction | None = None) -> Action:
    """Return the rendering tool. With `run` it is executed here, otherwise by the frontend."""
    return Action(
        name=name, description=_DESCRIPTION, parameters=_PARAMETERS, run=run, is_drawing=True
    )


def build_guide(name: str) -> ContextItem:
    """Return the instructions for a model that has the tool under this name."""
    description = f"A2UI render tool usage guide \u2014 how to call {name} with valid arguments."
    return ContextItem(description=description, value=_GUIDE % {"tool": name})
