"""Tasks of A2A clients, each of whose requests another server gets."""

import asyncio
from pathlib import Path

import pytest
from a2a.types import CancelTaskRequest, SubscribeToTaskRequest

from copilot_runtime import RunInput
from tests.extensions.a2a.server.clients import at_a2a, said, state_of, text_of
from tests.transports.served import Slow

pytestmark = pytest.mark.anyio


async def test_a_task_is_followed_and_canceled_at_another_server(tmp_path: Path) -> None:
    slow, settings = Slow(), {"threads": f"sqlite:{tmp_path / 'threads.db'}"}
    agents, at_once = {"slow": slow}, {"streaming": False}
    async with (
        at_a2a("slow", agents=agents, way=at_once, settings=settings) as first,
        at_a2a("slow", agents=agents, settings=settings) as second,
    ):
        task = await first.ask("Hi", at_once=True)
        await slow.gate.wait_for_event()
        updates = second.client.subscribe(SubscribeToTaskRequest(id=task.id))
        begun = await anext(updates)
        canceled = await second.client.cancel_task(CancelTaskRequest(id=task.id))
        rest = [update async for update in updates]

    assert begun.task.id == task.id
    assert (state_of(canceled), text_of(canceled)) == ("canceled", "tick ")
    assert rest[-1].HasField("status_update")


async def test_a_message_that_comes_again_to_other_servers_is_worked_on_once(
    tmp_path: Path,
) -> None:
    runs = 0

    async def count(run: RunInput) -> str:
        nonlocal runs
        runs += 1
        return f"Done {runs}"

    settings = {"threads": f"sqlite:{tmp_path / 'threads.db'}"}
    message = said("Book it", context_id="c")
    async with (
        at_a2a("count", agents={"count": count}, settings=settings) as first,
        at_a2a("count", agents={"count": count}, settings=settings) as second,
    ):
        servers = (first, second, first, second)
        tasks = await asyncio.gather(*(server.ask(message) for server in servers))
        tasks += [await server.ask(message) for server in servers]
    async with at_a2a("count", agents={"count": count}, settings=settings) as third:
        tasks.append(await third.ask(message))

    assert {(task.id, state_of(task), text_of(task)) for task in tasks} == {
        (tasks[0].id, "completed", "Done 1")
    }
    assert runs == 1
