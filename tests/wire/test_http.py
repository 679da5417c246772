"""The endpoint answers plain HTTP as the Node runtime 1.10.6 was recorded to."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from copilot_runtime import CopilotRuntime, Settings
from tests.in_one_test import in_one_test
from tests.wire.client import ACCEPT, HEADERS, PATH, PLAIN, Client, chat, client_of, data, user
from tests.wire.upstream import Upstream

pytestmark = pytest.mark.anyio

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "node" / "exchanges.json").read_text()
)
OUR_WORDS = {"invalid_json", "empty_body", "no_query"}
"""Recordings whose message we say differently; status and headers are the same."""


@in_one_test("name", RECORDED)
async def test_a_recorded_request_is_answered_as_recorded(client: Client, name: str) -> None:
    request, expected = RECORDED[name]["request"], RECORDED[name]["response"]
    body = (request["body"] or "").encode()

    answer = await client.ask(
        body, method=request["method"], path=request["path"], headers=request["headers"]
    )

    headers = {key: answer.headers.get(key) for key in expected["headers"]}
    assert (answer.status, headers) == (expected["status"], expected["headers"])
    if name in OUR_WORDS:
        assert answer.json()["errors"][0]["extensions"]["code"] == "BAD_REQUEST"
    elif expected["body"]:
        body = answer.body.decode().replace("'", '\\"')  # graphql-core quotes names in its own way
        assert json.loads(body) == json.loads(expected["body"])


async def test_without_origin_there_are_no_cors_headers(client: Client) -> None:
    answer = await client.ask({"query": "{ hello }"})

    assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_a_stream_carries_cors_headers(client: Client) -> None:
    headers = {**HEADERS, "origin": "http://app.example"}

    answer = await client.ask(chat(), headers=headers)

    assert answer.headers["access-control-allow-origin"] == "http://app.example"
    assert answer.headers["access-control-allow-credentials"] == "true"
    assert "Origin" in answer.headers["vary"]


async def test_a_refusal_carries_cors_headers(client: Client) -> None:
    headers = {**HEADERS, "origin": "http://app.example"}

    answer = await client.ask(b"{", headers=headers)

    assert answer.status == 400
    assert answer.headers["access-control-allow-origin"] == "http://app.example"


@in_one_test("body", [chat(), {"query": "{ hello }"}, b"{"], ids=["stream", "query", "error"])
async def test_the_version_header_echoes_the_client(client: Client, body: object) -> None:
    headers = {**HEADERS, "x-copilotkit-runtime-client-gql-version": "1.10.6"}

    answer = await client.ask(body, headers=headers)

    assert answer.headers["x-copilotkit-runtime-version"] == "1.10.6"


async def test_a_client_without_version_gets_no_version_header(client: Client) -> None:
    answer = await client.ask({"query": "{ hello }"})

    assert "x-copilotkit-runtime-version" not in answer.headers


@in_one_test("version", ["1\r\nset-cookie: a=b", "x" * 5000, "1.10.6\x00", "é"])
async def test_a_malicious_version_is_not_echoed(client: Client, version: str) -> None:
    headers = {**HEADERS, "x-copilotkit-runtime-client-gql-version": version}

    answer = await client.ask({"query": "{ hello }"}, headers=headers)

    assert answer.status == 200
    assert answer.headers.get("x-copilotkit-runtime-version", "") in {"", "1"}


async def test_a_charset_in_the_content_type_is_fine(client: Client) -> None:
    headers = {**HEADERS, "content-type": "application/json; charset=utf-8"}

    answer = await client.ask({"query": "{ hello }"}, headers=headers)

    assert answer.json() == {"data": {"hello": "Hello World"}}


@in_one_test(
    "body",
    [
        b"\xff\xfe",
        b'"text"',
        b"null",
        b"5",
        b'{"query": 5}',
        b'{"query": null}',
        b'{"query": ""}',
        b'{"query": "{ hello }", "variables": []}',
        b'{"query": "{ hello }", "variables": "x"}',
        b'{"query": "{ hello }", "operationName": 5}',
        b"[" * 100_000,
        b'{"query": "{ hello }", "variables": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001,
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
async def test_a_body_that_is_no_request_is_refused_with_a_sentence(
    client: Client, body: bytes
) -> None:
    answer = await client.ask(body)

    assert answer.status == 400
    assert answer.json()["errors"][0]["message"]


@in_one_test(
    ("change", "words"),
    [
        ({"metadata": {"requestType": "Nope"}}, "CopilotRequestType"),
        ({"messages": None}, "messages"),
        ({"surprise": 1}, "surprise"),
        ({"threadId": {"a": 1}}, "threadId"),
        ({"messages": [{"id": "1", "createdAt": "no date"}]}, "createdAt"),
    ],
)
async def test_wrong_variables_are_named(
    client: Client, change: dict[str, Any], words: str
) -> None:
    answer = await client.ask(chat(**change))

    assert answer.status == 400
    assert words in answer.json()["errors"][0]["message"]
    assert "extensions" not in answer.json()["errors"][0]


async def test_a_missing_variable_is_named(client: Client) -> None:
    body = chat()
    del body["variables"]["data"]

    answer = await client.ask(body)

    assert answer.status == 400
    assert "$data" in answer.json()["errors"][0]["message"]


async def test_an_unknown_operation_name_is_refused(client: Client) -> None:
    answer = await client.ask({**chat(), "operationName": "other"})

    assert answer.status == 400
    assert answer.json()["errors"][0]["extensions"] == {"code": "OPERATION_RESOLUTION_FAILURE"}


async def test_a_mutation_is_not_for_get(client: Client, provider: Upstream) -> None:
    field = "generateCopilotResponse(data: {messages: [], frontend: {actions: []}, metadata: {}})"
    query = quote(f"mutation {{ {field} {{ threadId }} }}")

    answer = await client.ask(method="GET", path=f"{PATH}?query={query}")

    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["errors"][0]["message"] == (
        "Can only perform a mutation operation from a POST request."
    )
    assert provider.requests == []


@in_one_test("method", ["DELETE", "PATCH", "PUT"])
async def test_other_methods_are_not_allowed(client: Client, method: str) -> None:
    answer = await client.ask({"query": "{ hello }"}, method=method)

    assert (answer.status, answer.headers["allow"]) == (405, "GET, POST")


async def test_a_query_string_is_tolerated(client: Client) -> None:
    answer = await client.ask({"query": "{ hello }"}, path=f"{PATH}?trace=1")

    assert answer.json() == {"data": {"hello": "Hello World"}}


async def test_half_an_emoji_in_a_message_is_no_reason_to_refuse_it(
    client: Client, provider: Upstream
) -> None:
    body = json.dumps(chat(user("cut off \ud83d"))).encode()

    answer = await client.ask(body)

    assert answer.status == 200
    assert provider.requests[0]["messages"][0]["content"].startswith("cut off ")


@in_one_test(
    "body",
    [b'{"query": "{ hello }", "variables": {"cut": "\\ud83d", "number": NaN}}', b'"\\ud83d" NaN'],
)
async def test_half_an_emoji_does_not_excuse_what_else_is_wrong(
    client: Client, body: bytes
) -> None:
    answer = await client.ask(body)

    assert (answer.status, answer.json()["errors"][0]["extensions"]) == (
        400,
        {"code": "BAD_REQUEST"},
    )


async def test_a_query_string_of_many_fields_is_refused(client: Client) -> None:
    answer = await client.ask(method="GET", path=f"{PATH}?query={{hello}}" + "&more=1" * 30)

    assert answer.status == 400
    assert answer.json()["errors"][0]["message"] == "Too many fields; a request has four."


@in_one_test("content_type", ["application/x-www-form-urlencoded", ""])
async def test_a_form_of_a_foreign_page_starts_nothing(
    provider: Upstream, content_type: str
) -> None:
    settings = Settings(threads="memory", cors_origins=("http://ours.example",))
    form = {"query": PLAIN, "variables": json.dumps({"data": data()})}
    headers = {"accept": ACCEPT, "content-type": content_type, "origin": "http://theirs.example"}

    async with client_of(CopilotRuntime(adapter=provider.adapter(), settings=settings)) as client:
        answer = await client.ask(urlencode(form).encode(), headers=headers)

    assert answer.status == 403
    assert provider.requests == []


async def test_a_form_of_an_allowed_page_is_answered(client: Client) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded", "origin": "http://a.example"}

    answer = await client.ask(urlencode({"query": "{ hello }"}).encode(), headers=headers)

    assert answer.json() == {"data": {"hello": "Hello World"}}
