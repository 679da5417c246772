"""Tasks of A2A clients, each of whose requests another server gets."""

from pathlib import Path

import pytest
from a2a.types import CancelTaskRequest, SubscribeToTaskRequest

from tests.transports.a2a.clients import at_a2a, state_of, text_of
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
