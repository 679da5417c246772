"""Documents nobody's client sends today, and everybody may write tomorrow."""

import re
from typing import Any

import pytest

from copilot_runtime import CopilotRuntime, action
from tests.in_one_test import in_one_test
from tests.wire.client import CHAT, PLAIN, WHEN, Client, chat, client_of, merge, user
from tests.wire.upstream import HEAD, Upstream, call, finish, text

pytestmark = pytest.mark.anyio

HEADER = (
    "mutation generateCopilotResponse($data: GenerateCopilotResponseInput!, $properties: JSONObject"
)
ALIASED = """
mutation ($data: GenerateCopilotResponseInput!) {
  answer: generateCopilotResponse(data: $data) {
    thread: threadId
    ... @defer { end: status { kind: __typename ... on BaseResponseStatus { word: code } } }
    said: messages @stream {
      kind: __typename
      ... on TextMessageOutput { key: id pieces: content @stream again: content }
      ... on ActionExecutionMessageOutput { key: id json: arguments @stream name }
      ... on ResultMessageOutput { key: id came: result }
    }
  }
}
"""
FRAGMENTS = """
mutation ($data: GenerateCopilotResponseInput!) {
  generateCopilotResponse(data: $data) { ...Outer @defer messages @stream { ...Words ...Call } }
}
fragment Outer on CopilotResponse { status { ...State } threadId }
fragment State on ResponseStatus { ... on BaseResponseStatus { code } }
fragment Words on TextMessageOutput { id content @stream ...Late @defer }
fragment Late on BaseMessageOutput { status { ... on SuccessMessageStatus { code } } }
fragment Call on ActionExecutionMessageOutput { id name arguments @stream }
"""
CONDITIONS = """
mutation ($data: GenerateCopilotResponseInput!, $yes: Boolean = true, $no: Boolean = false) {
  generateCopilotResponse(data: $data) {
    threadId @skip(if: $yes)
    runId @include(if: $no)
    status @include(if: $yes) { __typename }
    messages @stream(if: $yes) {
      ... on TextMessageOutput { id @skip(if: $no) role @include(if: $no) content @stream(if: $no) }
      ... on BaseMessageOutput @defer(if: $yes) { status { __typename } }
      ... on ResultMessageOutput @include(if: $no) { result }
    }
  }
}
"""
VARIANTS = {
    "as it is": CHAT,
    "only streams": CHAT.replace(" @defer", ""),
    "only deferred": CHAT.replace(" @stream", ""),
    "only messages stream": CHAT.replace("content @stream", "content").replace(
        "arguments @stream", "arguments"
    ),
    "only content streams": CHAT.replace("messages @stream", "messages"),
    "labels": re.sub(
        r"@stream", '@stream(label: "s")', CHAT.replace("@defer", '@defer(label: "d")', 1), count=1
    ),
    "initial count of one": CHAT.replace("@stream", "@stream(initialCount: 1)"),
    "initial count beyond": CHAT.replace("@stream", "@stream(initialCount: 99)"),
    "without __typename": CHAT.replace("__typename\n", "\n").replace(
        "... on CopilotKitLangGraphInterruptEvent {",
        "... on CopilotKitLangGraphInterruptEvent { type",
    ),
    "aliases": ALIASED,
    "fragments": FRAGMENTS,
    "conditions": CONDITIONS,
    "switch in a variable": CHAT.replace(HEADER, HEADER + ", $live: Boolean = true").replace(
        "@stream", "@stream(if: $live)"
    ),
}


def script() -> list[bytes | str | Any]:
    acting = call('{"name":"Ada"}', id="call_1", name="greet")
    return [HEAD, text("Hel"), text("lo"), acting, finish("tool_calls")]


@action
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}"


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k != "createdAt"}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def without_directives(query: str) -> str:
    return re.sub(r"@(defer|stream)(\([^)]*\))?", "", query)


@in_one_test("name", VARIANTS)
async def test_in_pieces_or_at_once_the_data_is_the_same(provider: Upstream, name: str) -> None:
    adapter = provider.adapter()
    query = VARIANTS[name]
    provider.plays(script())
    async with client_of(CopilotRuntime(adapter=adapter, actions=[greet])) as client:
        pieces = await client.ask({**chat(query=query), "operationName": None})
        plain = without_directives(query).replace(", $live: Boolean = true", "")
        whole = await client.ask({**chat(query=plain), "operationName": None})

    assert timeless(merge(pieces.payloads())) == timeless(whole.json()["data"])


