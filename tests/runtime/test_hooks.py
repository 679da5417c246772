"""Functions of the application around a run."""

import asyncio
import logging
import threading
from collections.abc import Awaitable

import pytest

from copilot_runtime.api.hooks import call, call_quietly
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


async def double(number: int) -> int:
    return 2 * number


class Doubler:
    async def __call__(self, number: int) -> int:
        return 2 * number


def later(number: int) -> Awaitable[int]:
    return double(number)


@in_one_test("hook", [double, Doubler(), later, lambda number: 2 * number])  # pyright: ignore[reportUnknownLambdaType]
async def test_a_hook_may_be_async_or_not(hook: object) -> None:
    assert await call(hook, 21) == 42  # type: ignore[arg-type]


async def test_no_hook_is_no_work() -> None:
    assert await call(None, 21) is None


async def test_a_plain_hook_that_blocks_holds_up_nobody_else() -> None:
    release = threading.Event()
    blocked = asyncio.create_task(call(release.wait, 30))
    assert await call(double, 1) == 2
    assert not blocked.done()
    release.set()
    assert await blocked is True


async def test_a_failing_hook_fails_its_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        await call(lambda: 1 / 0)


async def test_a_quiet_hook_that_fails_is_logged_with_its_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def after() -> None:
        raise RuntimeError("the database is gone")

    with caplog.at_level(logging.ERROR):
        await call_quietly(after)
    assert "after failed" in caplog.text
    assert "the database is gone" in caplog.text
