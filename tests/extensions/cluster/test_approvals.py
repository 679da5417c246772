"""What waits for a person is answered at any server, once, also after the one that asked died."""

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import Settings
from copilot_runtime.adapters.scripted import ScriptedAdapter, say
from copilot_runtime.adapters.scripted import call as scripted_call
from copilot_runtime.api.messages import ActionExecutionMessage
from copilot_runtime.extensions.generative_ui.options import A2ui
from tests.agents.pages import GIVEN, PAINT, answered, failure, questions
from tests.extensions.cluster.launch_server import build_launcher
from tests.extensions.cluster.sharing import sharing
from tests.extensions.frameworks.sdk_model import call
from tests.extensions.generative_ui.agui_agent import clicking
from tests.extensions.generative_ui.test_a2ui_clicks import CALL, RESULT, WEATHER
from tests.processes import running
from tests.wire_agui.http import Browser, text_of, user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=["sqlite", "postgres"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the settings of servers that share threads."""
    if request.param == "sqlite":
        yield {"threads": f"sqlite:{tmp_path / 'threads.db'}"}
    else:
        yield {"threads": request.getfixturevalue("database")}


Serve = Callable[..., Any]


def serving(stack: AsyncExitStack, stored: Mapping[str, Any], **options: Any) -> Serve:
    """Return a function that starts another server of the same threads, with an agent."""

    async def serve(agent: Any) -> Browser:
        settings = Settings(**stored, **options)
        return await stack.enter_async_context(browsing(agents={"it": agent}, settings=settings))

    return serve


async def test_an_approval_at_another_server_counts_once(stored: Mapping[str, Any]) -> None:
    launches: list[str] = []
    async with AsyncExitStack() as stack:
        serve = serving(stack, stored)
        first, second = (
            await serve(build_launcher(launches.append)),
            await serve(build_launcher(launches.append)),
        )
        [question] = questions((await first.run(agent="it")).events())
        resume = [answered(question, True)]
        again = (await second.run(agent="it", run="r2", resume=resume)).events()
        twice = (await first.run(agent="it", run="r3", resume=resume)).events()
        replayed = (await first.connect(agent="it")).events()

    assert text_of(again) == "Then: A is gone"
    assert failure(twice) == GIVEN
    assert launches == ["A"]
    assert text_of(replayed) == "Then: A is gone"


async def test_of_approvals_at_two_servers_at_once_one_counts(stored: Mapping[str, Any]) -> None:
    launches: list[str] = []
    async with AsyncExitStack() as stack:
        serve = serving(stack, stored)
        browsers = [await serve(build_launcher(launches.append)) for _ in range(2)]
        [question] = questions((await browsers[0].run(agent="it")).events())
        resume = [answered(question, True)]
        runs = [
            browsers[number % 2].run(agent="it", run=f"r{number}", resume=resume)
            for number in range(8)
        ]
        answers = [answer.events() for answer in await asyncio.gather(*runs)]

    ends = sorted(events[-1]["type"] for events in answers)
    assert ends == ["RUN_ERROR"] * 7 + ["RUN_FINISHED"]
    assert launches == ["A"]


async def test_an_approval_after_a_restart_has_what_the_page_did_meanwhile(
    stored: Mapping[str, Any],
) -> None:
    launches, paint = list[str](), call("setColor", '{"color": "red"}', id="c2")
    async with AsyncExitStack() as stack:
        first = await serving(stack, stored)(build_launcher(launches.append, paint))
        asked = (await first.run(agent="it", tools=[PAINT])).events()
    painted = {"id": "p", "role": "tool", "toolCallId": "c2", "content": "painted"}
    async with AsyncExitStack() as stack:
        second = await serving(stack, stored)(build_launcher(launches.append, paint))
        resume = [answered(question, True) for question in questions(asked)]
        again = await second.run(
            agent="it", run="r2", tools=[PAINT], messages=[user(), painted], resume=resume
        )

    assert text_of(again.events()) == "Then: A is gone, painted"


async def test_an_agent_with_other_tools_says_so_and_the_question_stays(
    stored: Mapping[str, Any],
) -> None:
    launches: list[str] = []
    async with AsyncExitStack() as stack:
        serve = serving(stack, stored)
        first, other = (
            await serve(build_launcher(launches.append)),
            await serve(build_launcher(launches.append, tool="start")),
        )
        [question] = questions((await first.run(agent="it")).events())
        resume = [answered(question, True)]
        refused = (await other.run(agent="it", run="r2", resume=resume)).events()
        again = (await first.run(agent="it", run="r3", resume=resume)).events()

    assert failure(refused).startswith("The agent cannot go on with this answer: it is not as")
    assert text_of(again) == "Then: A is gone"


async def test_an_approval_counts_after_its_server_was_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.extensions.cluster.launch_server", tmp_path]
    with running(words, cwd=ROOT) as asking, running(words, cwd=ROOT) as going_on:
        browsers = [
            Browser(int(program.until(r"^(\d+)\n")[1]), base="/copilot")
            for program in (asking, going_on)
        ]
        [question] = questions((await browsers[0].run(agent="it")).events())
        asking.kill()
        resume = [answered(question, True)]
        again = (await browsers[1].run(agent="it", run="r2", resume=resume)).events()
        twice = (await browsers[1].run(agent="it", run="r3", resume=resume)).events()

    assert text_of(again) == "Then: A is gone"
    assert failure(twice) == GIVEN
    assert (tmp_path / "launches").read_text() == "A\n"


@pytest.mark.parametrize("history", ["client", "server"])
async def test_a_click_reaches_the_agent_once_across_all_servers(
    tmp_path: Path, history: Any
) -> None:
    models = (ScriptedAdapter(scripted_call("getWeather", id="w1")), ScriptedAdapter(say("Sunny")))
    fields = {"tools": [WEATHER], "forwardedProps": clicking()}
    options, shared = {"a2ui": A2ui()}, {"threads": f"sqlite:{tmp_path / 'threads.db'}"}
    async with sharing(shared, *models, options=options, history=history) as (first, second):
        await first.run(run="r1", **fields)
        await second.run(run="r2", messages=[user(), CALL, RESULT], **fields)
    calls = [
        message.name
        for message in models[1].requests[0].messages
        if isinstance(message, ActionExecutionMessage)
    ]

    assert calls == ["log_a2ui_event", "getWeather"]
