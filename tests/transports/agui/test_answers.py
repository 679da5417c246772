"""What is answered at once, and what it costs others who ask."""

import asyncio

import pytest

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.api import Caller
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.threads.memory import MemoryThreads
from copilot_runtime.transports.agui.encode import Dialect
from copilot_runtime.transports.agui.handlers import AgentNames, Answers
from copilot_runtime.transports.agui.routes import Operation
from tests.in_one_test import in_one_test
from tests.threads.logs import KEY, run_of, told, user

pytestmark = pytest.mark.anyio


def answers_of(store: MemoryThreads) -> Answers:
    runtime = CopilotRuntime(ScriptedAdapter(), threads=store, settings=Settings())
    talks = runtime.conversations
    return Answers(
        talks,
        AgentNames(talks, chat=True),
        dialect=Dialect(),
        transcriber=None,
        info={},
    )


async def turns_of_others(runs: int) -> int:
    """Return how often another task had its turn while the events of a thread were read."""
    store = MemoryThreads()
    for number in range(runs):
        await told(store, run_of(run_id=f"r{number}", log_id=f"log{number}"))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    operation = Operation(name="read events", thread=KEY.id)
    await answers_of(store).of(operation, Caller(user=KEY.owner))
    task.cancel()
    return turns


async def test_a_long_thread_does_not_keep_others_waiting() -> None:
    assert await turns_of_others(200) > await turns_of_others(1)


async def test_the_events_of_a_thread_are_a_list_of_them_all() -> None:
    store = MemoryThreads()
    await told(store, run_of(log_id="one"))
    await told(store, run_of(run_id="r2", log_id="two", messages=[user(), user("u2", "\ud83d")]))
    operation = Operation(name="read events", thread=KEY.id)
    status, body = await answers_of(store).of(operation, Caller(user=KEY.owner))
    events = loads(dumps(body))["events"]

    assert status == 200
    assert [event["type"] for event in events] == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ] * 2


@in_one_test(
    ("name", "sentence"),
    [
        ("subscribe", "This server tells no WebSocket of changes"),
        ("annotate", "This server does not offer annotations"),
    ],
)
async def test_what_is_not_offered_is_named(name: str, sentence: str) -> None:
    operation = Operation(name=name)  # type: ignore[arg-type]  # parametrised
    status, body = await answers_of(MemoryThreads()).of(operation, Caller())

    assert status == 422
    assert body["error"].startswith(sentence)


async def test_a_thread_that_does_not_exist_has_no_events() -> None:
    operation = Operation(name="read events", thread="none")
    _, body = await answers_of(MemoryThreads()).of(operation, Caller())

    assert loads(dumps(body)) == {"events": []}
