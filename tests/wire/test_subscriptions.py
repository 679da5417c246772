"""The same response over graphql-transport-ws, and again from a cursor after a lost connection."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from copilot_runtime import CopilotRuntime, RunInput, Settings
from copilot_runtime.api.hooks import ErrorContext, Hooks
from copilot_runtime.base.errors import RUN_FAILED
from copilot_runtime.threads.run_log import MemoryBus
from tests.in_one_test import in_one_test
from tests.wire.client import HEADERS, PATH, PLAIN, Client, data
from tests.wire.server import listening
from tests.wire.upstream import HEAD, SILENCE, Upstream, finish, refusing, saying, text

pytestmark = pytest.mark.anyio

PROTOCOL = Subprotocol("graphql-transport-ws")
QUERY = """
subscription ($data: GenerateCopilotResponseInput, $runId: String, $after: String) {
  generateCopilotResponse(data: $data, runId: $runId, after: $after) {
    cursor threadId runId ended
    started { __typename id }
    deltas { messageId content }
    status { __typename ... on FailedResponseStatus { reason details } }
  }
}
"""


class Socket:
    """One connection that speaks the protocol."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def say(self, message: object) -> None:
        await self.connection.send(json.dumps(message))

    async def hear(self) -> Any:
        return json.loads(await self.connection.recv())

    async def subscribe(self, query: str = QUERY, **variables: Any) -> None:
        payload = {"query": query, "variables": variables}
        await self.say({"id": "1", "type": "subscribe", "payload": payload})

    async def update(self) -> Any:
        """Return the next update, or None at the end."""
        message = await self.hear()
        if message["type"] == "complete":
            return None
        assert message["type"] == "next", message
        assert "errors" not in message["payload"], message
        return message["payload"]["data"]["generateCopilotResponse"]

    async def rest(self) -> list[Any]:
        found: list[Any] = []
        while (update := await self.update()) is not None:
            found.append(update)
        return found

    async def error(self) -> Any:
        message = await self.hear()
        payload = message["payload"]
        return (payload["errors"] if message["type"] == "next" else payload)[0]


@asynccontextmanager
async def opened(port: int, origin: str | None = None, **more: str) -> AsyncGenerator[Socket, None]:
    """Connect and say hello."""
    headers = {**({"origin": origin} if origin else {}), **more}
    url = f"ws://127.0.0.1:{port}{PATH}"
    async with connect(
        url,
        subprotocols=[PROTOCOL],
        additional_headers=headers,
        proxy=None,
        max_queue=None,  # with much unread it would wait ten seconds for the other side's goodbye
    ) as connection:
        socket = Socket(connection)
        await socket.say({"type": "connection_init"})
        assert await socket.hear() == {"type": "connection_ack"}
        yield socket


def runtime(provider: Upstream, **settings: Any) -> CopilotRuntime:
    return CopilotRuntime(
        adapter=provider.adapter(), settings=Settings(threads="memory", **settings)
    )


@pytest.fixture
async def port(provider: Upstream) -> AsyncGenerator[int, None]:
    async with listening(runtime(provider)) as port:
        yield port


def words(updates: Sequence[Any]) -> list[str]:
    return [delta["content"] for update in updates for delta in update["deltas"]]


async def test_a_subscriber_sees_a_whole_response(port: int, provider: Upstream) -> None:
    provider.plays(saying("Hel", "lo"))
    async with opened(port) as socket:
        await socket.subscribe(data=data())
        updates = await socket.rest()

    started = [message for update in updates for message in update["started"]]
    assert words(updates) == ["Hel", "lo"]
    assert started == [{"__typename": "TextMessageOutput", "id": "chatcmpl-1"}]
    assert [message for update in updates for message in update["ended"]] == ["chatcmpl-1"]
    assert {update["threadId"] for update in updates} == {"thread-1"}
    assert updates[-1]["status"] == {"__typename": "SuccessResponseStatus"}


async def test_a_subscriber_sees_each_word_before_the_next_is_said(
    port: int, provider: Upstream
) -> None:
    first, second = asyncio.Event(), asyncio.Event()
    provider.plays([HEAD, first, text("one"), second, text("two"), finish()])
    async with opened(port) as socket:
        await socket.subscribe(data=data())
        first.set()
        seen: list[Any] = []
        while "one" not in words(seen):
            seen.append(await socket.update())
        second.set()
        seen += await socket.rest()

    assert words(seen) == ["one", "two"]


