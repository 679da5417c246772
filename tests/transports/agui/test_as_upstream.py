"""Our agents, asked by another runtime over AG-UI: it keeps the threads, we keep nothing."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from copilot_runtime import Agent, AguiAgent, CopilotRuntime, Settings
from tests.transports.served import Slow, at_work, by_token
from tests.wire_agui.http import Browser, text_of, user
from tests.wire_agui.server import PATH, serving

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def in_front_of(*names: str, **options: Any) -> AsyncGenerator[Browser, None]:
    """Serve our agents, and a runtime that asks them; yield what speaks to that one."""
    async with at_work(**options) as there:
        url = f"http://127.0.0.1:{there.where}{PATH}/agent"
        agents: dict[str, Agent] = {name: AguiAgent(f"{url}/{name}/ask") for name in names}
        here = CopilotRuntime(agents=agents, settings=Settings(threads="memory"))
        async with serving(here.app(path=PATH)) as port:
            yield Browser(port)


async def test_what_an_agent_says_comes_through() -> None:
    async with in_front_of("echo") as browser:
        events = (await browser.run(agent="echo")).events()
    assert text_of(events) == "You said Hi"
    assert {"type": "STATE_SNAPSHOT", "snapshot": {"heard": "Hi"}}.items() <= next(
        event for event in events if event["type"] == "STATE_SNAPSHOT"
    ).items()


async def test_the_login_goes_along() -> None:
    async with in_front_of("echo", authenticate=by_token) as browser:
        refused = await browser.run(agent="echo")
        welcome = await browser.signed_in("ann").run(agent="echo", run="r-2")
    assert (refused.types()[-1], welcome.types()[-1]) == ("RUN_ERROR", "RUN_FINISHED")


async def test_an_action_of_the_page_is_called_through_both() -> None:
    tools = [{"name": "setColor", "description": "", "parameters": {"type": "object"}}]
    async with in_front_of("painter") as browser:
        types = (await browser.run(agent="painter", tools=tools)).types()
    assert types[-4:] == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "RUN_FINISHED"]


async def test_an_interrupt_is_answered_through_both() -> None:
    async with in_front_of("asker") as browser:
        asked = (await browser.run(agent="asker")).events()[-1]["outcome"]["interrupts"][0]
        answer = [{"interruptId": asked["id"], "status": "resolved", "payload": "Ann"}]
        events = (await browser.run(agent="asker", run="r-2", resume=answer)).events()
    assert text_of(events) == "Hello Ann"


async def test_a_conversation_goes_on_in_its_thread() -> None:
    async with in_front_of("echo") as browser:
        await browser.run(agent="echo")
        again = [user(), user("Again", id="user-2")]
        events = (await browser.run(agent="echo", run="r-2", messages=again)).events()
    assert text_of(events) == "You said Again"


async def test_whoever_stops_the_one_stops_the_other() -> None:
    slow = Slow()
    async with (
        in_front_of("slow", agents={"slow": slow}) as browser,
        browser.running(agent="slow") as exchange,
    ):
        await exchange.until("TEXT_MESSAGE_CONTENT")
        await browser.ask("POST", "/agent/slow/stop/t")
        await slow.left.wait()


async def test_what_is_asked_is_kept_in_no_thread_of_ours() -> None:
    async with at_work() as browser:
        body = {"threadId": "t", "runId": "r", "messages": [user()], "tools": [], "context": []}
        answer = await browser.ask("POST", "/agent/echo/ask", body)
        threads = (await browser.ask("GET", "/threads?agentId=echo")).json()["threads"]
    assert (answer.types()[-1], threads) == ("RUN_FINISHED", [])
