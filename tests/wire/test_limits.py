"""What is too large, too deep or too slow is refused in time, with a sentence."""

import asyncio
import json
from typing import Any

import pytest
from graphql import get_introspection_query

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.api.hooks import ErrorContext, Hooks
from copilot_runtime.transports.graphql import server
from tests.in_one_test import in_one_test
from tests.wire.client import (
    AGENTS,
    CHAT,
    HEADERS,
    PLAIN,
    Answer,
    Client,
    browser_action,
    chat,
    client_of,
    merge,
    parts,
    user,
)
from tests.wire.upstream import HEAD, SILENCE, Upstream, finish, saying, text

pytestmark = pytest.mark.anyio


def runtime(
    provider: Upstream, *, hooks: Hooks | None = None, idle_timeout: float = 60, **settings: Any
) -> CopilotRuntime:
    adapter = provider.adapter(idle_timeout=idle_timeout, connect_timeout=1)
    return CopilotRuntime(
        adapter=adapter,
        settings=Settings(threads="memory", **settings),
        hooks=hooks,
    )


def refusal(answer: Answer) -> str:
    """Return the sentence of a refusal before anything was started."""
    error = answer.json()["errors"][0]
    assert answer.headers["content-type"].endswith("json; charset=utf-8")
    return error["message"]


async def test_a_message_of_three_megabytes_is_accepted(client: Client, provider: Upstream) -> None:
    # two bytes a word: a long prompt of short words, not of one long one
    message = "a " * 1_500_000

    answer = await client.ask(chat(user(message)))

    assert merge(answer.payloads())["generateCopilotResponse"]["status"]["code"] == "Success"
    assert len(provider.requests) == 1


async def test_a_client_is_told_the_schema_once_in_an_answer(client: Client) -> None:
    whole = await client.ask({"query": get_introspection_query(one_of=True)})
    fields = " ".join(f"a{number}: __schema {{ ...All }}" for number in range(49))
    query = f"{{ {fields} }} fragment All on __Schema {{ types {{ fields {{ name }} }} }}"
    again = await client.ask({"query": query})

    assert (whole.status, whole.json()["data"]["__schema"]["queryType"]["name"]) == (200, "Query")
    assert again.status == 400
    assert refusal(again) == "The document asks for '__schema' 49 times; the limit is 1."


async def test_a_body_over_the_limit_is_refused_by_its_length(provider: Upstream) -> None:
    async with client_of(runtime(provider, max_body_bytes=10_000)) as client:
        answer = await client.ask(chat(user("x" * 10_000)))

    assert answer.status == 413
    assert "10000" in refusal(answer).replace(",", "").replace(" ", "")
    assert provider.requests == []


async def test_a_body_that_hides_its_length_is_refused_as_it_grows(provider: Upstream) -> None:
    async with client_of(runtime(provider, max_body_bytes=10_000)) as client:
        exchange = client.open(chat(user("x" * 10_000)))
        exchange.scope["headers"] = [(k.encode(), v.encode()) for k, v in HEADERS.items()]
        async with exchange:
            await exchange.head()

    assert exchange.status == 413


@in_one_test("length", ["-1", "x", "1e3", "9" * 30])
async def test_a_false_length_is_no_way_around(provider: Upstream, length: str) -> None:
    async with client_of(runtime(provider, max_body_bytes=10_000)) as client:
        exchange = client.open(chat(user("x" * 10_000)))
        fields = {**HEADERS, "content-length": length}
        exchange.scope["headers"] = [(k.encode(), v.encode()) for k, v in fields.items()]
        async with exchange:
            await exchange.head()

    assert exchange.status in {400, 413}


async def test_a_query_over_the_limit_in_the_address_is_refused(client: Client) -> None:
    answer = await client.ask(
        method="GET", path="/copilotkit?query=%7B" + "hello%20" * 5000 + "%7D", headers={}
    )

    assert refusal(answer)


async def test_a_document_too_deep_is_refused(client: Client) -> None:
    answer = await client.ask({"query": "{ a " * 200 + "}" * 200})

    assert answer.status == 400
    assert refusal(answer)


async def test_a_document_so_deep_that_it_would_break_a_parser_is_refused(client: Client) -> None:
    answer = await client.ask({"query": "{a" * 50_000 + "}" * 50_000})

    assert answer.status == 400
    assert refusal(answer)


async def test_a_document_that_is_mostly_a_comment_is_refused_by_its_length(client: Client) -> None:
    answer = await client.ask({"query": "{ hello } #" + "x" * 100_000})

    assert answer.status == 400
    assert "65536 are allowed" in refusal(answer)


async def test_a_bomb_of_aliases_is_refused(client: Client, provider: Upstream) -> None:
    many = " ".join(f"a{number}: hello" for number in range(1000))

    answer = await client.ask({"query": f"{{ {many} }}"})

    assert answer.status == 400
    assert refusal(answer)


async def test_a_bomb_of_fragments_is_refused(client: Client) -> None:
    bomb = " ".join(f"fragment F{n} on Query {{ ...F{n + 1} ...F{n + 1} }}" for n in range(25))

    answer = await client.ask({"query": f"{{ ...F0 }} {bomb} fragment F25 on Query {{ hello }}"})

    assert answer.status in {200, 400}


