"""Asking services over HTTP: retries, time limits, connections, and errors that explain."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from email.utils import formatdate
from threading import Barrier
from time import time

import pytest

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, NetworkError
from copilot_runtime.http.client import JsonResponse, Upstream
from copilot_runtime.http.errors import parse_retry_after
from tests.adapters.provider import (
    CLOSE,
    END,
    HANG,
    HEAD,
    RESET,
    Provider,
    Step,
    piece,
    serving,
    whole,
)
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

OK = [whole({"ok": True})]
BUSY = [whole(b"busy", status="503 Busy", retry_after_ms="1")]


@pytest.fixture
async def provider(anyio_backend: str) -> AsyncGenerator[Provider, None]:
    async with serving() as provider:
        yield provider


@pytest.fixture
async def upstream(anyio_backend: str) -> AsyncGenerator[Upstream, None]:
    upstream = Upstream("Acme")
    yield upstream
    await upstream.aclose()


async def blocks_of(upstream: Upstream, url: str) -> list[bytes]:
    async with upstream.post(url, b"{}", {}) as reply:
        return [block async for block in reply]


async def test_json_is_sent_and_read(provider: Provider, upstream: Upstream):
    provider.answer([whole({"ok": True}, x_mine="1")])

    reply = await upstream.request_json("PUT", f"{provider.url}/x?y=1", {"a": "é"}, {"x-key": "k"})

    assert (reply.status, reply.body, reply.headers["x-mine"]) == (200, {"ok": True}, "1")
    request = provider.requests[0]
    assert (request.line, request.body) == ("PUT /x?y=1 HTTP/1.1", {"a": "é"})
    assert (request.headers["content-type"], request.headers["x-key"]) == ("application/json", "k")


async def test_any_status_is_an_answer(provider: Provider, upstream: Upstream):
    provider.answer([whole(b"not here", status="404 No")])
    reply = await upstream.request_json("GET", provider.url)
    assert reply == JsonResponse(404, reply.headers, None)


async def test_bytes_are_handed_on_as_they_come(provider: Provider, upstream: Upstream):
    second = asyncio.Event()
    provider.answer([HEAD, piece(b"one"), second, piece(b"two"), END])
    seen: list[bytes] = []
    async with upstream.post(provider.url, b"{}", {}) as reply:
        async for block in reply:
            seen.append(block)
            second.set()
    assert seen == [b"one", b"two"]


@in_one_test("first", [BUSY, [RESET], [CLOSE]], ids=["503", "reset", "closed"])
async def test_what_may_pass_is_tried_again(
    provider: Provider, upstream: Upstream, first: Sequence[Step]
):
    provider.answer(first, OK)
    assert (await upstream.request_json("POST", provider.url, {})).status == 200
    assert len(provider.requests) == 2


@in_one_test("status", ["408 T", "409 C", "429 R", "500 E", "529 O"])
async def test_two_retries_are_enough(provider: Provider, upstream: Upstream, status: str):
    provider.answer([whole(b"no", status=status, retry_after_ms="1")])
    assert await blocks_of(upstream, provider.url) == [b"no"]
    assert len(provider.requests) == 3


@in_one_test("status", ["400 B", "401 U", "404 N", "501 X"])
async def test_the_server_may_say_that_trying_again_is_useless(
    provider: Provider, upstream: Upstream, status: str
):
    provider.answer([whole(b"no", status=status, x_should_retry="false")])
    await blocks_of(upstream, provider.url)
    assert len(provider.requests) == 1


async def test_an_answer_is_not_asked_for_again(provider: Provider, upstream: Upstream):
    provider.answer([whole(b"yes", x_should_retry="true")])
    assert await blocks_of(upstream, provider.url) == [b"yes"]
    assert len(provider.requests) == 1


async def test_nobody_waits_for_minutes(provider: Provider, upstream: Upstream):
    provider.answer([whole(b"no", status="429 R", retry_after="600")])
    await blocks_of(upstream, provider.url)
    assert len(provider.requests) == 1


async def test_nothing_is_tried_again_once_the_answer_has_begun(
    provider: Provider, upstream: Upstream
):
    provider.answer([HEAD, piece(b"one"), RESET], OK)
    with pytest.raises(NetworkError) as caught:
        await blocks_of(upstream, provider.url)
    assert caught.value.message == "Acme API error: Premature close"
    assert caught.value.kind == "AcmeError"
    assert len(provider.requests) == 1


async def test_a_pooled_connection_the_server_closed_costs_no_pause(
    provider: Provider, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delattr("copilot_runtime.http.client.backoff")
    provider.answer(OK, [CLOSE], OK)
    await upstream.request_json("POST", provider.url, {})

    assert (await upstream.request_json("POST", provider.url, {})).status == 200

    assert (len(provider.requests), provider.connections) == (3, 2)


async def test_an_answer_left_early_closes_its_connection_at_once(
    provider: Provider, upstream: Upstream
):
    provider.answer([HEAD, piece(b"one"), HANG])
    async with upstream.post(provider.url, b"{}", {}) as reply:
        await anext(reply)
    await provider.until_open(0)


async def test_closing_ends_what_is_open_and_the_next_request_opens_again(
    provider: Provider, upstream: Upstream
):
    provider.answer(OK)
    for _ in range(2):
        await upstream.request_json("GET", provider.url)
        await provider.until_open(1)
        await upstream.aclose()
        await provider.until_open(0)
    await upstream.aclose()


async def test_an_end_that_never_comes_is_not_waited_for(provider: Provider, upstream: Upstream):
    provider.answer([HEAD, piece(b"all"), HANG])
    async with upstream.post(provider.url, b"{}", {}) as reply:
        await anext(reply)
        reply.finished = True
    await upstream.aclose()
    await provider.until_open(0)


async def test_cookies_of_one_answer_are_not_sent_with_the_next(
    provider: Provider, upstream: Upstream
):
    provider.answer([whole({}, set_cookie="user=1")])
    for _ in range(2):
        await upstream.request_json("GET", provider.url)
    assert "cookie" not in provider.requests[1].headers


async def test_a_proxy_of_the_environment_is_used(
    provider: Provider, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("http_proxy", provider.url)
    monkeypatch.setenv("no_proxy", "direct.test")
    provider.answer(OK)
    await upstream.request_json("GET", "http://model.test/v1", None, {"authorization": "Bearer k"})
    assert provider.requests[0].line == "GET http://model.test/v1 HTTP/1.1"
    upstream.max_retries = 0
    with pytest.raises(NetworkError, match="host name was not found"):
        await upstream.request_json("GET", "http://direct.test/v1")


async def test_a_host_nobody_knows_is_explained(upstream: Upstream):
    upstream.max_retries = 0
    with pytest.raises(NetworkError) as caught:
        await upstream.request_json("GET", "http://user:pass@nowhere.test/v1")
    assert caught.value.message == (
        "Acme API error: Connection error. Its host name was not found."
    )
    assert caught.value.hint == (
        "No address is known for http://nowhere.test. Check the base URL and the DNS."
    )


async def test_a_server_without_tls_is_explained(upstream: Upstream):
    def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 This is no TLS\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        upstream.max_retries = 0
        with pytest.raises(NetworkError) as caught:
            port = server.sockets[0].getsockname()[1]
            await upstream.request_json("GET", f"https://127.0.0.1:{port}")

    assert caught.value.message.endswith("No secure connection could be made.")
    assert "Check the certificate" in (caught.value.hint or "")


async def test_something_that_is_not_http_is_explained(provider: Provider, upstream: Upstream):
    provider.answer([b"SSH-2.0-OpenSSH_9.6\r\n", CLOSE])
    upstream.max_retries = 0
    with pytest.raises(NetworkError, match="hung up without an answer"):
        await upstream.request_json("GET", provider.url)


async def test_an_address_that_is_none_is_explained(upstream: Upstream):
    with pytest.raises(ConfigurationFailed, match="is not an address"):
        await upstream.request_json("GET", "http://")


async def test_a_password_in_an_address_beside_a_key_is_explained(upstream: Upstream):
    headers = {"authorization": "Bearer key"}
    with pytest.raises(ConfigurationFailed, match="cannot be sent") as caught:
        await upstream.request_json("GET", "http://user:pass@nowhere.test/v1", headers=headers)
    assert "pass" not in f"{caught.value} {caught.value.hint}"


async def test_an_answer_that_breaks_off_is_explained(provider: Provider, upstream: Upstream):
    provider.answer([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab", CLOSE])
    with pytest.raises(NetworkError, match="Premature close") as caught:
        async with upstream.post(provider.url, b"{}", {}) as reply:
            await reply.text()
    hint = "The connection broke off before the end of the answer (ClientPayloadError)."
    assert caught.value.hint == hint


async def test_an_answer_has_a_limit(provider: Provider, upstream: Upstream):
    provider.answer([whole(b"x" * 100)])
    with pytest.raises(CopilotError, match="larger than 10 bytes"):
        async with upstream.post(provider.url, b"{}", {}) as reply:
            await reply.text(10)


@in_one_test(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": formatdate(0)}, 0.0),
        ({"retry-after-ms": "inf", "retry-after": "0"}, 0.0),
    ],
)
def test_a_server_may_ask_for_patience(headers: dict[str, str], seconds: float | None):
    assert parse_retry_after(headers) == seconds


def test_a_server_may_ask_for_patience_until_a_date():
    assert 50 < (parse_retry_after({"retry-after": formatdate(time() + 60)}) or 0) <= 60


async def test_every_event_loop_has_connections_of_its_own(provider: Provider, upstream: Upstream):
    provider.answer(OK)
    both = Barrier(2)

    async def ask() -> list[int]:
        await asyncio.to_thread(both.wait)
        try:
            return [(await upstream.request_json("GET", provider.url)).status for _ in range(20)]
        finally:
            await upstream.aclose()

    there = asyncio.to_thread(asyncio.run, ask())
    assert await asyncio.gather(ask(), there) == [[200] * 20] * 2


async def test_a_long_header_is_no_mistake(provider: Provider, upstream: Upstream):
    provider.answer([whole({"ok": True}, content_security_policy="a" * 20_000)])
    assert (await upstream.request_json("GET", provider.url)).body == {"ok": True}
