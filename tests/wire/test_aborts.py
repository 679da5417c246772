"""A browser that leaves takes the call to the model with it."""

import asyncio
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, action
from copilot_runtime.api import RunInput
from copilot_runtime.api.hooks import Hooks
from tests.in_one_test import in_one_test
from tests.wire.client import PLAIN, Client, acting, chat, client_of, merge
from tests.wire.upstream import (
    DONE,
    END,
    HEAD,
    RESET,
    SILENCE,
    Step,
    Upstream,
    call,
    delta,
    finish,
    piece,
    text,
)

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


HTML = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 0\r\n\r\n"

DEATHS: dict[str, list[Step]] = {
    "before the first byte": [RESET],
    "within the status line": [b"HTTP/1.1 20", RESET],
    "after the head": [HEAD, RESET],
    "within a text": [HEAD, text("Hel"), RESET],
    "within a line": [HEAD, text("Hel"), b'ff\r\ndata: {"cho', RESET],
    "within the arguments of a call": [HEAD, call('{"co', id="call_1", name="setColor"), RESET],
    "before the end": [HEAD, text("Hel"), b"0"],
}
NONSENSE: dict[str, list[Step]] = {
    "no HTTP": [b"SSH-2.0-nonsense\r\n\r\n"],
    "a page": [HTML],
    "no JSON": [HEAD, text("Hel"), piece(b"data: {nonsense\n\n"), END],
    "no object": [HEAD, text("Hel"), piece(b"data: [1,2]\n\n"), END],
    "broken text": [HEAD, text("Hel"), piece(b'data: {"choices":[{"delta":"\xff\xfe\n\n'), END],
    "an error in the stream": [HEAD, piece(b'data: {"error":{"message":"overloaded"}}\n\n'), END],
}
ODD_BUT_FINE: dict[str, list[Step]] = {
    "comments and empty lines": [HEAD, piece(b": ping\n\n\n\n"), text("Hello"), finish()],
    "CRLF": [
        HEAD,
        piece(delta({"content": "Hello"}).replace(b"\n", b"\r\n")),
        finish(),
    ],
    "no space after the colon": [
        HEAD,
        piece(delta({"content": "Hello"}).replace(b"data: ", b"data:")),
        finish(),
    ],
    "chunks without choices": [
        HEAD,
        piece(b'data: {"id":"chatcmpl-1","choices":[]}\n\n'),
        text("Hello"),
        piece(b'data: {"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":1}}\n\n'),
        finish(),
    ],
    "nulls": [
        HEAD,
        piece(delta({"role": "assistant", "content": None, "tool_calls": None})),
        text("Hello"),
        finish(),
    ],
    "words after the end": [
        HEAD,
        text("Hello"),
        piece(delta({}, finish="stop") + DONE),
        text("x"),
        END,
    ],
}


async def response_of(client: Client) -> dict[str, Any]:
    answer = await client.ask(acting())
    return merge(answer.payloads())["generateCopilotResponse"]


@in_one_test("when", DEATHS)
async def test_a_model_that_dies_ends_the_response_with_a_network_error(
    client: Client, provider: Upstream, when: str
) -> None:
    provider.plays(DEATHS[when])

    response = await response_of(client)

    assert response["status"]["code"] == "Failed"
    assert response["status"]["details"]["originalError"]["code"] == "NETWORK_ERROR"
    assert {message["status"]["code"] for message in response["messages"]} <= {"Failed"}


async def test_text_that_came_before_the_death_is_kept(client: Client, provider: Upstream) -> None:
    provider.plays([HEAD, text("Hel"), text("lo"), RESET])

    [message] = (await response_of(client))["messages"]

    assert message["content"] == ["Hel", "lo"]
    assert message["status"]["reason"] == "Error streaming message content"


async def test_arguments_that_came_before_the_death_are_kept(
    client: Client, provider: Upstream
) -> None:
    provider.plays(DEATHS["within the arguments of a call"])

    [message] = (await response_of(client))["messages"]

    assert message["arguments"] == ['{"co']
    assert message["status"]["reason"] == (
        "An unknown error has occurred in the action execution argument stream"
    )


@in_one_test("what", NONSENSE)
async def test_a_model_that_talks_nonsense_ends_the_response_with_a_failure(
    client: Client, provider: Upstream, what: str
) -> None:
    provider.plays(NONSENSE[what])

    response = await response_of(client)

    assert response["status"]["code"] == "Failed"
    assert response["status"]["details"]["description"]


@in_one_test("what", ODD_BUT_FINE)
async def test_a_model_may_be_odd(client: Client, provider: Upstream, what: str) -> None:
    provider.plays(ODD_BUT_FINE[what])

    response = await response_of(client)

    assert response["status"]["code"] == "Success"
    assert ["".join(message["content"]) for message in response["messages"]] == ["Hello"]


async def test_an_empty_answer_is_no_failure_of_ours(client: Client, provider: Upstream) -> None:
    provider.plays([EMPTY])

    response = await response_of(client)

    assert response["status"]["code"] in {"Success", "Failed"}
    assert response["messages"] == []


async def test_characters_and_lines_may_be_split_anywhere(
    client: Client, provider: Upstream
) -> None:
    stream = delta({"content": "é🙂"}) + delta({"content": "漢"}) + delta({}, finish="stop") + DONE
    provider.plays([HEAD, *(piece(bytes([byte])) for byte in stream), END])

    [message] = (await response_of(client))["messages"]

    assert message["content"] == ["é🙂", "漢"]


async def test_half_a_character_in_an_escape_does_not_break_the_answer(
    client: Client, provider: Upstream
) -> None:
    halves = [
        b'{"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"\\ude42 ok"}}]}',
    ]
    provider.plays([HEAD, *(piece(b"data: " + half + b"\n\n") for half in halves), finish()])

    response = await response_of(client)

    assert response["status"]["code"] == "Success"
    assert "".join(response["messages"][0]["content"]).endswith(" ok")
