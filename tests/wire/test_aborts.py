"""A browser that leaves takes the call to the model with it."""

import asyncio

import pytest

from copilot_runtime import CopilotRuntime, action
from copilot_runtime.api import RunInput
from copilot_runtime.api.hooks import Hooks
from tests.wire.client import Client, client_of
from tests.wire.documents import PLAIN, chat
from tests.wire.upstream import HEAD, SILENCE, Upstream, call, finish, text

pytestmark = pytest.mark.anyio


async def test_a_hundred_aborted_chats_leave_no_call_open(
    client: Client, provider: Upstream
) -> None:
    provider.plays([HEAD, text("Hello"), SILENCE])

    async def abort(number: int) -> None:
        async with client.open(chat(threadId=f"thread-{number}")) as exchange:
            await exchange.head()
            await exchange.until(b'["Hello"]')
            exchange.hang_up()

    await asyncio.gather(*map(abort, range(100)))

    await provider.until(open=0, hung_up=100)


async def test_leaving_before_the_first_token_closes_the_call(
    client: Client, provider: Upstream
) -> None:
    provider.plays([SILENCE])
    async with client.open(chat()) as exchange:
        await exchange.head()
        await provider.until(asked=1)
        exchange.hang_up()

        await provider.until(open=0, hung_up=1)


async def test_leaving_a_plain_answer_closes_the_call(client: Client, provider: Upstream) -> None:
    provider.plays([HEAD, text("Hello"), SILENCE])
    async with client.open(chat(query=PLAIN)) as exchange:
        await provider.until(asked=1)
        exchange.hang_up()

        await provider.until(open=0, hung_up=1)


async def test_leaving_cancels_the_action_at_work(provider: Upstream) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    @action
    async def dawdle() -> None:
        """Never end."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    provider.plays([HEAD, call("{}", id="call_1", name="dawdle"), finish("tool_calls")])
    async with client_of(CopilotRuntime(adapter=provider.adapter(), actions=[dawdle])) as client:
        async with client.open(chat()) as exchange:
            await exchange.head()
            await began.wait()
            exchange.hang_up()

        await cancelled.wait()


async def test_the_stop_hook_is_called_once(provider: Upstream) -> None:
    stopped: list[str] = []
    called = asyncio.Event()

    async def on_stop(run: RunInput) -> None:
        stopped.append(run.thread_id)
        called.set()

    provider.plays([HEAD, text("Hello"), SILENCE])
    async with client_of(
        CopilotRuntime(adapter=provider.adapter(), hooks=Hooks(stop=on_stop))
    ) as client:
        async with client.open(chat()) as exchange:
            await exchange.head()
            await exchange.until(b'["Hello"]')
            exchange.hang_up()
        await called.wait()

    assert stopped == ["thread-1"]


async def test_stopping_the_server_ends_what_is_under_way(provider: Upstream) -> None:
    provider.plays([HEAD, text("Hello"), SILENCE])
    async with client_of(CopilotRuntime(adapter=provider.adapter())) as client:
        exchange = client.open(chat())
        await exchange.__aenter__()
        await exchange.head()
        await exchange.until(b'["Hello"]')

    await provider.until(open=0, hung_up=1)
    assert b'"Failed"' in await exchange.until(b"--\r\n")
    await exchange.__aexit__(None, None, None)
