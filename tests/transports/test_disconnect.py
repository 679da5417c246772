"""A response ends with its client, and whoever waits for the client ends with the response."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest

from copilot_runtime.transports.streaming import run_until_disconnect

pytestmark = pytest.mark.anyio

Message = MutableMapping[str, Any]


async def never() -> Message:
    """Receive in the way of a server that does not report the end of a response."""
    return await asyncio.get_running_loop().create_future()


async def swallow() -> Message:
    """Receive in the way of middleware that turns a cancellation into a message."""
    try:
        return await never()
    except asyncio.CancelledError:
        return {"type": "http.disconnect"}


async def leave() -> Message:
    return {"type": "http.disconnect"}


async def fail() -> Message:
    raise OSError("The server fails.")


@pytest.mark.parametrize("receive", [never, swallow])
async def test_the_end_of_the_work_ends_the_wait_and_leaves_no_cancellation(
    receive: Callable[[], Awaitable[Message]],
) -> None:
    await run_until_disconnect(asyncio.sleep(0), receive, None)

    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_an_error_of_the_work_is_raised() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_until_disconnect(work(), never, None)


@pytest.mark.parametrize("receive", [leave, fail])
async def test_work_without_a_client_is_told_or_cancelled(
    receive: Callable[[], Awaitable[Message]],
) -> None:
    told, cancelled = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            await told.wait()
        except asyncio.CancelledError:
            cancelled.set()

    await run_until_disconnect(work(), receive, told.set)
    assert (told.is_set(), cancelled.is_set()) == (True, False)

    told.clear()
    await run_until_disconnect(work(), receive, None)
    assert cancelled.is_set()


async def test_a_cancellation_from_outside_at_the_end_of_the_work_is_not_lost() -> None:
    async def work() -> None:
        waiting.cancel()

    waiting = asyncio.create_task(run_until_disconnect(work(), never, None))

    with pytest.raises(asyncio.CancelledError):
        await waiting
