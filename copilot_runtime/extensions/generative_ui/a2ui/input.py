"""Prepares what an agent gets in a run of a page that draws surfaces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from copilot_runtime.api.action import Action
from copilot_runtime.api.run_input import ContextItem, RunInput
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.generative_ui.a2ui.catalog import CATALOG_CONTEXT, find_catalog_id
from copilot_runtime.extensions.generative_ui.a2ui.clicks import ClickLog
from copilot_runtime.extensions.generative_ui.a2ui.recovery import SurfaceRecovery
from copilot_runtime.extensions.generative_ui.a2ui.render_tool import (
    RENDER_TOOL,
    build_guide,
    build_render_tool,
)
from copilot_runtime.extensions.generative_ui.a2ui.scope import CATALOG_AVAILABLE
from copilot_runtime.extensions.generative_ui.options import A2ui

INJECTION = "injectA2UITool"
"""The property that says to agents that the tool is offered: true, or its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class A2uiInput:
    """What an agent gets, and how its surfaces are drawn."""

    run: RunInput
    tool_names: frozenset[str]
    """The tools whose calls become surfaces."""
    catalog_id: str
    """The catalog of new surfaces; empty if neither the operator nor the page names one."""
    catalog: Mapping[str, Any] | None = None
    """What components are compared with: `{components: {name: JSON schema}}`."""


async def prepare_input(
    run: RunInput, options: A2ui, clicks: ClickLog, *, executes_actions: bool
) -> A2uiInput:
    """Return the run with its click, the operator's catalog, and the tool that draws.

    The tool is offered if the operator says so, or says nothing and the page has a catalog. An
    agent that `executes_actions` gets it as an action of the server, others as one of the page.
    Raises what `read_click` raises.
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
    """Return whether the tool is offered, or under which name."""
    if options.inject_tool is not None:
        return options.inject_tool
    return run.properties.get(CATALOG_AVAILABLE) is True


def _offer_tool(run: RunInput, tool: Action, injection: bool | str) -> RunInput:
    """Return a run with the tool and its guide in the place of others of these names."""
    guide = build_guide(tool.name)
    others = [item for item in run.context if item.description != guide.description]
    return replace(
        run,
        actions=[*(one for one in run.actions if one.name != tool.name), tool],
        context=[*others, guide],
        properties={**run.properties, INJECTION: injection},
    )


def _find_components(schema: Mapping[str, Any] | Sequence[Any] | None) -> Mapping[str, Any] | None:
    """Return a catalog that components can be compared with: the older form is none."""
    return schema if isinstance(schema, Mapping) and schema.get("components") else None


def _replace_catalog(
    context: Sequence[ContextItem], schema: Mapping[str, Any] | Sequence[Any] | None
) -> Sequence[ContextItem]:
    """Return a context with the operator's catalog, if it has components, and not the page's."""
    if not schema or (isinstance(schema, Mapping) and not schema.get("components")):
        return context
    others = [item for item in context if item.description != CATALOG_CONTEXT]
    return [*others, ContextItem(description=CATALOG_CONTEXT, value=dumps(schema).decode())]