async def test_fragments_that_name_each_other_are_refused(client: Client) -> None:
    query = "{ ...A } fragment A on Query { ...B } fragment B on Query { ...A }"

    answer = await client.ask({"query": query})

    assert answer.status == 400
    assert refusal(answer)


async def test_too_many_mutations_in_one_document_are_refused(
    client: Client, provider: Upstream
) -> None:
    many = " ".join(f"m{n}: generateCopilotResponse(data: $data) {{ threadId }}" for n in range(60))
    query = f"mutation ($data: GenerateCopilotResponseInput!) {{ {many} }}"

    answer = await client.ask({**chat(query=query), "operationName": None})

    assert answer.status == 400
    assert provider.requests == []


async def test_the_documents_of_the_npm_client_are_within_the_limits(client: Client) -> None:
    answers = [await client.ask(chat()), await client.ask({"query": AGENTS})]

    assert [answer.status for answer in answers] == [200, 200]


MANY = 10_000

TOO_MUCH: dict[str, dict[str, Any]] = {
    "actions": {"frontend": {"actions": [{"name": 1}] * MANY}},
    "context": {"context": [{"value": 1}] * MANY},
    "agentStates": {"agentStates": [{"state": 1}] * MANY},
    "metaEvents": {"metaEvents": [{"value": 1}] * MANY},
    "stop": {"forwardedParameters": {"stop": [1234567] * MANY}},
    "inner": {"metaEvents": [{"messages": [{"inner": [{"a": 1}] * MANY}]}]},
    "data": {f"field-{n}": 1 for n in range(MANY)},
}
"""Each is wrong, too: graphql-core would take seconds to say so."""


