"""Each kind of input grows to its limit, and the event loop goes on meanwhile.

`plugin/stalls.py` fails a test in which the loop stood still. `pytest -rP` shows a row for each
kind: the largest input that was accepted, in bytes, the longest stall, in seconds of CPU, and the
size of the input that caused it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.events.settings import EventSettings
from copilot_runtime.extensions.generative_ui.options import A2ui
from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
from copilot_runtime.extensions.tracing.settings import TelemetrySettings
from copilot_runtime.http import client
from copilot_runtime.testing.connection import connect
from tests.agents.remote import Reply
from tests.fuzz.growing import JSON, REQUESTS, RUN, RUN_PATH, Build
from tests.fuzz.growing_replies import REPLIES
from tests.fuzz.test_fuzz import look
from tests.plugin.stalls import watch

pytestmark = pytest.mark.anyio

SMALLEST = 1024
LARGEST = 16 * 1024 * 1024
NARROWINGS = 3
"""Steps between the largest input that was accepted and the smallest that was refused."""
BLOCK = 65_536
"""Bytes of an answer that come at once."""


def runtime() -> CopilotRuntime:
    settings = Settings(
        threads="memory",
        log_level="critical",
        serve_mcp=True,
        serve_remote=True,
        serve_a2a=True,
        knowledge=KnowledgeSettings(storage="memory"),
        events=EventSettings(store="memory"),
        telemetry=TelemetrySettings(store="memory", receive="loopback"),
    )
    model = OpenAIAdapter(model="m", api_key="k", base_url="http://127.0.0.1:9/v1", max_retries=0)
    return CopilotRuntime(
        model,
        agents={"remote": AguiAgent("http://127.0.0.1:9/agent")},
        actions=[look],
        settings=settings,
        a2ui=A2ui(),
    )


class Arriving(Reply):
    """An answer whose blocks come one after the other."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self.blocks[0]), BLOCK):
            await asyncio.sleep(0)
            yield self.blocks[0][at : at + BLOCK]


Send = Callable[[bytes], Awaitable[bool]]
"""Sends an input, and returns whether it was accepted."""


async def grow(kind: str, build: Build, send: Send) -> str:
    """Send four times as much each time, and then what is just accepted. Return a table's row."""
    accepted, refused, stall, at = 0, 0, 0.0, 0

    def make(size: int) -> bytes:
        body = build(size)
        return body if len(body) <= LARGEST else build(size * LARGEST // len(body) - SMALLEST)

    async def send_size(size: int) -> bool:
        nonlocal accepted, stall, at
        body = await asyncio.to_thread(make, size)  # it is not the server's work
        is_accepted = await send(body)
        await asyncio.sleep(0)  # or the callback that sent it would not have ended
        if watch.seconds > stall:
            stall, at = watch.seconds, len(body)
        if is_accepted:
            accepted = max(accepted, len(body))
        return is_accepted

    await send_size(SMALLEST)  # it pays for what is made once
    watch.reset()
    stall, size, largest = 0.0, SMALLEST, 0
    while size <= LARGEST:
        if await send_size(size):
            largest = size
        else:
            refused = refused or size
        size *= 4
    for _ in range(NARROWINGS if refused > largest > 0 else 0):
        middle = (largest + refused) // 2
        if await send_size(middle):
            largest = middle
        else:
            refused = middle
    return f"| {kind} | {accepted:,} | {stall:.3f} | {at:,} |"


@pytest.mark.parametrize("kind", REQUESTS)
async def test_a_request_that_grows_to_its_limit_does_not_stop_the_loop(
    kind: str, request: pytest.FixtureRequest
) -> None:
    path, content_type, build = REQUESTS[kind]
    headers = {"content-type": content_type, "accept": "text/event-stream, */*"}
    method = "PATCH" if path.endswith("threads/t") else "POST"
    async with connect(runtime().app(), 60) as connection:

        async def send(body: bytes) -> bool:
            response = await connection.request(method, path, body, headers)
            assert response.status != 500, response.body
            return response.status < 400 and b"LIMIT_EXCEEDED" not in response.body

        row = await grow(kind, build, send)
    request.node.add_report_section("call", "growth", row)  # for `pytest -rP`


@pytest.mark.parametrize("kind", REPLIES)
async def test_an_answer_that_grows_to_its_limit_does_not_stop_the_loop(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies: list[Reply] = []

    async def answer(*_: object) -> Reply:
        return replies.pop()

    monkeypatch.setattr(client.Upstream, "open", answer)
    async with connect(runtime().app(), 60) as connection:

        async def send(body: bytes) -> bool:
            replies.append(Arriving([body]))
            response = await connection.request(
                "POST",
                RUN_PATH.replace("default", "remote"),
                dumps({**RUN, "runId": f"r-{len(body)}"}),
                {"content-type": JSON, "accept": "text/event-stream"},
            )
            return b"RUN_FINISHED" in response.body

        row = await grow(kind, REPLIES[kind], send)
    request.node.add_report_section("call", "growth", row)
