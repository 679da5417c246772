"""A2A agents of a runtime, as the page of a person has them."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from a2a.server.agent_execution import RequestContext
from a2a.server.tasks import TaskUpdater
from a2a.types import Part
from google.protobuf.json_format import MessageToDict

from copilot_runtime import Settings
from copilot_runtime.extensions.a2a.client import A2aAgent
from copilot_runtime.extensions.generative_ui.a2ui.operations import (
    create_surface,
    update_components,
)
from tests.extensions.a2a.client.remote import Remote, data_part, serve_remote
from tests.in_one_test import in_one_test
from tests.wire_agui.http import text_of, user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

V09 = "https://a2ui.org/a2a-extension/a2ui/v0.9"
OPERATIONS = [
    create_surface("s"),
    update_components("s", [{"id": "root", "component": "Text", "text": "Hi"}]),
]


async def draw(remote: Remote, task: TaskUpdater, context: RequestContext) -> None:
    parts = [data_part(it, "application/a2ui+json") for it in OPERATIONS]
    await task.add_artifact([*parts, Part(text="Look.")], "ui")
    await task.complete()


async def test_a_surface_reaches_the_page_and_a_click_the_agent_once() -> None:
    click = {"name": "buy", "surfaceId": "s", "sourceComponentId": "root", "context": {}}
    action = {"userAction": {**click, "timestamp": "2026-11-26T10:00:00Z"}}
    drawing: dict[str, Any] = {"a2uiCatalogAvailable": True}
    async with serve_remote(draw, extensions=[V09]) as remote:
        agents = {"shop": A2aAgent(remote.url)}
        async with browsing(agents=agents) as browser:
            ask: dict[str, Any] = {"agent": "shop", "messages": [user("Show me")]}
            shown = await browser.run(**ask, run="1", forwardedProps=drawing)
            await browser.run(**ask, run="2", forwardedProps={**drawing, "a2uiAction": action})
    surfaces = [it for it in shown.events() if it["type"] == "ACTIVITY_SNAPSHOT"]
    assert [it["content"] for it in surfaces] == [{"a2ui_operations": OPERATIONS}]
    assert text_of(shown.events()) == "Look."
    question, clicked = remote.asked
    assert question.parts[0].text == "Show me"
    assert [MessageToDict(it.data) for it in clicked.parts] == [
        {"version": "v0.9", "action": action["userAction"]}
    ]


async def test_a_stop_on_the_page_cancels_the_task() -> None:
    async def wait(remote: Remote, task: TaskUpdater, context: RequestContext) -> None:
        await task.start_work(task.new_agent_message([Part(text="Well")]))
        await remote.gate.wait()

    async with serve_remote(wait) as remote:
        agents = {"default": A2aAgent(remote.url)}
        async with browsing(agents=agents) as browser:
            async with browser.running(messages=[user("Hi")]) as running:
                await running.until("TEXT_MESSAGE_CONTENT")
                stopped = await browser.stop()
                await running.rest()
            await asyncio.wait_for(remote.was_canceled.wait(), 30)
    assert stopped["stopped"] is True


@in_one_test(
    "program",
    [
        "from copilot_runtime.extensions.a2a.client import A2aAgent",
        "from copilot_runtime import CopilotRuntime, Settings\n"
        "CopilotRuntime(settings=Settings(threads='memory', serve_a2a=True)).app()",
    ],
    ids=["agent", "server"],
)
async def test_without_the_package_an_error_names_the_extra(program: str) -> None:
    code = f"import sys; sys.modules['a2a'] = None\n{program}"
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "pip install 'copilot-runtime[a2a]'" in done.stderr


async def ask_twice(remote: Remote, task: TaskUpdater, context: RequestContext) -> None:
    """Ask for a city, then for a day."""
    said = context.get_user_input()
    if said == "Monday":
        await task.complete(task.new_agent_message([Part(text="Sunny.")]))
    else:
        question = "Which city?" if said == "Weather?" else "Which day?"
        await task.requires_input(task.new_agent_message([Part(text=question)]))


async def test_a_task_goes_on_at_whatever_server_its_question_is_answered(tmp_path: Path) -> None:
    settings = Settings(threads=f"sqlite:{tmp_path / 'threads.db'}")
    async with (
        serve_remote(ask_twice) as remote,
        browsing(agents={"it": A2aAgent(remote.url)}, settings=settings) as first,
        browsing(agents={"it": A2aAgent(remote.url)}, settings=settings) as second,
    ):
        said = ["Weather?", "Bonn", "Monday", "Weather?"]
        answers = [
            await browser.run(agent="it", run=f"r{number}", messages=[user(text, f"u-{number}")])
            for number, (browser, text) in enumerate(zip([first, second] * 2, said, strict=True))
        ]

    assert [text_of(it.events()) for it in answers] == [
        "Which city?",
        "Which day?",
        "Sunny.",
        "Which city?",
    ]
    assert len({message.task_id for message in remote.asked[1:3]}) == 1
    assert remote.asked[3].task_id != remote.asked[2].task_id
