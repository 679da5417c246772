"""Both error channels: before the first payload, and in the status of the response."""

import asyncio
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, EmptyAdapter, action
from copilot_runtime.api import RunInput
from copilot_runtime.api.hooks import Hooks
from copilot_runtime.base.errors import CopilotError
from tests.in_one_test import in_one_test
from tests.wire.client import CHAT, Answer, Client, chat, client_of, merge, user
from tests.wire.upstream import HEAD, Upstream, call, finish, refusing, saying

pytestmark = pytest.mark.anyio

SECRET = "sk-secret-1234"
RETRY_SOON = "retry-after-ms: 1"


def failure(answer: Answer) -> dict[str, Any]:
    """Return the error of a failed response."""
    status = merge(answer.payloads())["generateCopilotResponse"]["status"]
    assert (status["code"], status["reason"]) == ("Failed", "UNKNOWN_ERROR")
    return status["details"]


async def test_before_the_first_payload_an_error_is_json_with_status_200() -> None:
    async with client_of(CopilotRuntime(adapter=EmptyAdapter())) as client:
        answer = await client.ask(chat())

    [error] = answer.json()["errors"]
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/graphql-response+json; charset=utf-8"
    assert answer.json()["data"] is None
    assert error["path"] == ["generateCopilotResponse"]
    extensions = {k: v for k, v in error["extensions"].items() if k != "originalError"}
    assert extensions == {
        "name": "CopilotError",
        "statusCode": 400,
        "code": "MISUSE",
        "visibility": "dev_only",
        "severity": "warning",
        "troubleshootingUrl": None,
    }


async def test_an_unknown_agent_is_named_together_with_the_known_ones(client: Client) -> None:
    answer = await client.ask(chat(agentSession={"agentName": "nobody"}))

    [error] = answer.json()["errors"]
    assert answer.status == 200
    assert "nobody" in error["message"]
    assert error["extensions"]["code"] == "AGENT_NOT_FOUND"
    assert error["extensions"]["visibility"] == "banner"


async def test_a_hook_that_raises_on_purpose_speaks_to_the_person(provider: Upstream) -> None:
    def before(run: RunInput) -> None:
        raise CopilotError("Not on Sundays.")

    async with client_of(
        CopilotRuntime(adapter=provider.adapter(), hooks=Hooks(before_request=before))
    ) as client:
        answer = await client.ask(chat())

    assert answer.json()["errors"][0]["message"] == "Not on Sundays."
    assert provider.requests == []


async def test_a_hook_that_breaks_tells_the_person_nothing(provider: Upstream) -> None:
    def before(run: RunInput) -> None:
        raise KeyError(SECRET)

    async with client_of(
        CopilotRuntime(adapter=provider.adapter(), hooks=Hooks(before_request=before))
    ) as client:
        answer = await client.ask(chat())

    assert answer.status == 200
    assert answer.json()["errors"][0]["message"]
    assert SECRET.encode() not in answer.body
    assert b"Traceback" not in answer.body


@in_one_test(
    ("status", "code"),
    [
        (400, "CONFIGURATION_ERROR"),
        (401, "AUTHENTICATION_ERROR"),
        (404, "CONFIGURATION_ERROR"),
        (429, "RATE_LIMITED"),
        (500, "NETWORK_ERROR"),
        (503, "NETWORK_ERROR"),
    ],
)
async def test_a_refusal_of_the_model_is_the_status_of_the_response(
    client: Client, provider: Upstream, status: int, code: str
) -> None:
    provider.plays(refusing(status, "The model says no.", RETRY_SOON))

    answer = await client.ask(chat())

    details = failure(answer)
    original = details["originalError"]
    assert (original["code"], original["statusCode"]) == (code, status)
    assert original["visibility"] == "banner"
    assert details["description"] == f"OpenAI API error: {status} The model says no."
    assert b"stack" not in answer.body


async def test_a_key_echoed_by_the_provider_does_not_reach_the_browser(provider: Upstream) -> None:
    provider.plays(refusing(401, f"Incorrect API key provided: {SECRET}."))
    async with client_of(CopilotRuntime(adapter=provider.adapter(api_key=SECRET))) as client:
        answer = await client.ask(chat())

    assert failure(answer)["originalError"]["code"] == "AUTHENTICATION_ERROR"
    assert SECRET.encode() not in answer.body


async def test_an_action_that_raises_is_a_result_and_the_chat_goes_on(provider: Upstream) -> None:
    @action
    def explode() -> None:
        """Always raise."""
        raise CopilotError("kaboom")

    provider.plays([HEAD, call("{}", id="call_1", name="explode"), finish("tool_calls")])
    async with client_of(CopilotRuntime(adapter=provider.adapter(), actions=[explode])) as client:
        response = merge((await client.ask(chat())).payloads())["generateCopilotResponse"]

    assert response["status"]["code"] == "Success"
    assert response["messages"][1]["result"] == (
        '{"error":{"code":"HANDLER_ERROR","message":"kaboom"},"result":""}'
    )


@in_one_test("arguments", ['{"name":', "", "[]", "5", '"x"', "{} {}", '{"name": 5}'])
async def test_malformed_arguments_end_in_a_result(provider: Upstream, arguments: str) -> None:
    @action
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Hello {name}"

    provider.plays([HEAD, call(arguments, id="call_1", name="greet"), finish("tool_calls")])
    async with client_of(CopilotRuntime(adapter=provider.adapter(), actions=[greet])) as client:
        response = merge((await client.ask(chat())).payloads())["generateCopilotResponse"]

    assert response["status"]["code"] == "Success"
    assert '"code":"INVALID_ARGUMENTS"' in response["messages"][1]["result"]


@in_one_test("count", ["-1", "null"])
async def test_a_negative_initial_count_is_the_mistake_of_the_client(
    client: Client, provider: Upstream, count: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider.plays(saying("Hello"))
    query = CHAT.replace("@stream", f"@stream(initialCount: {count})", 1)
    answer = await client.ask(chat(query=query))

    [error] = answer.json()["errors"]
    assert error["message"] == "initialCount must be a positive integer"
    assert error["extensions"] == {"code": "BAD_USER_INPUT"}
    assert [record for record in caplog.records if record.exc_info] == []


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