async def test_a_lost_connection_goes_on_from_its_cursor(port: int, provider: Upstream) -> None:
    held = asyncio.Event()
    provider.plays([HEAD, text("one"), text("two"), held, text("three"), finish()])
    before: list[Any] = []
    async with opened(port) as socket:
        await socket.subscribe(data=data())
        while "two" not in words(before):
            before.append(await socket.update())
    held.set()
    last = before[-1]

    async with opened(port) as socket:
        await socket.subscribe(runId=last["runId"], after=last["cursor"])
        after = await socket.rest()

    assert words(before + after) == ["one", "two", "three"]
    assert after[-1]["status"] == {"__typename": "SuccessResponseStatus"}
    assert len(provider.requests) == 1


async def test_a_late_reader_sees_everything_again(port: int, provider: Upstream) -> None:
    provider.plays(saying("Hel", "lo"))
    async with opened(port) as socket:
        await socket.subscribe(data=data())
        live = await socket.rest()
        await socket.subscribe(runId=live[0]["runId"])
        again = await socket.rest()

    assert words(again) == words(live)
    assert len(provider.requests) == 1


async def test_a_failure_is_the_status_of_the_last_update(port: int, provider: Upstream) -> None:
    provider.plays(refusing(401, "No such key."))
    async with opened(port) as socket:
        await socket.subscribe(data=data())
        updates = await socket.rest()

    status = updates[-1]["status"]
    assert status["__typename"] == "FailedResponseStatus"
    assert status["details"]["originalError"]["code"] == "AUTHENTICATION_ERROR"


@in_one_test(
    ("variables", "code"),
    [
        ({}, "MISUSE"),
        ({"data": data(), "runId": "r"}, "MISUSE"),
        ({"runId": "nobody"}, "NOT_FOUND"),
        ({"data": data(agentSession={"agentName": "nobody"})}, "AGENT_NOT_FOUND"),
    ],
    ids=["nothing", "both", "an unknown run", "an unknown agent"],
)
async def test_a_wrong_question_is_an_error_with_a_code(
    port: int, variables: dict[str, Any], code: str
) -> None:
    async with opened(port) as socket:
        await socket.subscribe(**variables)
        error = await socket.error()

    assert error["extensions"]["code"] == code


@in_one_test("after", ["x", "-1", "1e3", "999999999", "²"])
async def test_a_cursor_that_is_none_ends_the_subscription(
    port: int, provider: Upstream, after: str
) -> None:
    async with opened(port) as socket:
        await socket.subscribe(data=data())
        run_id = (await socket.rest())[0]["runId"]
        await socket.subscribe(runId=run_id, after=after)
        message = await socket.hear()

    assert message["type"] in {"next", "error", "complete"}
    assert not message.get("payload", {}) or "Hello" not in json.dumps(message)


