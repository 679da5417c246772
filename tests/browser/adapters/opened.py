"""A page of our examples in a browser, in front of a runtime that asks one adapter."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, Page

from copilot_runtime import Adapter, ChatRequest, CopilotRuntime, Events, Settings
from copilot_runtime.adapters.scripted import call
from copilot_runtime.agents.direct import DirectAgent
from tests.browser.adapters.calls import local_time
from tests.browser.build import built_page
from tests.browser.origin import one_origin
from tests.browser.profile import new_profile
from tests.wire_agui.server import serving


@asynccontextmanager
async def opened(
    example: str, browser: Browser, adapter: Adapter
) -> AsyncGenerator[tuple[Page, str], None]:
    """Serve an example and a runtime; yield an empty page in a fresh profile, and their address."""
    runtime = CopilotRuntime(
        adapter,
        actions=[local_time],
        agents={"trip": DirectAgent(adapter)},
        settings=Settings(threads="memory"),
    )
    async with serving(one_origin(built_page(example), runtime)) as port:
        context = await new_profile(browser, 1280, 760)
        try:
            yield await context.new_page(), f"http://127.0.0.1:{port}"
        finally:
            await context.close()  # ends its streams, so that the server can end


class WithoutSuggestions(Adapter):
    """Answers the pages' own wish for suggestions itself, as it comes at moments of its own.

    So the nth request that reaches the model is the nth of the conversation.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter

    def stream(self, request: ChatRequest) -> Events:
        forced = request.parameters.tool_choice_name
        return _none(forced) if forced else self._adapter.stream(request)


async def _none(function: str) -> Events:
    for event in call(function, {"suggestions": []}):
        yield event