@in_one_test("name", TOO_MUCH)
@in_one_test("query", [CHAT, PLAIN], ids=["planned", "executed"])
async def test_too_much_of_anything_is_counted_before_it_is_read(
    query: str, name: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for reader in ("read_input", "experimental_execute_incrementally"):
        monkeypatch.setattr(server, reader, None)

    answer = await client.ask(chat(query=query, **TOO_MUCH[name]))

    assert answer.json()["errors"][0]["extensions"]["code"] == "LIMIT_EXCEEDED"
    assert f" in '{name}'" in refusal(answer)


FEW: dict[str, dict[str, Any]] = {
    "actions": {"frontend": {"actions": [browser_action(f"a{n}") for n in range(4)]}},
    "items of context": {"context": [{"description": "a", "value": "b"}] * 4},
    "states of agents": {"agentStates": [{"agentName": f"a{n}", "state": "{}"} for n in range(4)]},
    "answers to interrupts": {
        "metaEvents": [{"name": "LangGraphInterruptEvent", "value": "1"}] * 4
    },
}


@in_one_test("what", FEW)
@in_one_test("query", [CHAT, PLAIN], ids=["planned", "executed"])
async def test_a_small_request_may_not_have_too_much_of_anything_either(
    query: str, what: str, provider: Upstream
) -> None:
    async with client_of(runtime(provider, max_items=3)) as client:
        answer = await client.ask(chat(query=query, **FEW[what]))

    assert refusal(answer) == f"The request has 4 {what}; 3 are allowed."
    assert provider.requests == []


async def test_properties_are_any_json_and_not_counted_as_input(
    client: Client, provider: Upstream
) -> None:
    body = chat()
    body["variables"]["properties"] = {f"field-{n}": [1] * 10 for n in range(MANY)}

    answer = await client.ask(body)

    assert merge(answer.payloads())["generateCopilotResponse"]["status"]["code"] == "Success"


@in_one_test(
    "body",
    [
        chat(context=[{}] * 101),
        json.dumps(chat()).encode() + b"[" * 200,
        {"query": "{ hello }", "extensions": {"a": [0] * 101}},
    ],
    ids=["input", "no JSON", "unread"],
)
async def test_a_body_of_too_many_values_is_refused_before_it_is_decoded(
    body: Any, provider: Upstream
) -> None:
    async with client_of(runtime(provider, max_values=100)) as client:
        answer = await client.ask(body)

    assert answer.status == 413
    assert refusal(answer) == "The request body has more than 100 values."
    assert provider.requests == []


@in_one_test(
    "more",
    [
        {"agentStates": [{"agentName": "a", "state": json.dumps([0] * 101)}]},
        {"agentStates": [{"agentName": "a", "state": "{}", "config": json.dumps([0] * 101)}]},
        {"frontend": {"actions": [browser_action() | {"jsonSchema": json.dumps([0] * 101)}]}},
    ],
    ids=["state", "config", "schema"],
)
async def test_json_that_comes_as_text_may_not_have_too_many_values_either(
    more: dict[str, Any], provider: Upstream
) -> None:
    async with client_of(runtime(provider, max_values=100)) as client:
        answer = await client.ask(chat(**more))

    assert "has more than 100 values." in refusal(answer)
    assert provider.requests == []


async def test_too_many_messages_are_refused(provider: Upstream) -> None:
    messages = [user("Hi", id=f"user-{number}") for number in range(11)]
    async with client_of(runtime(provider, max_messages=10)) as client:
        answer = await client.ask(chat(*messages))

    assert "10" in refusal(answer)
    assert provider.requests == []


async def test_a_run_too_many_is_asked_to_wait(provider: Upstream) -> None:
    provider.plays([HEAD, text("Hello"), SILENCE])
    async with client_of(runtime(provider, max_concurrent_runs=1)) as client:
        async with client.open(chat()) as first:
            await first.head()
            await first.until(b'["Hello"]')
            answer = await client.ask(chat(threadId="another"))

        assert answer.status == 200
        assert refusal(answer)


async def test_a_silent_model_is_given_up(provider: Upstream) -> None:
    provider.plays([HEAD, text("Hel"), SILENCE])
    async with client_of(runtime(provider, idle_timeout=1)) as client:
        response = merge((await client.ask(chat())).payloads())["generateCopilotResponse"]

    assert response["status"]["details"]["originalError"]["code"] == "NETWORK_ERROR"
    assert response["messages"][0]["content"] == ["Hel"]
    await provider.until(open=0)


async def test_a_model_that_never_begins_is_given_up(provider: Upstream) -> None:
    provider.plays([SILENCE])
    async with client_of(runtime(provider, idle_timeout=1)) as client:
        response = merge((await client.ask(chat())).payloads())["generateCopilotResponse"]

    assert response["status"]["details"]["originalError"]["code"] == "NETWORK_ERROR"
    await provider.until(open=0)


async def test_a_run_that_takes_too_long_is_given_up(provider: Upstream) -> None:
    provider.plays([HEAD, text("Hel"), SILENCE])
    async with client_of(runtime(provider, run_timeout=1)) as client:
        response = merge((await client.ask(chat())).payloads())["generateCopilotResponse"]

    assert response["status"]["code"] == "Failed"
    await provider.until(open=0, hung_up=1)


async def test_an_answer_that_outgrows_its_log_is_cut(provider: Upstream) -> None:
    provider.plays([HEAD, *(text("x" * 1000) for _ in range(1000)), SILENCE])
    async with client_of(runtime(provider, max_bytes_per_run=100_000)) as client:
        response = merge((await client.ask(chat())).payloads())["generateCopilotResponse"]

    assert response["status"]["code"] == "Failed"
    assert "100000" in response["status"]["details"]["description"]
    await provider.until(open=0, hung_up=1)


async def test_a_reader_that_stalls_does_not_grow_memory(provider: Upstream) -> None:
    errors: list[BaseException] = []
    failed = asyncio.Event()

    async def on_error(error: BaseException, context: ErrorContext) -> None:
        errors.append(error)
        failed.set()

    provider.plays([HEAD, *(text("x" * 1000) for _ in range(1000)), SILENCE])
    limited = runtime(provider, hooks=Hooks(error=on_error), max_bytes_per_run=100_000)
    async with client_of(limited) as client, client.open(chat()) as exchange:
        await exchange.head()
        exchange.reading.clear()

        await failed.wait()
        await provider.until(open=0, hung_up=1)

    assert [type(error).__name__ for error in errors] == ["LimitExceeded"]


async def test_a_reader_that_takes_nothing_is_cut_off(provider: Upstream) -> None:
    provider.plays([HEAD, text("Hello"), text(" you"), SILENCE])
    impatient = runtime(provider, write_timeout=0.2)
    async with client_of(impatient) as client, client.open(chat()) as exchange:
        await exchange.head()
        exchange.reading.clear()

        await provider.until(open=0, hung_up=1)


async def test_reading_again_goes_on_where_it_stopped(client: Client, provider: Upstream) -> None:
    words = [f"{number}," for number in range(50)]
    held = asyncio.Event()
    provider.plays([HEAD, *map(text, words), held, finish()])
    async with client.open(chat()) as exchange:
        await exchange.head()
        exchange.reading.clear()
        await provider.until(asked=1)
        held.set()
        await provider.until(open=0)
        exchange.reading.set()

        body = b"\r\n---" + (await exchange.until(b"-----\r\n")).removeprefix(b"\r\n---")

    [message] = merge([json.loads(part) for part in parts(body)])["generateCopilotResponse"][
        "messages"
    ]
    assert message["content"] == words


async def test_introspection_can_be_switched_off(provider: Upstream) -> None:
    async with client_of(runtime(provider, introspection=False)) as client:
        asked = await client.ask({"query": "{ __schema { queryType { name } } }"})
        plain = await client.ask(chat(query=PLAIN))

    assert refusal(asked)
    assert plain.json()["data"]["generateCopilotResponse"]["threadId"] == "thread-1"


async def test_an_answer_of_ten_thousand_pieces_arrives_whole(
    client: Client, provider: Upstream
) -> None:
    words = [f"{number} " for number in range(10_000)]
    provider.plays(saying(*words))

    answer = await client.ask(chat())

    [message] = merge(answer.payloads())["generateCopilotResponse"]["messages"]
    assert message["content"] == words
