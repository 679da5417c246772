"""Bytes of the incremental answer: the 2022 dialect, each delimiter sent with its part."""

import asyncio
import json
import re
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, action
from tests.in_one_test import in_one_test
from tests.wire.client import ACCEPT, CHAT, PLAIN, Client, acting, chat, client_of, merge, parts
from tests.wire.upstream import HEAD, Upstream, call, finish, saying, text

pytestmark = pytest.mark.anyio

FIRST = (
    b'{"data":{"generateCopilotResponse":{"threadId":"thread-1","runId":null,"extensions":null,'
    b'"messages":[],"metaEvents":[],"__typename":"CopilotResponse"}},"hasNext":true}'
)
RESPONSE = ["generateCopilotResponse"]


def frame(part: bytes) -> bytes:
    head = b"\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: %d\r\n\r\n"
    return head % len(part) + part + b"\r\n---"


def single(found: list[Any]) -> list[tuple[list[Any], Any]]:
    """Return item by item, each with its own path: items that came together share a patch."""
    return [
        ([*path, first + offset], item)
        for *path, first, items in ([*patch["path"], patch["items"]] for patch in found)
        for offset, item in enumerate(items)
    ]


def patches(payloads: list[Any]) -> list[Any]:
    return [patch for payload in payloads for patch in payload.get("incremental", [])]


async def test_every_byte_is_framed_as_the_npm_client_needs_it(
    client: Client, provider: Upstream
) -> None:
    provider.plays(saying("The", " quick", " é🙂"))

    answer = await client.ask(chat())

    assert answer.headers["content-type"] == 'multipart/mixed; boundary="-"'
    framed = b"".join(map(frame, parts(answer.body)))
    assert answer.body == b"\r\n---" + framed + b"--\r\n"


async def test_each_write_ends_with_its_delimiter(client: Client, provider: Upstream) -> None:
    provider.plays(saying("The", " quick", " brown"))

    answer = await client.ask(chat())

    assert all(write.endswith((b"\r\n---", b"--\r\n")) for write in answer.writes)


async def test_the_first_part_comes_before_the_model_has_said_anything(
    client: Client, provider: Upstream
) -> None:
    silent = asyncio.Event()
    provider.plays([silent, *saying("Hello")])
    async with client.open(chat()) as exchange:
        await exchange.head()

        assert await exchange.until(frame(FIRST)) == b"\r\n---" + frame(FIRST)
        silent.set()


async def test_a_chat_is_sent_patch_by_patch(client: Client, provider: Upstream) -> None:
    provider.plays(saying("The", " quick"))

    first, *rest = (await client.ask(chat())).payloads()

    [item, *chunks] = [patch for patch in patches(rest) if "items" in patch]
    created = item["items"][0].pop("createdAt")
    message = {
        "__typename": "TextMessageOutput",
        "id": "chatcmpl-1",
        "content": [],
        "role": "assistant",
        "parentMessageId": None,
    }
    assert first["hasNext"] is True
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(Z|\+00:00)", created)
    assert item == {"items": [message], "path": [*RESPONSE, "messages", 0]}
    assert single(chunks) == [
        ([*RESPONSE, "messages", 0, "content", 0], "The"),
        ([*RESPONSE, "messages", 0, "content", 1], " quick"),
    ]


async def test_the_statuses_come_once_and_last(client: Client, provider: Upstream) -> None:
    provider.plays(saying("Hello"))

    payloads = (await client.ask(chat())).payloads()

    success = {"status": {"code": "Success", "__typename": "SuccessResponseStatus"}}
    spoken = {"status": {"code": "Success", "__typename": "SuccessMessageStatus"}}
    of_response = {"data": {**success, "__typename": "CopilotResponse"}, "path": RESPONSE}
    of_message = {
        "data": {**spoken, "__typename": "TextMessageOutput"},
        "path": [*RESPONSE, "messages", 0],
    }
    last_two = sorted(patches(payloads)[-2:], key=lambda patch: len(patch["path"]))
    assert last_two == [of_response, of_message]
    assert [payload["hasNext"] for payload in payloads] == [True] * (len(payloads) - 1) + [False]


async def test_no_token_waits_for_the_next_one(client: Client, provider: Upstream) -> None:
    words = [f"word{number} " for number in range(8)]
    gates = [asyncio.Event() for _ in words]
    script = [step for gate, word in zip(gates, words, strict=True) for step in (gate, text(word))]
    held = asyncio.Event()
    provider.plays([HEAD, *script, held, finish()])
    async with client.open(chat()) as exchange:
        await exchange.head()
        for gate, word in zip(gates, words, strict=True):
            gate.set()
            patch = await exchange.until(f'["{word}"]'.encode())

            assert patch.endswith(b"\r\n---")
        held.set()
        assert (await exchange.until(b"--\r\n")).count(b'"Success"') == 2


async def test_one_delta_of_the_model_is_one_item(client: Client, provider: Upstream) -> None:
    words = [f"{number}," for number in range(30)]
    provider.plays(saying(*words))

    payloads = (await client.ask(chat())).payloads()

    content = single([patch for patch in patches(payloads) if "content" in patch["path"]])
    assert [(path[-1], item) for path, item in content] == [*enumerate(words)]


