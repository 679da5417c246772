"""Changes of threads, told to pages: whose they are, how many, and when the telling ends."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.requests import HTTPConnection
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from copilot_runtime import CopilotRuntime, RunInput, Settings
from copilot_runtime.api.identity import Identity
from copilot_runtime.base.errors import AuthenticationFailed
from copilot_runtime.extensions.access.settings import LimitSettings
from copilot_runtime.runtime.thread_changes.change import Change, RunActivity, ThreadChange
from copilot_runtime.runtime.thread_changes.reader import ChangeReader
from copilot_runtime.threads.store import ThreadKey
from copilot_runtime.transports.thread_push.join_tokens import JoinTokens
from tests.in_one_test import in_one_test
from tests.wire_agui.http import Browser, Event, Exchange
from tests.wire_agui.server import PATH, Parrot, Server, browsing

pytestmark = pytest.mark.anyio

CHANGES = "/threads/changes"
PEOPLE = {
    "ada": Identity(user="ada", tenant="north"),
    "eve": Identity(user="eve", tenant="north"),
    "ada-south": Identity(user="ada", tenant="south"),
    "writer": Identity(user="ada", tenant="north", scopes=["runs:start"]),
}


def by_name(connection: HTTPConnection) -> Identity:
    """Return who has a token; one with a number lives for so many seconds."""
    token = connection.headers.get("authorization", "").removeprefix("Bearer ")
    if token.startswith("short "):
        return Identity(user="ada", expires_at=time.time() + float(token.partition(" ")[2]))
    if token not in PEOPLE:
        raise AuthenticationFailed("Who are you?")
    return PEOPLE[token]


async def test_nobody_is_told_of_threads_of_others() -> None:
    async with browsing(authenticate=by_name) as browser, AsyncExitStack() as stack:
        readers: dict[str, Exchange] = {}
        for name in ("eve", "ada-south"):
            opened = browser.signed_in(name).open("GET", CHANGES)
            readers[name] = await stack.enter_async_context(opened)
            await readers[name].until("threads")
        ada = browser.signed_in("ada")
        await ada.run(thread="t")
        await ada.ask("PATCH", "/threads/t", {"name": "Secret"})
        await ada.ask("DELETE", "/threads/t", {})
        for name, reader in readers.items():
            await browser.signed_in(name).run(thread=f"of-{name}")
            await reader.until("run")
        seen = {name: {told(event) for event in one.seen} for name, one in readers.items()}

    assert seen == {name: {"", f"of-{name}"} for name in readers}


def told(event: Event) -> str:
    return event.get("threadId", "")


async def test_an_answer_of_a_thousand_pieces_is_a_few_changes() -> None:
    words = ["word "] * 1000
    async with browsing(Parrot(*words)) as browser, browser.open("GET", CHANGES) as reader:
        await reader.until("threads")
        await browser.run(thread="t")
        while (await reader.until("run"))["eventType"] != "RUN_FINISHED":
            pass

    assert len(reader.seen) <= 5


async def test_a_stream_ends_when_the_credential_of_its_reader_expires() -> None:
    async with (
        browsing(authenticate=by_name) as browser,
        browser.signed_in("short 0.3").open("GET", CHANGES) as reader,
    ):
        events = await reader.rest()

    assert [event["type"] for event in events] == ["threads"]


async def test_a_list_is_told_of_one_agent_only_if_it_asks_for_that() -> None:
    async with browsing() as browser, browser.open("GET", f"{CHANGES}?agentId=other") as reader:
        await reader.until("threads")
        await browser.run(thread="t")
        await browser.ask("DELETE", "/threads/t", {})
        event = await reader.until("thread")

    assert (event["operation"], len(reader.seen)) == ("deleted", 2)


async def test_streams_of_one_user_are_limited_and_those_of_others_are_not() -> None:
    settings = Settings(threads="memory", limits=LimitSettings(thread_streams_per_user=2))
    async with browsing(settings=settings, authenticate=by_name) as browser:
        ada, eve = browser.signed_in("ada"), browser.signed_in("eve")
        async with ada.open("GET", CHANGES) as first, ada.open("GET", CHANGES) as second:
            await first.until("threads")
            await second.until("threads")
            refused = await ada.ask("GET", CHANGES)
            async with eve.open("GET", CHANGES) as other:
                await other.until("threads")
            first.hang_up()
            while (again := await reads_list(ada)) == 429:
                pass

    assert (refused.status, refused.headers["retry-after"], again) == (429, "30", 200)


async def test_a_limit_of_sockets_is_an_answer_in_the_channel_until_there_is_room() -> None:
    settings = Settings(threads="memory", limits=LimitSettings(thread_streams_per_user=1))
    async with browsing(settings=settings, authenticate=by_name) as browser:
        code, ada = await ask_to_join(browser.signed_in("ada"))
        its, eve = await ask_to_join(browser.signed_in("eve"))
        async with socket_of(browser, ada) as second:
            async with socket_of(browser, ada) as first:
                joined = await join(first, f"user_meta:{code}")
                refused = await join(second, f"user_meta:{code}")
                async with socket_of(browser, eve) as other:
                    hers = await join(other, f"user_meta:{its}")
            while (again := await join(second, f"user_meta:{code}"))[4]["status"] != "ok":
                pass

    answers = [answer[4]["status"] for answer in (joined, refused, hers, again)]
    assert answers == ["ok", "error", "ok", "ok"]
    assert "You have 1 pages with live thread lists open" in refused[4]["response"]["reason"]


async def test_a_page_with_many_agents_is_not_made_to_follow_the_threads_of_each() -> None:
    def talk(run: RunInput) -> str:
        return "Hello."

    agents = {f"agent-{number}": talk for number in range(31)}
    async with browsing(agents=agents) as browser:
        info = (await browser.ask("GET", "/info")).json()
        listed = (await browser.ask("GET", "/threads?agentId=agent-1")).json()

    assert (len(info["agents"]), "intelligence" in info, "joinCode" in listed) == (32, True, True)
    assert "threadEndpoints" not in info
    assert "threadEndpoints" not in info["singleRoute"]


async def reads_list(browser: Browser) -> int:
    async with browser.open("GET", CHANGES) as reader:
        return reader.status


async def test_a_server_that_waits_for_its_connections_ends_all_the_same() -> None:
    app = CopilotRuntime(Parrot(), settings=Settings(threads="memory")).app(path=PATH)
    config = uvicorn.Config(app, port=0, log_level="critical")
    server = Server(config)
    with config.bind_socket() as sock:
        sock.listen()
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        browser = Browser(sock.getsockname()[1], headers={"connection": "keep-alive"})
        async with browser.open("GET", CHANGES) as reader:
            await reader.until("threads")
            server.exit()
            events = await reader.rest()
        await serving

    assert [event["type"] for event in events] == ["threads"]


@in_one_test(("token", "status"), [("nobody", 401), ("writer", 403)])
async def test_who_may_not_read_threads_is_told_nothing(token: str, status: int) -> None:
    async with browsing(authenticate=by_name) as browser:
        page = browser.signed_in(token)
        answers = [await page.ask("GET", CHANGES), await page.ask("POST", "/threads/subscribe", {})]

    assert [answer.status for answer in answers] == [status, status]


async def test_a_page_joins_a_socket_and_is_told_what_it_missed_meanwhile() -> None:
    async with browsing(authenticate=by_name) as browser:
        ada = browser.signed_in("ada")
        code, token = await ask_to_join(ada)
        await ada.run(thread="t")
        async with socket_of(browser, token) as socket:
            await join(socket, f"user_meta:{code}")
            missed = await receive(socket)
            await socket.send(json.dumps([None, "2", "phoenix", "heartbeat", {}]))
            beat = await receive(socket)
            await ada.ask("PATCH", "/threads/t", {"name": "Paris"})
            renamed = await receive(socket)

    assert (missed[3], missed[4]["thread"]["id"]) == ("thread_metadata", "t")
    assert beat == [None, "2", "phoenix", "phx_reply", {"status": "ok", "response": {}}]
    assert (renamed[0], renamed[4]["thread"]["name"]) == ("1", "Paris")


async def test_nobody_joins_the_topic_of_somebody_else() -> None:
    async with browsing(authenticate=by_name) as browser:
        code, _ = await ask_to_join(browser.signed_in("ada"))
        _, token = await ask_to_join(browser.signed_in("eve"))
        async with socket_of(browser, token) as socket:
            answers = [
                await join(socket, topic)
                for topic in (f"user_meta:{code}", "user_meta:", "user_meta:x-y-z", "phoenix")
            ]

    assert {answer[4]["status"] for answer in answers} == {"error"}


async def test_a_socket_needs_a_token_that_is_ours_and_has_not_expired() -> None:
    async with browsing(authenticate=by_name) as browser:
        _, good = await ask_to_join(browser.signed_in("ada"))
        _, late = await ask_to_join(browser.signed_in("short -1"))
        text, _, signature = good.partition(".")
        forged = [good[:-2] + "xx", f"{text}x.{signature}", text, "", "é", "." * 6000, late]
        refusals = [await refuses(browser, token) for token in forged]
        foreign = await refuses(browser, good, origin="https://evil.example")

    assert refusals == [403] * len(forged)
    assert foreign == 403


async def test_a_socket_ends_with_the_credential_that_its_token_was_made_for() -> None:
    async with browsing(authenticate=by_name) as browser:
        code, token = await ask_to_join(browser.signed_in("short 0.5"))
        async with socket_of(browser, token) as socket:
            await join(socket, f"user_meta:{code}")
            with pytest.raises(ConnectionClosed) as closed:
                await receive(socket)

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008


@in_one_test("text", ["", "{}", "[1,2,3,4,5]", '["a"]', "[" * 5000, "x" * 9000])
async def test_a_socket_that_is_sent_nonsense_is_closed(text: str) -> None:
    async with browsing(authenticate=by_name) as browser:
        _, token = await ask_to_join(browser.signed_in("ada"))
        async with socket_of(browser, token) as socket:
            await socket.send(text)
            with pytest.raises(ConnectionClosed):
                await socket.recv()


NEAR: Mapping[str, str] = {}
PROXY = {"x-forwarded-host": "chat.example"}
NAMED = {"host": "chat.example"}
OURS = "ws://localhost/copilotkit/realtime"
NEXT = {"x-forwarded-host": "localhost:3000", "x-forwarded-for": "::1"}
PHONE = {"x-forwarded-host": "localhost:3000", "x-forwarded-for": "203.0.113.9"}
DIRECT = "ws://127.0.0.1:PORT/copilotkit/realtime"
THEIRS = "wss://chat.example/api/realtime"


@in_one_test(
    ("setting", "headers", "url"),
    [
        ("", NEAR, OURS),
        ("", PROXY, None),
        ("", NAMED, None),
        ("", NEXT, DIRECT),
        ("", PHONE, None),
        ("/api/copilotkit", NEXT, "/api/copilotkit/realtime"),
        ("wss://chat.example/api", PROXY, THEIRS),
        ("off", NEAR, None),
    ],
)
async def test_sockets_are_offered_on_one_machine_and_where_their_url_is_set(
    setting: str, headers: Mapping[str, str], url: str | None
) -> None:
    settings = Settings(threads="memory", realtime_url=setting, allowed_hosts=("chat.example",))
    async with browsing(settings=settings) as browser:
        info = (await browser.ask("GET", "/info", headers=headers)).json()
        listed = (await browser.ask("GET", "/threads", headers=headers)).json()

    url = url and url.replace("PORT", str(browser.where))
    assert info.get("intelligence") == (url and {"wsUrl": url})
    assert ("joinCode" in listed) is (url is not None)


async def test_a_code_is_of_one_owner_in_all_processes_with_one_secret() -> None:
    async def secret() -> str:
        return "a secret that they share"

    first, second = JoinTokens(secret), JoinTokens(secret)
    code = await first.make_code("ada")

    assert await second.is_code(code, "ada")
    assert not await second.is_code(code, "eve")
    assert code != await second.make_code("ada")


async def test_a_reader_that_takes_nothing_is_closed() -> None:
    reader = ChangeReader()
    for number in range(600):
        key = ThreadKey("ada", f"t{number}")
        reader.put(ThreadChange(key=key, operation="deleted", thread=None))

    assert (await reader.read(), reader.is_closed) == ((), True)


async def test_of_one_thread_only_the_last_change_waits() -> None:
    reader = ChangeReader()
    key = ThreadKey("ada", "t")
    changes: list[Change] = [
        RunActivity(key=key, event="RUN_STARTED", run_id="r", agent="a"),
        *[ThreadChange(key=key, operation="deleted", thread=None)] * 1000,
    ]
    for change in changes:
        reader.put(change)

    assert await reader.read() == [changes[0], changes[-1]]


async def ask_to_join(browser: Browser) -> tuple[str, str]:
    """Return the code of the caller's topic, and a token."""
    code = (await browser.ask("GET", "/threads")).json()["joinCode"]
    answer = await browser.ask("POST", "/threads/subscribe", {})
    return code, answer.json()["joinToken"]


@asynccontextmanager
async def socket_of(
    browser: Browser, token: str, origin: str | None = None
) -> AsyncGenerator[ClientConnection, None]:
    url = f"ws://localhost:{browser.where}{browser.base}/realtime/websocket"
    headers = {"origin": origin} if origin else {}
    async with connect(f"{url}?join_token={token}&vsn=2.0.0", additional_headers=headers) as socket:
        yield socket


async def join(socket: ClientConnection, topic: str) -> list[Any]:
    await socket.send(json.dumps(["1", "1", topic, "phx_join", {}]))
    return await receive(socket)


async def receive(socket: ClientConnection) -> list[Any]:
    return json.loads(await socket.recv())


async def refuses(browser: Browser, token: str, origin: str | None = None) -> int:
    """Return the status by which a socket is refused; 0 if it is not."""
    try:
        async with socket_of(browser, token, origin):
            return 0
    except InvalidStatus as error:
        return error.response.status_code
