"""AG-UI's own HttpAgent, of 1.0.0 and of before, against one server: no warning, no complaint."""

import asyncio
import json
from typing import Any

import pytest

from copilot_runtime import Events, RunInput
from copilot_runtime.adapters.scripted import Gate, ScriptedAdapter, call, say
from copilot_runtime.api.events import ActionExecutionResult, Usage
from copilot_runtime.api.messages import MediaPart, TextPart
from tests.conformance.v2.node import HERE, install
from tests.wire_agui.http import Browser, user
from tests.wire_agui.server import Parrot, browsing

pytestmark = pytest.mark.anyio

VERSIONS = ("0.0.59", "1.0.0")
TOOL = {"name": "setColor", "description": "Sets it.", "parameters": {"type": "object"}}
RESULT = ActionExecutionResult(
    call_id="c",
    name="look",
    result="[]",
    parts=[
        TextPart(text="A cat."),
        MediaPart(kind="image", source="id", value="file-1", provider="openai"),
    ],
)


@pytest.fixture(autouse=True, scope="module")
def installed() -> None:
    install()


async def ask(
    browser: Browser, version: str, operation: str = "run", **question: Any
) -> dict[str, Any]:
    """Return what HttpAgent of that version gets, which is to have nothing to complain of."""
    base = f"http://127.0.0.1:{browser.where}{browser.base}/agent/default"
    messages = [user()] if operation == "run" else []
    question = {"url": f"{base}/{operation}", "messages": messages, **question}
    if question.get("stop"):
        question["stop"] = f"{base}/stop/t"
    program = await asyncio.create_subprocess_exec(
        "node",
        "http-agent.mjs",
        version,
        json.dumps(question),
        cwd=HERE,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await program.communicate()
    got = json.loads(output)
    if version == "1.0.0":
        assert got["warnings"] == []
    return got


async def test_both_are_told_the_version_and_get_the_same_text() -> None:
    async with browsing() as browser:
        got = [await ask(browser, version) for version in VERSIONS]

    for each in got:
        assert each["failure"] is None
        assert each["events"][0]["protocolVersion"] == "1.0"
        assert each["messages"][-1]["content"] == "You said Hi"
        assert each["outcomes"][-1]["outcome"] == "success"


class Endless(Parrot):
    """A model that says one word, and then nothing until it is stopped."""

    def __init__(self) -> None:
        super().__init__("one ", "two")

    async def stream(self, request: Any) -> Events:
        self.gate = Gate()
        self.gate.release(2)
        async for event in super().stream(request):
            yield event


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_learns_of_its_stop_and_each_is_shown_it_later(version: str) -> None:
    async with browsing(Endless()) as browser:
        live = await ask(browser, version, stop=True)
        later = {other: await ask(browser, other, "connect") for other in VERSIONS}

    cancelled = [{"outcome": "cancelled"}]
    for which, got in [(version, live), *later.items()]:
        last = got["events"][-1]
        assert got["messages"][-1]["content"] == "one "
        if which == "1.0.0":
            assert (got["failure"], got["outcomes"]) == (None, cancelled)
            assert (last["type"], last["outcome"]) == ("RUN_FINISHED", {"type": "cancelled"})
        else:
            assert (last["type"], last["code"]) == ("RUN_ERROR", "abort")


async def test_the_calls_that_wait_for_the_page_are_named() -> None:
    turn = call("setColor", {"color": "red"}, id="c1")
    async with browsing(ScriptedAdapter(turn, call("setColor", {}, id="c2"))) as browser:
        now = await ask(browser, "1.0.0", tools=[TOOL])
        before = await ask(browser, "0.0.59", tools=[TOOL])

    assert now["outcomes"] == [{"outcome": "success", "pendingToolCallIds": ["c1"]}]
    assert now["events"][-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["c1"]}
    assert (before["failure"], before["events"][-1]["type"]) == (None, "RUN_FINISHED")


class Looks:
    """An agent whose tool returns a text and a file, and whose model says why it stopped."""

    async def run(self, run: RunInput) -> Events:
        for event in [*call("look", {}, id="c"), RESULT, *say("A cat.", id=run.run_id)]:
            yield event
        yield Usage(model="m", input_tokens=1, cache_write_tokens=1, stop_reason="stop")


async def test_a_result_in_parts_is_taken_by_both_live_and_later() -> None:
    async with browsing(agents={"default": Looks()}) as browser:
        live = {version: await ask(browser, version) for version in VERSIONS}
        later = {version: await ask(browser, version, "connect") for version in VERSIONS}

    for got in (live, later):
        results = {
            version: next(one for one in each["messages"] if one["role"] == "tool")["content"]
            for version, each in got.items()
        }
        assert results["0.0.59"] == "[]"
        assert [part["type"] for part in results["1.0.0"]] == ["text", "image"]
        assert all(each["failure"] is None for each in got.values())