async def test_a_browser_action_streams_its_arguments(client: Client, provider: Upstream) -> None:
    pieces = [call("", id="call_1", name="setColor"), call('{"color":'), call('"red"}')]
    provider.plays([HEAD, *pieces, finish("tool_calls")])

    payloads = (await client.ask(acting())).payloads()

    chunks = [patch for patch in patches(payloads) if "arguments" in patch["path"]]
    [message] = merge(payloads)["generateCopilotResponse"]["messages"]
    del message["createdAt"]
    assert [(path[-1], item) for path, item in single(chunks)] == [
        (0, '{"color":'),
        (1, '"red"}'),
    ]
    assert message == {
        "__typename": "ActionExecutionMessageOutput",
        "id": "call_1",
        "name": "setColor",
        "arguments": ['{"color":', '"red"}'],
        "parentMessageId": "chatcmpl-1",
        "status": {"code": "Success", "__typename": "SuccessMessageStatus"},
    }


async def test_the_result_of_a_server_action_is_one_item(provider: Upstream) -> None:
    @action
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Hello {name}"

    provider.plays([HEAD, call('{"name":"Ada"}', id="call_1", name="greet"), finish("tool_calls")])
    async with client_of(CopilotRuntime(adapter=provider.adapter(), actions=[greet])) as client:
        payloads = (await client.ask(chat())).payloads()

    result = merge(payloads)["generateCopilotResponse"]["messages"][1]
    del result["createdAt"]
    assert result == {
        "__typename": "ResultMessageOutput",
        "id": "result-call_1",
        "result": "Hello Ada",
        "actionExecutionId": "call_1",
        "actionName": "greet",
        "status": {"code": "Success", "__typename": "SuccessMessageStatus"},
    }


async def test_mixed_pieces_of_two_calls_each_find_their_call(
    client: Client, provider: Upstream
) -> None:
    provider.plays(
        [
            HEAD,
            call("", id="call_1", name="setColor"),
            call("", index=1, id="call_2", name="setColor"),
            call('{"color":"red"}'),
            call('{"color":"blue"}', index=1),
            finish("tool_calls"),
        ]
    )

    payloads = (await client.ask(acting())).payloads()

    messages = merge(payloads)["generateCopilotResponse"]["messages"]
    assert [(m["id"], "".join(m["arguments"])) for m in messages] == [
        ("call_1", '{"color":"red"}'),
        ("call_2", '{"color":"blue"}'),
    ]


async def test_a_chat_without_thread_gets_one(client: Client) -> None:
    answer = await client.ask(chat(threadId=None))

    thread = answer.payloads()[0]["data"]["generateCopilotResponse"]["threadId"]
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", thread)


MULTIPART = 'multipart/mixed; boundary="-"'
RESPONSE_JSON = "application/graphql-response+json; charset=utf-8"
JSON = "application/json; charset=utf-8"


def accepting(value: str | None) -> dict[str, str]:
    return {"content-type": "application/json", **({"accept": value} if value else {})}


@in_one_test(
    "accept",
    [
        ACCEPT,
        "*/*",
        None,
        "multipart/mixed",
        "text/event-stream, multipart/mixed",
        "multipart/mixed;q=0.5, application/json",
    ],
)
async def test_an_incremental_document_is_answered_in_parts(
    client: Client, accept: str | None
) -> None:
    answer = await client.ask(chat(), headers=accepting(accept))

    assert (answer.status, answer.headers["content-type"]) == (200, MULTIPART)


async def test_whoever_accepts_only_events_gets_events_with_the_same_content(
    client: Client,
) -> None:
    answer = await client.ask(chat(), headers=accepting("text/event-stream"))

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert b"\r" not in answer.body
    events = [event for event in answer.body.split(b"\n\n") if b"data: {" in event]
    payloads = [json.loads(event.split(b"data: ", 1)[1]) for event in events]
    [message] = merge(payloads)["generateCopilotResponse"]["messages"]
    assert message["content"] == ["Hello"]
    assert b"event: complete" in answer.body


async def test_whoever_accepts_only_json_cannot_have_an_incremental_document(
    client: Client,
) -> None:
    answer = await client.ask(chat(), headers=accepting("application/json"))

    assert answer.status == 406


@in_one_test(
    ("accept", "expected"),
    [(ACCEPT, RESPONSE_JSON), ("*/*", JSON), (None, JSON), ("application/json", JSON)],
)
@in_one_test("body", [{"query": "{ hello }"}, chat(query=PLAIN)], ids=["query", "chat"])
async def test_anything_else_is_answered_at_once_as_json(
    client: Client, accept: str | None, expected: str, body: object
) -> None:
    answer = await client.ask(body, headers=accepting(accept))

    assert (answer.status, answer.headers["content-type"]) == (200, expected)
    assert answer.headers["content-length"] == str(len(answer.body))
    assert "data" in answer.json()


async def test_directives_switched_off_make_a_plain_answer(client: Client) -> None:
    off = CHAT.replace("@defer", "@defer(if: false)").replace("@stream", "@stream(if: false)")

    answer = await client.ask(chat(query=off))

    assert answer.headers["content-type"] == RESPONSE_JSON
    response = answer.json()["data"]["generateCopilotResponse"]
    assert response["messages"][0]["content"] == ["Hello"]
    assert response["status"] == {"code": "Success", "__typename": "SuccessResponseStatus"}


async def test_nothing_on_the_way_may_hold_back_or_compress_a_stream(client: Client) -> None:
    headers = {**accepting(ACCEPT), "accept-encoding": "gzip, br"}

    answer = await client.ask(chat(), headers=headers)

    assert answer.headers["x-accel-buffering"] == "no"
    assert "no-cache" in answer.headers["cache-control"]
    assert answer.headers.get("content-encoding", "identity") == "identity"
    assert "content-length" not in answer.headers
