"""When chunks are delivered, and what becomes of the connection they came over."""

import asyncio
from contextlib import aclosing

import pytest

from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.api.events import TextMessageContent
from tests.adapters.asking import REQUEST, answer_to, said
from tests.adapters.provider import (
    DONE,
    END,
    HANG,
    HEAD,
    Provider,
    Step,
    finish,
    piece,
    saying,
    text,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


async def test_each_chunk_is_delivered_before_the_next_one_is_sent(
    provider: Provider, adapter: OpenAIAdapter
):
    gates = [asyncio.Event() for _ in range(5)]
    pieces: list[Step] = [HEAD]
    for number, gate in enumerate(gates):
        pieces += [gate, piece(text(str(number)))]
    provider.answer([*pieces, piece(finish() + DONE), END])
    seen: list[str] = []

    gates[0].set()
    async with aclosing(adapter.stream(REQUEST)) as events:
        async for event in events:
            if isinstance(event, TextMessageContent):
                seen.append(event.content)
                if len(seen) < 5:
                    gates[len(seen)].set()

    assert seen == ["0", "1", "2", "3", "4"]


async def test_a_finished_answer_leaves_its_connection_for_the_next(
    provider: Provider, adapter: OpenAIAdapter
):
    provider.answer(saying(text("Hi")))
    for _ in range(3):
        await answer_to(adapter)
    assert provider.connections == 1


async def test_a_connection_is_kept_though_its_body_ends_after_the_answer(
    provider: Provider, adapter: OpenAIAdapter
):
    late = asyncio.Event()
    slow: list[Step] = [HEAD, piece(text("Hi") + finish() + DONE), late, END]
    provider.answer(slow, saying(text("Hi")))

    assert await answer_to(adapter) == said("Hi")
    late.set()
    await answer_to(adapter)  # on a second connection, while the first is read to its end
    await asyncio.gather(answer_to(adapter), answer_to(adapter))

    assert (len(provider.requests), provider.connections) == (4, 2)


async def test_a_hundred_cancelled_answers_close_a_hundred_connections(
    provider: Provider, adapter: OpenAIAdapter
):
    provider.answer([HEAD, piece(text("Hi")), HANG])
    tasks = [asyncio.create_task(answer_to(adapter)) for _ in range(100)]
    await provider.until_open(100)
    await provider.until_asked(100)

    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    await provider.until_open(0)


async def test_leaving_an_answer_closes_its_connection(provider: Provider, adapter: OpenAIAdapter):
    provider.answer([HEAD, piece(text("Hi")), HANG])
    async with aclosing(adapter.stream(REQUEST)) as events:
        async for _ in events:
            break
    await provider.until_open(0)


async def test_a_request_cancelled_before_its_answer_closes_its_connection(
    provider: Provider, adapter: OpenAIAdapter
):
    provider.answer([HANG])
    task = asyncio.create_task(answer_to(adapter))
    await provider.until_asked(1)
    task.cancel()
    await provider.until_open(0)
