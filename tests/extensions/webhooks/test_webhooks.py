"""Background runs: the end of each is posted to a URL, signed, and at least once."""

import asyncio
import sys
import time
from base64 import b64decode
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from starlette.requests import HTTPConnection

from copilot_runtime import Events, RunInput, Settings
from copilot_runtime.adapters.scripted import Gate, say
from copilot_runtime.api.events import Interrupt
from copilot_runtime.base.errors import RUN_FAILED
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.webhooks import delivery
from copilot_runtime.extensions.webhooks.sender import sign
from copilot_runtime.extensions.webhooks.settings import WebhookSettings
from copilot_runtime.threads.outbox import Outbox, OutboxEntry
from tests.adapters.provider import HANG, RESET, Provider, Request, serving
from tests.in_one_test import in_one_test
from tests.processes import running
from tests.wire_agui.http import Browser, user
from tests.wire_agui.server import Parrot, browsing

pytestmark = pytest.mark.anyio

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OK = [b"HTTP/1.1 204 No Content\r\n\r\n"]


def refuse(status: str, *headers: str) -> list[bytes]:
    lines = (f"HTTP/1.1 {status}", "content-length: 0", *headers)
    return ["\r\n".join([*lines, "", ""]).encode()]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every attempt be due at once."""
    monkeypatch.setattr(delivery, "DELAYS", (0.0, 0.0))
    monkeypatch.setattr(delivery, "_POLL", 0.01)


@pytest.fixture
async def receiver(anyio_backend: str) -> AsyncGenerator[Provider]:
    async with serving() as provider:
        provider.answer(OK)
        yield provider


def settings(hosts: tuple[str, ...] = ("127.0.0.1",), threads: str = "memory") -> Settings:
    return Settings(threads=threads, webhooks=WebhookSettings(secret=SECRET, hosts=hosts))


async def ask(
    browser: Browser,
    url: str,
    *,
    agent: str = "default",
    thread: str = "t",
    run: str = "r1",
    status: int = 202,
) -> Any:
    """Start a background run, and return the answer if it has that status."""
    body = {"webhook": url, "threadId": thread, "runId": run, "messages": [user("Hi")]}
    answer = await browser.ask("POST", f"/background/{agent}", body)
    assert answer.status == status, answer.body
    return answer.json()


def check(request: Request) -> Any:
    """Return the body of a webhook whose signature is right."""
    headers = request.headers
    key, body = b64decode(SECRET.removeprefix("whsec_")), dumps(request.body)
    expected = sign(key, headers["webhook-id"], int(headers["webhook-timestamp"]), body)
    assert headers["webhook-signature"] == expected.lower()  # as the receiver keeps headers
    return request.body


async def request_approval(_run: RunInput) -> Events:
    for event in say("Wait."):
        yield event
    yield Interrupt(interrupt_id="i1", reason="approval", message="Really?")


async def fail(_run: RunInput) -> Events:
    for event in say("So far"):
        yield event
    raise RuntimeError("A secret of the server")


def test_the_signature_is_that_of_standard_webhooks() -> None:
    key = b64decode(SECRET.removeprefix("whsec_"))
    signature = sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')

    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_the_end_of_a_run_is_posted_with_its_answer(receiver: Provider) -> None:
    async with browsing(settings=settings()) as browser:
        answer = await ask(browser, f"{receiver.url}/answers")
        await receiver.until_asked(1)

    ids = {"threadId": "t", "runId": "r1"}
    assert answer == ids
    assert receiver.requests[0].line == "POST /answers HTTP/1.1"
    data = {**ids, "agent": "default", "answer": "You said Hi"}
    assert check(receiver.requests[0]) == {"type": "run.finished", "data": data}


@in_one_test(
    ("agent", "type", "data"),
    [
        (
            "asking",
            "run.waiting",
            {
                "answer": "Wait.",
                "interrupts": [{"id": "i1", "reason": "approval", "message": "Really?"}],
            },
        ),
        (
            "failing",
            "run.failed",
            {
                "answer": "So far",
                "error": {"code": RUN_FAILED.code, "message": RUN_FAILED.message},
            },
        ),
    ],
)
async def test_questions_and_errors_are_posted_too(
    receiver: Provider, agent: str, type: str, data: dict[str, Any]
) -> None:
    receiver.forget()
    agents = {"asking": request_approval, "failing": fail}
    async with browsing(settings=settings(), agents=agents) as browser:
        await ask(browser, receiver.url, agent=agent)
        await receiver.until_asked(1)

    ids = {"threadId": "t", "runId": "r1", "agent": agent}
    assert check(receiver.requests[0]) == {"type": type, "data": {**ids, **data}}


async def test_a_run_that_is_stopped_says_so(receiver: Provider) -> None:
    async with browsing(Parrot(gate=Gate()), settings=settings()) as browser:
        await ask(browser, receiver.url)
        await browser.stop()
        await receiver.until_asked(1)

    assert check(receiver.requests[0])["type"] == "run.stopped"


@in_one_test("status", ["500 Internal Server Error", "429 Too Many Requests", "302 Found"])
async def test_an_attempt_that_fails_is_repeated_with_the_same_id(
    receiver: Provider, status: str
) -> None:
    receiver.forget()
    receiver.answer(refuse(status, f"location: {receiver.url}/elsewhere"), OK)
    async with browsing(settings=settings()) as browser:
        await ask(browser, receiver.url)
        await receiver.until_asked(2)

    first, second = receiver.requests
    assert check(first) == check(second)
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.line == second.line


async def test_a_receiver_that_is_gone_or_always_fails_is_given_up(
    receiver: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answer(refuse("410 Gone"), *[refuse("500 Internal Server Error")] * 3, OK)
    async with browsing(settings=settings()) as browser:
        await ask(browser, f"{receiver.url}/secret-path", run="r1")
        await receiver.until_asked(1)
        await ask(browser, f"{receiver.url}/secret-path", thread="u", run="r2")
        await receiver.until_asked(4)
        await ask(browser, receiver.url, thread="v", run="r3")
        await receiver.until_asked(5)

    runs = [request.body["data"]["runId"] for request in receiver.requests]
    assert runs == ["r1", "r2", "r2", "r2", "r3"]
    given_up = [line for line in caplog.messages if line.startswith("Gave up")]
    assert [line.endswith(f"to {receiver.url}: it answered 410") for line in given_up] == [
        True,
        False,
    ]
    assert "secret-path" not in caplog.text


async def test_a_repeated_request_starts_nothing(receiver: Provider) -> None:
    async with browsing(settings=settings()) as browser:
        for _ in range(2):
            await ask(browser, receiver.url)
        await ask(browser, receiver.url, thread="u", run="r2")
        await receiver.until_asked(2)

    assert {request.body["data"]["runId"] for request in receiver.requests} == {"r1", "r2"}


async def test_identifiers_may_be_null(receiver: Provider) -> None:
    async with browsing(settings=settings()) as browser:
        body = {"webhook": receiver.url, "threadId": None, "runId": None, "messages": [user("Hi")]}
        answer = await browser.ask("POST", "/background/default", body)
        await receiver.until_asked(1)

    data = receiver.requests[0].body["data"]
    assert answer.json() == {name: data[name] for name in ("threadId", "runId")}


async def test_a_run_that_is_refused_posts_nothing(receiver: Provider) -> None:
    async with browsing(Parrot(gate=(gate := Gate())), settings=settings()) as browser:
        await ask(browser, receiver.url)
        await ask(browser, receiver.url, run="r2", status=409)
        gate.release(100)
        await receiver.until_asked(1)

    assert receiver.requests[0].body["data"]["runId"] == "r1"


@in_one_test(
    ("url", "hosts"),
    [
        ("http://example.com/", ()),
        ("ftp://example.com/", ()),
        ("https://", ()),
        ("https://ann:secret@example.com/", ()),
        ("https://other.example.com/", ("example.com",)),
        ("https://evil-example.com/", ("*.example.com",)),
        ("https://example.com:8444/", ("example.com:8443",)),
        ("https://example.com/", ("example.com:8443",)),
        ("https://a.example.com/", ("*.example.com:8443",)),
        ("https://[::1]/", ("[::1]:8443",)),
        ("http://127.0.0.1@evil.com/", ("127.0.0.1",)),
        (f"https://example.com/{'x' * 2000}", ()),
        ("https://exa\nmple.com/", ()),
        ("https://example.com/a\r\nb", ()),
        (7, ()),
    ],
)
async def test_a_url_that_no_webhook_may_have_is_refused(url: Any, hosts: tuple[str, ...]) -> None:
    async with browsing(settings=settings(hosts)) as browser:
        assert (await ask(browser, url, status=400))["error"] == "misuse"


@in_one_test(
    "host",
    [
        "localhost",
        "127.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "\uff11\uff12\uff17.\uff10.\uff10.\uff11",
    ],
)
async def test_nothing_connects_to_a_private_address(
    receiver: Provider, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    given_up = asyncio.Event()
    caplog.clear()
    delete = Outbox.delete

    async def note(outbox: Outbox, id: str) -> None:
        await delete(outbox, id)
        given_up.set()

    monkeypatch.setattr(Outbox, "delete", note)
    async with browsing(settings=settings(())) as browser:
        await ask(browser, f"https://{host}:{receiver.url.rpartition(':')[2]}/")
        await given_up.wait()

    assert receiver.connections == 0
    assert "is not a public server" in caplog.text


async def test_the_next_server_posts_what_a_stopped_one_has_left(
    receiver: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = settings(threads=f"sqlite:{tmp_path / 'threads.db'}")
    receiver.answer(refuse("503 Service Unavailable"), OK)
    with monkeypatch.context() as patch:
        patch.setattr(delivery, "_POLL", 3600.0)
        async with browsing(settings=shared) as browser:
            await ask(browser, receiver.url)
            await receiver.until_asked(1)
    async with browsing(settings=shared):
        await receiver.until_asked(2)

    first, second = receiver.requests
    assert check(first) == check(second)
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


async def test_another_server_posts_the_end_of_a_run_whose_server_was_killed(
    receiver: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "LEASE", 0.0)
    file = tmp_path / "threads.db"
    command = [sys.executable, "-m", "tests.extensions.webhooks.silent_server", file, SECRET]
    async with browsing(settings=settings(threads=f"sqlite:{file}")):
        with running(command) as program:
            port = await asyncio.to_thread(program.until, r"^(\d+)$")
            await ask(Browser(int(port[1])), receiver.url)
            program.kill()
            await receiver.until_asked(1)

    message = check(receiver.requests[0])
    assert (message["type"], message["data"]["error"]["code"]) == ("run.failed", "RUN_INTERRUPTED")


@pytest.fixture
async def closed(anyio_backend: str) -> str:
    """An origin that nothing listens at."""
    async with serving() as provider:
        return provider.url


async def test_nothing_waits_for_a_receiver_that_cannot_be_reached_and_it_is_given_up(
    receiver: Provider, closed: str, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(delivery, "DELAYS", (3600.0,))
    changes: asyncio.Queue[str] = asyncio.Queue()
    delete, update = Outbox.delete, Outbox.update

    async def note_end(outbox: Outbox, id: str) -> None:
        await delete(outbox, id)
        changes.put_nowait("deleted")

    async def note_delay(outbox: Outbox, entry: OutboxEntry, due: float) -> None:
        await update(outbox, entry, due)
        if due > time.time() + delivery.LEASE:
            changes.put_nowait("later")

    monkeypatch.setattr(Outbox, "delete", note_end)
    monkeypatch.setattr(Outbox, "update", note_delay)
    async with browsing(settings=settings()) as browser:
        await ask(browser, closed)
        first = await changes.get()
        await ask(browser, closed, thread="u", run="r2")
        second = await changes.get()
        await ask(browser, receiver.url, thread="v", run="r3")
        third = await changes.get()
        monkeypatch.setattr(delivery, "_LIFETIME", 0.0)
        await ask(browser, closed, thread="w", run="r4")
        fourth = await changes.get()

    assert (first, second, third, fourth) == ("later", "later", "deleted", "deleted")
    outcomes = [line.split()[0] for line in caplog.messages if closed in line]
    assert outcomes == ["The", "Gave"]  # one attempt, and one that was not worth it
    assert caplog.messages[-1].endswith(f"to {closed}: it cannot be reached")


@in_one_test("failure", [refuse("500 Internal Server Error"), [RESET]])
async def test_a_path_that_fails_does_not_delay_another_of_its_host(
    receiver: Provider, monkeypatch: pytest.MonkeyPatch, failure: Any
) -> None:
    receiver.forget()
    monkeypatch.setattr(delivery, "DELAYS", (3600.0,))
    receiver.answer(failure, OK)
    async with browsing(settings=settings()) as browser:
        await ask(browser, f"{receiver.url}/broken")
        await receiver.until_asked(1)
        await ask(browser, f"{receiver.url}/fine", thread="u", run="r2")
        await receiver.until_asked(2)

    assert [request.line for request in receiver.requests] == [
        "POST /broken HTTP/1.1",
        "POST /fine HTTP/1.1",
    ]


@in_one_test("names", [("ann", "bob"), (None, None)])
async def test_a_receiver_that_hangs_holds_up_its_owner_alone_or_itself(
    receiver: Provider, monkeypatch: pytest.MonkeyPatch, names: Sequence[str | None]
) -> None:
    def read_login(connection: HTTPConnection) -> str | None:
        return connection.headers.get("authorization")

    receiver.forget()
    monkeypatch.setattr(delivery, "DELAYS", (3600.0,))
    receiver.answer([HANG])
    async with serving() as other, browsing(settings=settings(), authenticate=read_login) as page:
        other.answer(OK)
        ann, bob = (page if name is None else page.signed_in(name) for name in names)
        for number in range(25):
            await ask(ann, receiver.url, thread=f"t{number}", run=f"r{number}")
        await receiver.until_asked(delivery.SHARE)
        await ask(bob, other.url)
        await other.until_asked(1)

    assert len(receiver.requests) < 2 * delivery.SHARE


async def test_a_deleted_thread_posts_nothing(receiver: Provider) -> None:
    async with browsing(Parrot(gate=(gate := Gate())), settings=settings()) as browser:
        await ask(browser, receiver.url)
        await browser.ask("DELETE", "/threads/t", {"agentId": "default"})
        gate.release(100)
        await ask(browser, receiver.url, thread="u", run="r2")
        await receiver.until_asked(1)

    assert [request.body["data"]["runId"] for request in receiver.requests] == ["r2"]


async def test_a_host_may_be_named_with_a_port(receiver: Provider) -> None:
    host = receiver.url.removeprefix("http://")
    async with browsing(settings=settings((host, "*.example.com:8443"))) as browser:
        await ask(browser, receiver.url)
        await receiver.until_asked(1)


@in_one_test("host", ["example.com:0", "example.com:65536", "example.com:x", ":80", "[::1]:"])
def test_a_port_that_is_none_is_refused(host: str) -> None:
    with pytest.raises(ValidationError, match=r"host|port"):
        WebhookSettings(secret=SECRET, hosts=(host,))


@in_one_test("secret", ["a secret", "whsec_short", "whsec_" + "*" * 40])
def test_a_secret_of_another_form_names_the_command(secret: str) -> None:
    with pytest.raises(ValidationError, match="openssl rand -base64 32"):
        WebhookSettings(secret=secret)


async def test_without_a_secret_there_are_no_background_runs(
    receiver: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    section = WebhookSettings(hosts=("127.0.0.1",))
    async with browsing(settings=Settings(threads="memory", webhooks=section)) as browser:
        await ask(browser, receiver.url, status=404)

    assert "webhooks.hosts allows nothing without webhooks.secret" in caplog.text
