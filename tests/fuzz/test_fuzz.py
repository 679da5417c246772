"""No input makes an exception leave the application, and none takes half a second of CPU."""

from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import contextmanager

import pytest

from copilot_runtime import ChatRequest, CopilotRuntime, Events, RunInput, Settings
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api.events import AgentState, Custom, Interrupt
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.http import client
from tests.fuzz import INPUTS, SEED
from tests.fuzz.http import HttpInput, ask, make_request
from tests.fuzz.sockets import converse, make_frames
from tests.fuzz.streams import NAMES, Reply, Upstream, look
from tests.fuzz.watch import Watch
from tests.wire.client import client_of
from tests.wire_agui.http import run_input

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.stalls(reason="The test makes inputs of megabytes; it measures each by itself."),
]

HEADERS = [(b"content-type", b"application/json")]
AT_ONCE = 500
"""Inputs that one runtime gets: its threads are in memory."""
PART = 10_000
"""Inputs of all kinds that one test of each kind tries."""
in_parts = pytest.mark.parametrize("part", range(-(-INPUTS // PART)))


class Model:
    """Calls an action now and then, and then has little to say."""

    async def stream(self, request: ChatRequest) -> Events:
        last = request.messages[-1] if request.messages else None
        calls = isinstance(last, TextMessage) and len(last.content) % 2 == 0
        for event in call("look", {"at": "x"}, id="c") if calls else say(["Hel", "lo"]):
            yield event


class Helper:
    """An agent with a state, which asks back."""

    async def run(self, run: RunInput) -> Events:
        yield AgentState(agent="helper", state=run.agent_input.state)
        yield Custom(name="resumed", value=[answer.payload for answer in run.resume])
        for event in say("Well"):
            yield event
        if not run.resume:
            yield Interrupt(interrupt_id="i", value="Sure?", reason="ask")

    async def load_state(self, thread_id: str, caller: object) -> tuple[dict[str, int], list[int]]:
        return {"n": 1}, []


def runtime() -> CopilotRuntime:
    settings = Settings(
        threads="memory", log_level="critical", serve_mcp=True, serve_remote=True, keep_alive=0.05
    )
    return CopilotRuntime(Model(), agents={"helper": Helper()}, actions=[look], settings=settings)


@pytest.fixture(autouse=True)
async def warm(anyio_backend: str) -> None:
    """Build the schema of GraphQL, which a process does once."""
    del anyio_backend
    async with client_of(runtime()) as client:
        await ask(client.app, HttpInput("POST", "", b'{"query": "{ hello }"}', HEADERS))


@contextmanager
def watching(kind: str, record: pytest.FixtureRequest) -> Generator[Watch]:
    with Watch(kind) as watch:
        yield watch
    record.node.add_report_section("call", "slowest", watch.report())  # for `pytest -rP`


def batches(share: float, part: int) -> Iterator[range]:
    """Yield the numbers of a share of a part of the inputs, in batches."""
    end = int(share * min(INPUTS, (part + 1) * PART))
    for start in range(int(share * part * PART), end, AT_ONCE):
        yield range(start, min(end, start + AT_ONCE))


@in_parts
async def test_no_request_raises_or_takes_long(part: int, request: pytest.FixtureRequest) -> None:
    with watching("request", request) as watch:
        for numbers in batches(0.4, part):
            async with client_of(runtime()) as client:
                for number in numbers:
                    made = make_request(f"{SEED} request {number}")
                    await watch.try_input(number, ask(client.app, made), made)


# of a client that leaves in the middle, graphql-core drops coroutines that have not begun
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@in_parts
async def test_nothing_said_over_a_websocket_raises_or_takes_long(
    part: int,
    request: pytest.FixtureRequest,
) -> None:
    with watching("socket", request) as watch:
        for numbers in batches(0.2, part):
            async with client_of(runtime()) as client:
                for number in numbers:
                    mutator, frames = make_frames(f"{SEED} socket {number}")
                    work = converse(client.app, mutator, frames)
                    await watch.try_input(number, work, frames)


@pytest.fixture
async def replies(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[list[Reply], None]:
    """What requests are answered with that leave this process."""
    del anyio_backend
    replies: list[Reply] = []

    async def answer(*_: object) -> Reply:
        return replies.pop(0) if len(replies) > 1 else replies[0]

    monkeypatch.setattr(client.Upstream, "open", answer)
    yield replies


@in_parts
@pytest.mark.parametrize("name", NAMES)
async def test_nothing_that_a_model_or_an_agent_sends_raises_or_takes_long(
    name: str, part: int, replies: list[Reply], request: pytest.FixtureRequest
) -> None:
    with watching(name, request) as watch:
        for numbers in batches(0.4 / len(NAMES), part):
            upstream = Upstream(name)
            async with client_of(upstream.runtime) as client:
                for number in numbers:
                    replies[:] = upstream.new_replies(f"{SEED} {name} {number}")
                    shown = [b"".join(replies[0].blocks)]
                    tools = [{"name": "setColor", "description": "", "parameters": {}}]
                    body = run_input(thread=f"t-{number}", run=f"r-{number}", tools=tools)
                    made = HttpInput("POST", "/agent/default/run", dumps(body), HEADERS)
                    await watch.try_input(number, ask(client.app, made), shown)
