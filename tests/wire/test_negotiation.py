"""Which encoding an answer has, by document and Accept header."""

import json

import pytest

from tests.in_one_test import in_one_test
from tests.wire.client import ACCEPT, Client
from tests.wire.documents import CHAT, PLAIN, chat
from tests.wire.merge import merge

pytestmark = pytest.mark.anyio

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
