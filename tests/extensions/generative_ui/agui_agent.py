"""A remote AG-UI agent behind a runtime with A2UI: what a page sends, and what the agent gets."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.extensions.generative_ui.options import A2ui
from tests.adapters.provider import Provider, serving
from tests.agents.remote import text, whole_run
from tests.wire_agui.http import Browser
from tests.wire_agui.server import browsing

CLICK = {
    "name": "submit",
    "surfaceId": "form",
    "sourceComponentId": "b",
    "context": {"name": "Bob"},
    "timestamp": "2026-11-22T00:00:00.000Z",
}


def clicking(**changes: Any) -> dict[str, Any]:
    """Return the properties of a page whose person clicks."""
    return {"a2uiAction": {"userAction": CLICK | changes}}


@asynccontextmanager
async def relaying(a2ui: Any = None, **options: Any) -> AsyncGenerator[tuple[Browser, Provider]]:
    """Yield a page, and the agent that answers it: `Hello`, each time with another id."""
    async with serving() as provider:
        agent = AguiAgent(f"{provider.url}/agent")
        async with browsing(
            agents={"default": agent, "other": agent}, a2ui=a2ui, **options
        ) as browser:
            yield browser, provider


async def receive(
    browser: Browser, provider: Provider, *events: dict[str, Any], **fields: Any
) -> dict[str, Any]:
    """Return what the agent gets for one request of the page."""
    provider.answer(whole_run(*(events or text(f"m-{len(provider.requests)}", "Hello"))))
    (await browser.run(**fields)).events()
    body = provider.requests[-1].body
    return {key: body[key] for key in ("tools", "context", "forwardedProps", "state", "messages")}


async def receive_one(a2ui: A2ui | None, **fields: Any) -> dict[str, Any]:
    """Return what the agent gets for the first request of a page."""
    async with relaying(a2ui) as (browser, provider):
        return await receive(browser, provider, **fields)