@in_one_test("name", [None, "a"], ids=["no name", "a name"])
@in_one_test(
    ("query", "reason"),
    [
        ("query a { hello } #" + "x" * 100_000, "65536 are allowed"),
        ("query a { hello } " * 3_000, "more than 2000 tokens"),
        ("query a { hello", "Expected Name, found <EOF>"),
    ],
    ids=["long", "many words", "no document"],
)
async def test_a_document_that_is_refused_is_not_parsed_again(
    query: str, reason: str, name: str | None, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strawberry.schema.schema.parse", None)
    payload = {"query": query, "operationName": name}
    async with opened(port) as socket:
        await socket.say({"id": "1", "type": "subscribe", "payload": payload})
        error = await socket.error()

    assert reason in error["message"]


async def test_a_document_that_is_valid_is_not_validated_again(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strawberry.schema.schema.validate", None)
    async with opened(port) as socket:
        await socket.subscribe("{ hello }")
        answer = await socket.hear()

    assert answer["payload"] == {"data": {"hello": "Hello World"}}


async def test_documents_have_the_same_limits_as_over_http(port: int, provider: Upstream) -> None:
    many = " ".join(f"a{number}: hello" for number in range(100))
    async with opened(port) as socket:
        await socket.subscribe(f"{{ {many} }}")
        error = await socket.error()

    assert error["message"]


async def test_other_operations_work_over_the_socket_too(port: int, provider: Upstream) -> None:
    async with opened(port) as socket:
        await socket.subscribe("{ hello }")
        answer, end = await socket.hear(), await socket.hear()

    assert answer["payload"]["data"] == {"hello": "Hello World"}
    assert end["type"] == "complete"


async def test_a_mutation_ends_with_its_connection(port: int, provider: Upstream) -> None:
    provider.plays([HEAD, text("Hello"), SILENCE])
    async with opened(port) as socket:
        await socket.subscribe(PLAIN, data=data())
        await provider.until(asked=1)

    await provider.until(open=0, hung_up=1)


async def test_the_log_of_a_mutation_is_gone_before_its_connection(provider: Upstream) -> None:
    dropped: asyncio.Queue[str] = asyncio.Queue()

    class Logs(MemoryBus):
        async def drop(self, log_id: str) -> None:
            await super().drop(log_id)
            dropped.put_nowait(log_id)

    settings = Settings(threads="memory")
    served = CopilotRuntime(adapter=provider.adapter(), bus=Logs(), settings=settings)
    async with listening(served) as port, opened(port) as socket:
        for _ in range(2):
            await socket.subscribe(PLAIN, data=data())
            assert [(await socket.hear())["type"] for _ in range(2)] == ["next", "complete"]
            await asyncio.wait_for(dropped.get(), 60)


async def test_a_detached_run_can_be_stopped_by_its_id(port: int, provider: Upstream) -> None:
    provider.plays([HEAD, text("Hel"), SILENCE])
    async with opened(port) as socket:
        await socket.subscribe(data=data())
        run_id = (await socket.update())["runId"]
        await provider.until(asked=1)
    stop = "mutation ($runId: String!) { stopCopilotResponse(runId: $runId) }"
    async with opened(port) as socket:
        await socket.subscribe(stop, runId=run_id)
        answer = await socket.hear()
        await provider.until(open=0, hung_up=1)

    assert answer["payload"]["data"] == {"stopCopilotResponse": True}


async def test_who_comes_back_is_told_the_thread_too(port: int, provider: Upstream) -> None:
    provider.plays(saying("Hel", "lo"))
    async with opened(port) as socket:
        await socket.subscribe(data=data())
        first = (await socket.rest())[0]
    async with opened(port) as socket:
        await socket.subscribe(runId=first["runId"], after=first["cursor"])
        again = await socket.rest()

    assert {update["threadId"] for update in again} == {"thread-1"}


async def test_several_subscriptions_share_one_connection(port: int, provider: Upstream) -> None:
    held = asyncio.Event()
    provider.plays([HEAD, held, text("Hello"), finish()])
    async with opened(port) as socket:
        for number in range(5):
            payload = {"query": QUERY, "variables": {"data": data(threadId=f"t{number}")}}
            await socket.say({"id": str(number), "type": "subscribe", "payload": payload})
        await provider.until(open=5)
        held.set()
        ends: set[str] = set()
        while len(ends) < 5:
            message = await socket.hear()
            if message["type"] == "complete":
                ends.add(message["id"])

    assert ends == {"0", "1", "2", "3", "4"}


@in_one_test(
    "nonsense",
    [
        "no json",
        "[]",
        "{}",
        '{"type":"nope"}',
        "5",
        '{"type":"subscribe","id":["1"],"payload":{"query":"{ hello }"}}',
        '{"type":"subscribe","id":"1","payload":"{ hello }"}',
        '{"type":"subscribe","id":"1","payload":{"query":5}}',
        pytest.param("[" * 100_000, id="very deep"),
    ],
)
async def test_nonsense_closes_the_connection_and_nothing_else(
    port: int, provider: Upstream, nonsense: str
) -> None:
    async with opened(port) as broken:
        await broken.connection.send(nonsense)
        with pytest.raises(ConnectionClosed) as closed:
            await broken.hear()
    async with opened(port) as fine:
        await fine.subscribe(data=data())
        updates = await fine.rest()

    assert closed.value.rcvd and closed.value.rcvd.code == 4400
    assert words(updates) == ["Hello"]


async def test_what_fails_within_is_logged_and_not_shown(
    provider: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    def before(run: RunInput) -> None:
        raise ValueError(f"the password of the database, in {run.operation}")

    mutation = "mutation ($data: GenerateCopilotResponseInput!) { %s { threadId } }"
    failing = CopilotRuntime(adapter=provider.adapter(), hooks=Hooks(before_request=before))
    async with listening(failing) as port, opened(port) as socket:
        await socket.subscribe(mutation % "generateCopilotResponse(data: $data)", data=data())
        error = await socket.error()

    assert error["message"] == RUN_FAILED.message
    assert error["extensions"]["code"] == RUN_FAILED.code
    assert "the password of the database" in caplog.text


async def test_the_error_hook_learns_where_a_run_failed_and_that_a_socket_asked_for_it(
    provider: Upstream,
) -> None:
    contexts: list[ErrorContext] = []

    def on_error(_: BaseException, context: ErrorContext) -> None:
        contexts.append(context)

    provider.plays(refusing(400, "No"))
    settings = Settings(threads="memory", deployment="production")
    failing = CopilotRuntime(provider.adapter(), hooks=Hooks(error=on_error), settings=settings)
    async with listening(failing) as port, opened(port) as socket:
        await socket.subscribe(data=data())
        await socket.rest()

    assert [(it.method, it.environment) for it in contexts] == [("WEBSOCKET", "production")]


async def test_a_mistake_of_a_client_is_no_error_in_the_log(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(port) as socket:
        await socket.subscribe(runId="nobody")
        error = await socket.error()

    assert error["extensions"]["code"] == "NOT_FOUND"
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_page_of_another_origin_is_refused(provider: Upstream) -> None:
    strict = runtime(provider, cors_origins=("http://ours.example",))
    async with listening(strict) as port:
        with pytest.raises((InvalidStatus, ConnectionClosed)):
            async with opened(port, origin="http://theirs.example"):
                pass
        async with opened(port, origin="http://ours.example") as socket:
            await socket.subscribe("{ hello }")
            answer = await socket.hear()

    assert answer["payload"]["data"] == {"hello": "Hello World"}


async def test_stopping_the_server_ends_detached_runs(provider: Upstream) -> None:
    provider.plays([HEAD, text("Hello"), SILENCE])
    async with listening(runtime(provider)) as port, opened(port) as socket:
        await socket.subscribe(data=data())
        await socket.update()
        await provider.until(asked=1)

    await provider.until(open=0, hung_up=1)


async def test_who_does_not_say_hello_first_is_not_heard(port: int, provider: Upstream) -> None:
    url = f"ws://127.0.0.1:{port}{PATH}"
    async with connect(url, subprotocols=[PROTOCOL], proxy=None) as connection:
        socket = Socket(connection)
        await socket.subscribe(data=data())
        with pytest.raises(ConnectionClosed) as closed:
            await socket.hear()

    assert closed.value.rcvd and closed.value.rcvd.code == 4401
    assert provider.requests == []


async def test_one_connection_cannot_start_any_number_of_runs(
    port: int, provider: Upstream
) -> None:
    provider.plays([HEAD, SILENCE])
    async with opened(port) as socket:
        for number in range(100):
            asked = {**data(), "threadId": f"thread-{number}"}
            payload = {"query": QUERY, "variables": {"data": asked}}
            await socket.say({"id": str(number), "type": "subscribe", "payload": payload})
        refused = 0
        while refused < 80:
            refused += (await socket.hear())["type"] == "error"

    assert len(provider.requests) <= 20


async def test_a_subscription_over_http_is_told_where_to_go(client: Client) -> None:
    headers = {**HEADERS, "accept": "application/graphql-response+json, multipart/mixed"}
    answer = await client.ask({"query": QUERY, "variables": {"data": data()}}, headers=headers)

    assert answer.status == 400
    assert "text/event-stream" in answer.json()["errors"][0]["message"]


URQL = {**HEADERS, "accept": "text/event-stream, multipart/mixed"}
"""The headers of urql's `fetchExchange` for a subscription, with `fetchSubscriptions`."""


def read_results(body: bytes) -> list[Any]:
    """Return the results that graphql-sse's client reads; the stream must be complete."""
    opening, *events, last, rest = body.decode().split("\n\n")
    assert (opening, last, rest) == (":", "event: complete\ndata:", "")
    return [json.loads(event.removeprefix("event: next\ndata: ")) for event in events]


async def test_a_subscription_over_http_is_a_stream_of_events(
    client: Client, provider: Upstream
) -> None:
    provider.plays(saying("Hel", "lo"))
    answer = await client.ask({"query": QUERY, "variables": {"data": data()}}, headers=URQL)

    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    results = read_results(answer.body)
    updates = [result["data"]["generateCopilotResponse"] for result in results]
    assert words(updates) == ["Hel", "lo"]
    assert updates[-1]["status"] == {"__typename": "SuccessResponseStatus"}


async def test_a_lost_stream_of_events_goes_on_from_its_cursor(
    client: Client, provider: Upstream
) -> None:
    gate = asyncio.Event()
    provider.plays([HEAD, text("Hel"), gate, text("lo"), finish()])
    request = {"query": QUERY, "variables": {"data": data()}}
    async with client.open(request, headers=URQL) as exchange:
        await exchange.head()
        (first,) = read_results(await exchange.until(b"Hel") + b"event: complete\ndata:\n\n")[-1:]
    last = first["data"]["generateCopilotResponse"]
    gate.set()
    variables = {"runId": last["runId"], "after": last["cursor"]}
    answer = await client.ask({"query": QUERY, "variables": variables}, headers=URQL)

    rest = [result["data"]["generateCopilotResponse"] for result in read_results(answer.body)]
    assert words(rest) == ["lo"]


@in_one_test(
    ("query", "variables", "code"),
    [
        ("subscription { none }", {}, "GRAPHQL_VALIDATION_FAILED"),
        ("subscription {", {}, "GRAPHQL_PARSE_FAILED"),
        (QUERY, {"runId": "none"}, "NOT_FOUND"),
        (QUERY, {}, "MISUSE"),
    ],
)
async def test_an_error_of_a_subscription_over_http_is_an_event(
    client: Client, query: str, variables: Any, code: str
) -> None:
    answer = await client.ask({"query": query, "variables": variables}, headers=URQL)

    (result,) = read_results(answer.body)
    assert (answer.status, result["errors"][0]["extensions"]["code"]) == (200, code)


ODD = {
    "no object": "[]",
    "null": "null",
    "no type": "{}",
    "a type that is no text": '{"type": ["subscribe"]}',
    "a type of a megabyte": json.dumps({"type": "x" * 2**20}),
    "a type of half characters": r'{"type": "\ud83d"}',
    "no payload": '{"id": "1", "type": "subscribe"}',
    "a payload of null": '{"id": "1", "type": "subscribe", "payload": null}',
    "a payload that is no object": '{"id": "1", "type": "subscribe", "payload": [1]}',
    "no query": '{"id": "1", "type": "subscribe", "payload": {"query": null}}',
    "no id": '{"type": "subscribe", "payload": {"query": "{ hello }"}}',
    "an id of null": '{"id": null, "type": "subscribe", "payload": {"query": "{ hello }"}}',
    "an id of a list": '{"id": [], "type": "complete"}',
    "variables of a list": (
        '{"id": "1", "type": "subscribe", "payload": {"query": "{ hello }", "variables": [1]}}'
    ),
    "nested a million times": "[" * 10**6,
    "half of a message": '{"type": "subscr',
    "bytes": b'{"type": "ping"}',
}


@in_one_test("message", ODD.values(), ids=ODD)
async def test_a_message_that_is_none_closes_the_socket_and_is_no_exception(
    port: int, message: str | bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(port) as socket:
        await socket.connection.send(message)
        with pytest.raises(ConnectionClosed) as closed:
            await socket.hear()

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4400
    assert closed.value.rcvd.reason
    assert [record for record in caplog.records if record.exc_info] == []


async def test_half_characters_and_empty_payloads_are_read_as_over_http(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(port) as socket:
        await socket.connection.send('{"type": "ping", "payload": null}')
        assert await socket.hear() == {"type": "pong"}
        await socket.connection.send(
            r'{"id": "\ud83d", "type": "subscribe", "payload": {"query": "{ hello }",'
            r' "variables": {"\udc00": "\ud83d"}}}'
        )
        answer = await socket.hear()

    assert (answer["type"], answer["payload"]) == ("next", {"data": {"hello": "Hello World"}})
    assert [record for record in caplog.records if record.exc_info] == []
