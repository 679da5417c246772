"""All pages of one runtime: the chat, and one for each thing that it has."""

from collections.abc import Sequence

from starlette.routing import BaseRoute

from copilot_runtime.extensions.console import (
    access_route,
    analyst_route,
    console_route,
    knowledge_route,
    plans_route,
    traces_route,
)
from copilot_runtime.extensions.console.sandbox import sandbox_route


def build_pages(
    path: str,
    *,
    suggestions: Sequence[str] = (),
    has_knowledge: bool = False,
    has_plans: bool = False,
    has_data: bool = False,
    has_users: bool = False,
    has_traces: bool = False,
    keeps_traces: bool = False,
    draws_surfaces: bool = False,
) -> Sequence[BaseRoute]:
    """Return the routes of the pages of the runtime at `path`, which lead to each other.

    They come before its own: where clients are at `/` as well, the page there takes only what a
    browser opens.
    """
    page = "/knowledge" if has_knowledge else ""
    plans = "/plans" if has_plans else ""
    data = "/data" if has_data else ""
    access = "/access" if has_users else ""
    traces = "/traces" if has_traces else ""
    chat = console_route(
        path,
        suggestions=suggestions,
        knowledge_path=page,
        plans_path=plans,
        traces_path=traces,
        analyst_path=data,
        access_path=access,
        keeps_traces=keeps_traces,
        sandbox_path="/sandbox",
        draws_surfaces=draws_surfaces,
    )
    trace_page = traces if keeps_traces else ""
    return [
        *([analyst_route(path, data)] if data else []),
        *([knowledge_route(path, page)] if page else []),
        *([access_route(path, access)] if access else []),
        *([traces_route(path, traces)] if traces else []),
        *([plans_route(path, plans, traces_path=trace_page)] if plans else []),
        sandbox_route("/sandbox"),
        chat,
    ]