async def test_initial_items_are_in_the_first_payload(client: Client, provider: Upstream) -> None:
    provider.plays([HEAD, text("Hel"), text("lo"), finish()])
    query = CHAT.replace("messages @stream", "messages @stream(initialCount: 1)")

    payloads = (await client.ask(chat(query=query))).payloads()

    response = payloads[0]["data"]["generateCopilotResponse"]
    assert [message["id"] for message in response["messages"]] == ["chatcmpl-1"]


async def test_a_label_is_repeated_in_its_patches(client: Client) -> None:
    query = CHAT.replace("messages @stream", 'messages @stream(label: "talk")')

    payloads = (await client.ask(chat(query=query))).payloads()

    patches = [patch for payload in payloads for patch in payload.get("incremental", [])]
    assert [
        p.get("label") for p in patches if p["path"][-2:] == ["messages", 0] and "items" in p
    ] == ["talk"]
    assert not [p for p in patches if "content" in p["path"] and "label" in p]


async def test_a_label_used_twice_is_refused_as_on_node(client: Client) -> None:
    query = CHAT.replace("@defer", '@defer(label: "d")')

    answer = await client.ask(chat(query=query))

    assert answer.status == 400
    assert answer.json()["errors"][0]["extensions"] == {"code": "GRAPHQL_VALIDATION_FAILED"}


async def test_two_mutations_in_one_document_are_two_answers(
    client: Client, provider: Upstream
) -> None:
    field = (
        "generateCopilotResponse(data: $data) { messages { ... on TextMessageOutput { content } } }"
    )
    query = f"mutation ($data: GenerateCopilotResponseInput!) {{ a: {field} b: {field} }}"
    provider.plays([HEAD, text("one"), finish()], [HEAD, text("two"), finish()])

    answer = await client.ask({**chat(query=query), "operationName": None})

    assert answer.json()["data"] == {
        "a": {"messages": [{"content": ["one"]}]},
        "b": {"messages": [{"content": ["two"]}]},
    }


async def test_two_streaming_mutations_in_one_document_do_not_mix(
    client: Client, provider: Upstream
) -> None:
    field = (
        "generateCopilotResponse(data: $data) "
        "{ messages @stream { ... on TextMessageOutput { content @stream } } }"
    )
    query = f"mutation ($data: GenerateCopilotResponseInput!) {{ a: {field} b: {field} }}"
    provider.plays([HEAD, text("o"), text("ne"), finish()], [HEAD, text("two"), finish()])

    answer = await client.ask({**chat(query=query), "operationName": None})

    assert merge(answer.payloads()) == {
        "a": {"messages": [{"content": ["o", "ne"]}]},
        "b": {"messages": [{"content": ["two"]}]},
    }


async def test_one_document_may_hold_operations_to_choose_from(client: Client) -> None:
    query = f"query greet {{ hello }} {PLAIN}"

    answer = await client.ask({**chat(query=query), "operationName": "greet"})

    assert answer.json() == {"data": {"hello": "Hello World"}}


async def test_explicit_nulls_are_the_same_as_nothing(client: Client, provider: Upstream) -> None:
    optional = "runId", "extensions", "metaEvents", "agentStates", "context", "agentSession"
    absent = chat()
    for name in optional:
        absent["variables"]["data"].pop(name, None)
    nulls = chat()
    nulls["variables"]["data"] |= dict.fromkeys([*optional, "cloud", "forwardedParameters"])
    nulls["variables"]["data"]["messages"][0] |= {
        "actionExecutionMessage": None,
        "resultMessage": None,
        "agentStateMessage": None,
        "imageMessage": None,
    }
    nulls["variables"]["data"]["messages"][0]["textMessage"]["parentMessageId"] = None
    nulls["variables"]["properties"] = None

    answers = [await client.ask(absent), await client.ask(nulls)]

    assert [timeless(merge(answer.payloads())) for answer in answers] == [
        timeless(merge(answers[0].payloads()))
    ] * 2
    assert provider.requests[0] == provider.requests[1]


async def test_messages_nobody_can_read_are_skipped(client: Client, provider: Upstream) -> None:
    broken = [
        {"id": "1", "createdAt": WHEN},
        {
            "id": "2",
            "createdAt": WHEN,
            "actionExecutionMessage": {"name": "a", "arguments": "{", "parentMessageId": None},
        },
        {
            "id": "3",
            "createdAt": WHEN,
            "resultMessage": {"actionExecutionId": "nobody", "actionName": "a", "result": "x"},
        },
    ]

    answer = await client.ask(chat(*broken, user("Hi")))

    assert merge(answer.payloads())["generateCopilotResponse"]["messages"]
    assert provider.requests[0]["messages"] == [{"role": "user", "content": "Hi"}]
