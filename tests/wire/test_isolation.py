"""Runtimes, actions and chats in one process leave each other alone."""

import asyncio
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, action
from tests.wire.client import Client, client_of
from tests.wire.documents import chat, user
from tests.wire.merge import merge
from tests.wire.upstream import HEAD, Upstream, call, finish, saying

pytestmark = pytest.mark.anyio


def runtime(provider: Upstream, *actions: Any) -> CopilotRuntime:
    return CopilotRuntime(adapter=provider.adapter(), actions=list(actions))


def calling(*names: str) -> list[Any]:
    calls = [call("{}", index=i, id=f"call_{i}", name=name) for i, name in enumerate(names)]
    return [HEAD, *calls, finish("tool_calls")]


async def results(client: Client) -> dict[str, str]:
    response = merge((await client.ask(chat())).payloads())["generateCopilotResponse"]
    assert response["status"]["code"] == "Success"
    return {m["actionName"]: m["result"] for m in response["messages"] if "result" in m}


async def test_two_runtimes_with_an_action_of_one_name_do_not_mix(provider: Upstream) -> None:
    @action(name="where")
    def here() -> str:
        """Say where."""
        return "here"

    @action(name="where")
    def there() -> str:
        """Say where."""
        return "there"

    provider.plays(calling("where"))
    async with (
        client_of(runtime(provider, here)) as one,
        client_of(runtime(provider, there)) as two,
    ):
        found = await asyncio.gather(*(results(client) for client in [one, two] * 5))

    assert found == [{"where": "here"}, {"where": "there"}] * 5


async def test_a_failing_action_disables_no_other(provider: Upstream) -> None:
    @action
    def explode() -> None:
        """Always raise."""
        raise RuntimeError("kaboom")

    @action
    def greet() -> str:
        """Greet."""
        return "Hello"

    provider.plays(calling("explode", "greet"), calling("greet"))
    async with client_of(runtime(provider, explode, greet)) as client:
        both, after = await results(client), await results(client)

    assert "HANDLER_ERROR" in both["explode"]
    assert both["greet"] == "Hello"
    assert after == {"greet": "Hello"}


async def test_a_chat_that_fails_leaves_the_others_alone(
    client: Client, provider: Upstream
) -> None:
    provider.plays([HEAD, b"nonsense"], saying("fine"))
    failed = merge((await client.ask(chat())).payloads())["generateCopilotResponse"]
    fine = merge((await client.ask(chat())).payloads())["generateCopilotResponse"]

    assert (failed["status"]["code"], fine["status"]["code"]) == ("Failed", "Success")
    assert fine["messages"][0]["content"] == ["fine"]


async def test_a_hundred_chats_at_once_each_get_their_own_answer(
    client: Client, provider: Upstream
) -> None:
    async def one(number: int) -> str:
        answer = await client.ask(chat(user(f"chat {number}"), threadId=f"thread-{number}"))
        return merge(answer.payloads())["generateCopilotResponse"]["threadId"]

    threads = await asyncio.gather(*map(one, range(100)))

    assert threads == [f"thread-{number}" for number in range(100)]
    asked = {request["messages"][0]["content"] for request in provider.requests}
    assert asked == {f"chat {number}" for number in range(100)}
