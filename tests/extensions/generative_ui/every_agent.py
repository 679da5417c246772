"""What holds for agents of every kind: surfaces, apps, pages and clicks, and v1 clients."""

import json
from collections.abc import Sequence
from typing import Any

from jsonpatch import apply_patch

from copilot_runtime import Settings
from copilot_runtime.extensions.generative_ui.options import A2ui
from tests.agents.pages import asked_v1, page_v1, results
from tests.extensions.frameworks.langgraph.asking import shown
from tests.extensions.generative_ui.agui_agent import clicking
from tests.extensions.generative_ui.apps import Weather
from tests.wire.client import user as user_v1
from tests.wire_agui.http import Browser, Event, text_of, user
from tests.wire_agui.server import browsing

SURFACE = {
    "surfaceId": "s",
    "components": [{"id": "root", "component": "Text", "text": "Hello"}],
    "data": {},
}
PAGE_TOOL = {
    "name": "generateSandboxedUi",
    "description": "Draws a page.",
    "parameters": {"type": "object", "properties": {"html": {"type": "string"}}},
}


def tell(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return user(f"call {name} {json.dumps(arguments)}")


def activities(events: Sequence[Event], kind: str) -> list[Any]:
    """Return what a page has of the activities of a kind at the end."""
    contents: dict[str, Any] = {}
    for event in events:
        if event.get("activityType") == kind:
            id = event["messageId"]
            patch = event.get("patch")
            contents[id] = event["content"] if patch is None else apply_patch(contents[id], patch)
    return [*contents.values()]


async def run_twice(browser: Browser, thread: str, first: dict[str, Any]) -> tuple[Any, str]:
    """Return the events of a run, and what the agent says in the next one."""
    before = [first]
    events = (await browser.run(agent="it", thread=thread, messages=before)).events()
    question = user("What came of it?", id="user-2")
    after = [*shown(before, events), question]
    answer = await browser.run(agent="it", thread=thread, run="r2", messages=after)
    return events, text_of(answer.events())


async def show_an_app(agent: Any, weather: Weather, thread: str = "t") -> None:
    """The app of a tool is shown, and its result is read at the latest in the next turn."""
    async with browsing(agents={"it": agent}, mcp_apps=weather.apps()) as browser:
        events, said = await run_twice(browser, thread, tell("show_weather", {"city": "Oslo"}))

    (app,) = activities(events, "mcp-apps")
    assert app["toolInput"] == {"city": "Oslo"}
    assert results(events) == ["Weather in Oslo: 21"]
    assert "Weather in Oslo: 21" in said
    assert weather.calls == ["show Oslo"]


async def draw_a_surface(agent: Any, thread: str = "t") -> None:
    """A surface is drawn, and the agent reads that it is."""
    async with browsing(agents={"it": agent}, a2ui=A2ui(inject_tool=True)) as browser:
        events, said = await run_twice(browser, thread, tell("render_a2ui", SURFACE))

    (surface,) = activities(events, "a2ui-surface")
    assert "updateComponents" in json.dumps(surface["a2ui_operations"])
    assert [json.loads(result)["status"] for result in results(events)] == ["rendered"]
    assert "rendered" in said


async def draw_a_page(agent: Any, thread: str = "t") -> None:
    """A page of Open Generative UI is drawn, and its result is that of the page."""
    async with browsing(agents={"it": agent}, open_generative_ui=True) as browser:
        before = [tell("generateSandboxedUi", {"html": "<p>Hello</p>"})]
        answer = await browser.run(agent="it", thread=thread, messages=before, tools=[PAGE_TOOL])
        events = answer.events()
        (call,) = shown(before, events)[-1]["toolCalls"]
        done = {"id": "d", "role": "tool", "toolCallId": call["id"], "content": "UI generated"}
        after = [*shown(before, events), done]
        more = await browser.run(
            agent="it", thread=thread, run="r2", messages=after, tools=[PAGE_TOOL]
        )

    assert activities(events, "open-generative-ui")
    assert "UI generated" in text_of(more.events())


async def click_once(agent: Any, thread: str = "t") -> None:
    """A click reaches the agent once, also when its page sends it again."""
    async with browsing(agents={"it": agent}, a2ui=True) as browser:
        fields = {"agent": "it", "thread": thread, "forwardedProps": clicking()}
        before = [user("Hello")]
        first = (await browser.run(run="r1", messages=before, **fields)).events()
        after = [*shown(before, first), user("And now?", id="user-2")]
        second = (await browser.run(run="r2", messages=after, **fields)).events()

    assert text_of(first).count('action "submit"') == 1
    assert text_of(second).count('action "submit"') == 1


async def ask_as_v1(agent: Any, weather: Weather, *, on: bool) -> list[dict[str, Any]]:
    """Return what a v1 client sees of an agent whose tool returns a surface."""
    options: dict[str, Any] = {"a2ui": True, "mcp_apps": weather.apps()} if on else {}
    async with page_v1(agent, settings=Settings(threads="memory"), **options) as client:
        answer = await asked_v1(client, user_v1("call show_weather {}"))
    return [_without_ids(message) for message in answer["messages"]]


def _without_ids(message: dict[str, Any]) -> dict[str, Any]:
    ids = ("id", "createdAt", "parentMessageId", "actionExecutionId", "threadId", "runId")
    return {key: value for key, value in message.items() if key not in ids}
