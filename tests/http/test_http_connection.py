"""Our own client of HTTP/1.1 against servers that are wrong, slow, or malicious."""

import asyncio
import gc
import gzip
import socket
import ssl
import weakref
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from copilot_runtime.base.errors import ConfigurationFailed, NetworkError, RunStalled
from copilot_runtime.http import pool as pools
from copilot_runtime.http.client import Upstream
from copilot_runtime.http.connection import Connection
from copilot_runtime.http.pool import FixedHeaders, Origin, Target, encode_head, parse_target
from tests.adapters.provider import CLOSE, END, HANG, HEAD, Provider, Step, piece, serving, whole
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

LENGTH = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"
UPGRADE = b"HTTP/1.1 200 OK\r\nconnection: upgrade\r\nupgrade: h2\r\ncontent-length: 1\r\n\r\na"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\n"
OK = [whole({"ok": True})]
ENDLESS = 600 * 1024  # more than one read


@pytest.fixture
async def provider(anyio_backend: str) -> AsyncGenerator[Provider, None]:
    async with serving() as provider:
        yield provider


@pytest.fixture
async def upstream(anyio_backend: str) -> AsyncGenerator[Upstream, None]:
    upstream = Upstream("Acme", max_retries=0)
    yield upstream
    await upstream.aclose()


async def read(upstream: Upstream, url: str) -> bytes:
    async with upstream.post(url, b"{}", {}) as reply:
        return await reply.text()


async def test_aiohttp_is_not_imported_for_a_plain_address(
    provider: Provider, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(__import__("sys").modules, "copilot_runtime.http.aiohttp_client", None)
    provider.answer(OK)
    assert (await upstream.request_json("GET", provider.url)).status == 200


@in_one_test(
    ("script", "body"),
    [
        ([LENGTH % 2 + b"ab"], b"ab"),
        ([LENGTH % 0], b""),
        ([HEAD, piece(b"a"), piece(b"b"), END], b"ab"),
        ([HEAD + b"1;ext=1\r\na\r\n1\r\nb\r\n0\r\ntrailer: x\r\n\r\n"], b"ab"),
        ([UNTIL_CLOSE + b"a", b"b", CLOSE], b"ab"),
        ([b"HTTP/1.0 200 OK\r\n\r\nab", CLOSE], b"ab"),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], b""),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH % 2 + b"ab"], b"ab"),
        ([b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", LENGTH % 2, b"ab"], b"ab"),
        ([UPGRADE], b"a"),
        ([b"HTTP/1.1 200 OK\ncontent-length: 2\n\nab"], b"ab"),
    ],
    ids=[
        *("length", "empty", "chunked", "extension", "until-close", "http-1.0", "204", "100"),
        *("103", "upgrade-offered", "line-feeds"),
    ],
)  # fmt: skip
async def test_a_body_ends_where_its_framing_says(
    provider: Provider, upstream: Upstream, script: list[Step], body: bytes
):
    provider.answer(script)
    assert await read(upstream, provider.url) == body


async def test_a_response_may_be_cut_at_every_byte(provider: Provider, upstream: Upstream):
    response = HEAD + piece(b"one") + piece(b"two") + END
    steps: list[Step] = []
    for byte in response:
        steps += [bytes([byte])]
    provider.answer(steps)
    assert await read(upstream, provider.url) == b"onetwo"


@in_one_test(
    "script",
    [
        [b"HTTP/1.1 200 OK\r\nx: ", b"a" * ENDLESS, HANG],
        [b"HTTP/1.1 200 OK\r\n", b"x: a\r\n" * ENDLESS, HANG],
        [b"HTTP/1.1 100 Continue\r\n\r\n" * 40_000, HANG],
        [b"HTTP/1.1 200 " + b"O" * ENDLESS, HANG],
        [b"\r\n" * ENDLESS, HANG],
        [b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", HANG],
        [b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\na", HANG],
        [b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\na", HANG],
        [b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\na", HANG],
        [b"HTTP/1.1 200 OK\r\nx: a\r\n folded: b\r\n\r\n", HANG],
        [b"HTTP/1.1 200 OK\r\nx y: a\r\n\r\n", HANG],
        [b"HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n", HANG],
        [b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: ws\r\n\r\n", HANG],
        [b"HTTP/2.7 200 OK\r\n\r\n", HANG],
        [b"SSH-2.0-OpenSSH_9.6\r\n", HANG],
    ],
    ids=[
        *("header-endless", "headers-endless", "100-endless", "reason-endless", "lines-endless"),
        *("two-lengths", "length-and-chunked", "negative", "overflow", "folded", "space", "null"),
        *("101", "version", "ssh"),
    ],
)
async def test_a_malformed_or_endless_head_ends_the_request_and_the_connection(
    provider: Provider, upstream: Upstream, script: list[Step]
):
    provider.answer(script)
    with pytest.raises(NetworkError, match="hung up without an answer"):
        await read(upstream, provider.url)
    await provider.until_open(0)


@in_one_test(
    "script",
    [
        [HEAD, piece(b"a"), b"1;" + b"x" * ENDLESS, HANG],
        [HEAD, piece(b"a"), b"0\r\nx: " + b"a" * ENDLESS, HANG],
        [HEAD, piece(b"a"), b"0\r\n" + b"x: a\r\n" * ENDLESS, HANG],
        [HEAD, piece(b"a"), b"zz\r\n", HANG],
        [HEAD, piece(b"a"), b"-1\r\n", HANG],
        [HEAD, piece(b"a"), b"fffffffffffffffff\r\n", HANG],
        [HEAD, piece(b"a"), b"1\r\nabc\r\n", HANG],
        [HEAD, piece(b"a"), b"5\r\nab", CLOSE],
        [HEAD, piece(b"a"), b"0\r\n", CLOSE],
        [LENGTH % 5 + b"a", CLOSE],
    ],
    ids=[
        *("extension-endless", "trailer-endless", "trailers-endless", "size-letters"),
        *("size-negative", "size-overflow", "chunk-too-long", "close-in-chunk", "close-in-end"),
        "close-in-length",
    ],
)
async def test_a_body_that_breaks_its_framing_is_read_so_far_and_then_an_error(
    provider: Provider, upstream: Upstream, script: list[Step]
):
    provider.answer(script)
    seen = b""
    with pytest.raises(NetworkError, match="Premature close"):
        async with upstream.post(provider.url, b"{}", {}) as reply:
            async for block in reply:
                seen += block
    assert seen[:1] == b"a"
    await provider.until_open(0)


@in_one_test("apart", [True, False], ids=["apart", "in-one-piece"])
async def test_bytes_after_a_response_are_never_the_next_one(
    provider: Provider, upstream: Upstream, apart: bool
):
    forged = LENGTH % 6 + b"forged"
    real = LENGTH % 4 + b"real"
    provider.answer([real, forged] if apart else [real + forged], OK)

    assert await read(upstream, provider.url) == b"real"
    await provider.until_open(0)
    assert await read(upstream, provider.url) == b'{"ok": true}'


async def test_a_finished_response_with_bytes_after_it_is_not_reused(
    provider: Provider, upstream: Upstream
):
    provider.answer([HEAD, piece(b"[DONE]"), END + LENGTH % 6 + b"forged"], OK)
    async with upstream.post(provider.url, b"{}", {}) as reply:
        await anext(reply)
        reply.finished = True
    await provider.until_open(0)
    assert await read(upstream, provider.url) == b'{"ok": true}'


async def test_an_address_of_ipv6_is_connected_to_where_only_loopback_has_one(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
):
    look_up = socket.getaddrinfo

    def look_up_as_glibc_does(host: Any, *args: Any) -> Any:
        if args[-1] & socket.AI_ADDRCONFIG and ":" in host:
            raise socket.gaierror(socket.EAI_FAMILY, "Address family for hostname not supported")
        return look_up(host, *args)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(whole({"ok": True}))

    async with serving_one(answer, host="::1") as port:
        monkeypatch.setattr(socket, "getaddrinfo", look_up_as_glibc_does)
        assert await read(upstream, f"http://[::1]:{port}") == b'{"ok": true}'
        await upstream.aclose()


@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")
def test_connections_of_an_event_loop_that_was_closed_are_let_go():
    upstream = Upstream("Acme")

    async def ask() -> weakref.ref[asyncio.AbstractEventLoop]:
        async with serving() as provider:
            provider.answer(OK)
            await read(upstream, provider.url)
        return weakref.ref(asyncio.get_running_loop())

    loops = [asyncio.run(ask()) for _ in range(3)]
    gc.collect()
    assert [loop() is None for loop in loops] == [True, True, False]
    asyncio.run(upstream.aclose())


async def test_one_connection_serves_many_requests(provider: Provider, upstream: Upstream):
    provider.answer(OK)
    for _ in range(5):
        await upstream.request_json("GET", provider.url)
    assert (len(provider.requests), provider.connections) == (5, 1)


async def test_the_end_may_come_after_the_reader_has_left(provider: Provider, upstream: Upstream):
    end = asyncio.Event()
    provider.answer([HEAD, piece(b"[DONE]"), end, END], OK)
    async with upstream.post(provider.url, b"{}", {}) as reply:
        await anext(reply)
        reply.finished = True
    end.set()
    for _ in range(20):  # in this time the server would see that it was closed
        await read(upstream, provider.url)
    assert provider.open == provider.connections <= 2


@in_one_test(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\na",
        b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\na",
    ],
    ids=["close", "http-1.0"],
)
async def test_a_connection_that_the_server_will_close_is_not_kept(
    provider: Provider, upstream: Upstream, head: bytes
):
    provider.answer([head], OK)
    assert await read(upstream, provider.url) == b"a"
    await provider.until_open(0)


@in_one_test(("method", "requests"), [("GET", 3), ("PUT", 3), ("POST", 2)])
async def test_only_an_idempotent_request_is_sent_again_after_a_kept_connection_closed(
    provider: Provider, upstream: Upstream, method: str, requests: int
):
    provider.answer(OK, [CLOSE], OK)
    await upstream.request_json("GET", provider.url)
    if method == "POST":
        with pytest.raises(NetworkError, match="hung up without an answer"):
            await upstream.request_json(method, provider.url, {})
    else:
        assert (await upstream.request_json(method, provider.url, {})).status == 200
    assert len(provider.requests) == requests


async def test_a_new_connection_that_closes_is_no_reason_to_send_again(
    provider: Provider, upstream: Upstream
):
    provider.answer([CLOSE])
    with pytest.raises(NetworkError):
        await upstream.request_json("GET", provider.url)
    assert len(provider.requests) == 1


async def test_a_kept_connection_is_closed_after_a_while(
    provider: Provider, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pools, "KEEP_ALIVE", 0.01)
    provider.answer(OK)
    await upstream.request_json("GET", provider.url)
    await provider.until_open(0)


async def test_a_cancelled_request_closes_its_connection(provider: Provider, upstream: Upstream):
    provider.answer([HANG])
    asking = asyncio.create_task(read(upstream, provider.url))
    await provider.until_asked(1)
    asking.cancel()
    await asyncio.wait([asking])
    await provider.until_open(0)


async def test_a_silent_server_is_given_up_before_its_headers(provider: Provider):
    upstream = Upstream("Acme", idle_timeout=0.05, max_retries=2)
    provider.answer([b"HTTP/1.1 200 OK\r\n", HANG])
    with pytest.raises(RunStalled, match=r"No answer for 0\.05 seconds"):
        await read(upstream, provider.url)
    await provider.until_open(0)
    await upstream.aclose()


async def test_a_silent_server_is_given_up_within_its_body(provider: Provider):
    upstream = Upstream("Acme", idle_timeout=0.05)
    provider.answer([HEAD, piece(b"a"), HANG])
    with pytest.raises(RunStalled, match=r"No answer for 0\.05 seconds"):
        await read(upstream, provider.url)
    await provider.until_open(0)
    await upstream.aclose()


async def test_a_silence_is_no_end_where_the_close_would_be_one(provider: Provider):
    upstream = Upstream("Acme", idle_timeout=0.05)
    provider.answer([UNTIL_CLOSE + b"a", HANG])
    with pytest.raises(RunStalled):
        await read(upstream, provider.url)
    await upstream.aclose()


async def test_closing_the_client_is_an_error_for_who_still_reads(
    provider: Provider, upstream: Upstream
):
    provider.answer([UNTIL_CLOSE + b"a", HANG])
    async with upstream.post(provider.url, b"{}", {}) as reply:
        await anext(reply)
        await upstream.aclose()
        with pytest.raises(NetworkError, match="Premature close"):
            await anext(reply)


@in_one_test("encoding", ["gzip", "deflate"])
async def test_what_was_compressed_although_it_should_not_be_is_read(
    provider: Provider, upstream: Upstream, encoding: str
):
    text = b"word " * 400_000
    body = gzip.compress(text) if encoding == "gzip" else zlib.compress(text)
    provider.answer([whole(body, content_encoding=encoding)])
    blocks: list[bytes] = []
    async with upstream.post(provider.url, b"{}", {}) as reply:
        blocks = [block async for block in reply]
    assert b"".join(blocks) == text
    assert max(map(len, blocks)) <= 256 * 1024
    assert "identity" in provider.requests[0].headers["accept-encoding"]


async def test_nothing_compressed_is_nothing(provider: Provider, upstream: Upstream):
    provider.answer([whole(b"", content_encoding="gzip")])
    assert await read(upstream, provider.url) == b""


@in_one_test("body", [b"no gzip", gzip.compress(b"cut off")[:-4]], ids=["other", "cut-off"])
async def test_what_cannot_be_decompressed_is_explained(
    provider: Provider, upstream: Upstream, body: bytes
):
    provider.answer([whole(body, content_encoding="gzip")])
    with pytest.raises(NetworkError, match="Premature close"):
        await read(upstream, provider.url)


@asynccontextmanager
async def serving_one(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    host: str = "localhost",
    **options: Any,
) -> AsyncGenerator[int, None]:
    """Serve one connection on a free port, and wait until both sides have closed it."""
    closed = asyncio.Event()
    closed.set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        closed.clear()
        with suppress(asyncio.IncompleteReadError, OSError):
            await serve(reader, writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        closed.set()

    async with await asyncio.start_server(accept, host, 0, **options) as server:
        yield server.sockets[0].getsockname()[1]
        await closed.wait()


async def test_a_body_that_nobody_reads_is_held_back_in_the_socket(upstream: Upstream):
    sent = 0
    stalled = asyncio.Event()

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(UNTIL_CLOSE)
        while sent < 64 * 1024 * 1024:
            writer.write(b"x" * 65_536)
            try:
                async with asyncio.timeout(0.5 if not stalled.is_set() else 30):
                    await writer.drain()
            except TimeoutError:
                stalled.set()
                await writer.drain()
            sent += 65_536

    async with (
        serving_one(flood) as port,
        upstream.post(f"http://localhost:{port}", b"{}", {}) as reply,
    ):
        await stalled.wait()
        assert sent < 32 * 1024 * 1024
        size = 0
        async for block in reply:
            size += len(block)
    assert size == 64 * 1024 * 1024


async def test_a_large_body_is_sent_whole(provider: Provider, upstream: Upstream):
    provider.answer(OK)
    body = {"text": "é" * 1_500_000}
    assert (await upstream.request_json("POST", provider.url, body)).status == 200
    assert provider.requests[0].body == body


async def test_a_refusal_that_comes_before_the_body_was_sent_is_read(upstream: Upstream):
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(whole(b"too much", status="413 Too Large"))
        await reader.read()

    async with serving_one(refuse) as port:
        async with upstream.post(f"http://localhost:{port}", b"x" * 8_000_000, {}) as reply:
            assert (reply.status, await reply.text()) == (413, b"too much")
        await upstream.aclose()


async def test_a_request_while_the_client_closes_opens_no_other_connection(
    provider: Provider, upstream: Upstream
):
    provider.answer(OK, [HANG])
    await upstream.request_json("GET", provider.url)
    asking = asyncio.create_task(upstream.request_json("GET", provider.url))
    await provider.until_asked(2)
    await upstream.aclose()
    with pytest.raises(NetworkError, match="hung up without an answer"):
        await asking
    assert provider.connections == 1


@pytest.fixture
def model(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an address that only the provider knows, as a proxy."""
    monkeypatch.setenv("http_proxy", provider.url)
    monkeypatch.delenv("no_proxy", raising=False)
    return "http://model.test/v1"


async def test_by_a_proxy_a_finished_stream_keeps_its_connection(
    provider: Provider, upstream: Upstream, model: str
):
    end = asyncio.Event()
    provider.answer([HEAD, piece(b"[DONE]"), end, END], OK)
    async with upstream.post(model, b"{}", {}) as reply:
        await anext(reply)
        reply.finished = True
    end.set()
    for _ in range(20):  # in this time the server would see that it was closed
        assert await read(upstream, model) == b'{"ok": true}'
    assert provider.open == provider.connections <= 2


async def test_by_a_proxy_a_stream_that_is_left_closes_its_connection(
    provider: Provider, upstream: Upstream, model: str
):
    provider.answer([HEAD, piece(b"a"), HANG])
    async with upstream.post(model, b"{}", {}) as reply:
        await anext(reply)
    await provider.until_open(0)


async def test_by_a_proxy_an_end_that_never_comes_is_not_waited_for(
    provider: Provider, upstream: Upstream, model: str
):
    provider.answer([HEAD, piece(b"all"), HANG])
    async with upstream.post(model, b"{}", {}) as reply:
        await anext(reply)
        reply.finished = True
    await upstream.aclose()
    await provider.until_open(0)


@in_one_test(
    ("script", "error", "message"),
    [
        ([HEAD, piece(b"a"), b"5\r\nab", CLOSE], NetworkError, "Premature close"),
        ([HEAD, piece(b"a"), HANG], RunStalled, "No answer for"),
        ([HANG], RunStalled, "No answer for"),
        ([CLOSE], NetworkError, "hung up without an answer"),
        ([b"SSH-2.0\r\n", CLOSE], NetworkError, "hung up without an answer"),
    ],
    ids=["broken-off", "silent", "no-answer", "closed", "ssh"],
)
async def test_by_a_proxy_errors_are_the_same(
    provider: Provider, model: str, script: list[Step], error: type[Exception], message: str
):
    upstream = Upstream("Acme", connect_timeout=0.2, idle_timeout=0.2, max_retries=0)
    provider.answer(script)
    with pytest.raises(error, match=message):
        await read(upstream, model)
    await upstream.aclose()


@in_one_test(
    "headers",
    [
        {"x-key": "a\r\nx-admin: 1"},
        {"x-key": "a\nb"},
        {"x-key": "a\0b"},
        {"x\r\ny": "a"},
        {"x: y": "a"},
        {"": "a"},
    ],
)
async def test_no_header_breaks_out_of_its_line(
    provider: Provider, upstream: Upstream, headers: dict[str, str]
):
    with pytest.raises(ConfigurationFailed, match="cannot be sent"):
        await upstream.request_json("GET", provider.url, None, headers)
    assert provider.requests == []


async def test_no_header_says_where_the_body_ends_but_ours(provider: Provider, upstream: Upstream):
    provider.answer(OK)
    headers = {"Content-Length": "1", "transfer-encoding": "chunked", "Host": "other.test"}
    await upstream.request_json("POST", provider.url, {"a": 1}, headers)
    sent = provider.requests[0]
    assert sent.body == {"a": 1}
    assert (sent.headers["content-length"], sent.headers["host"]) == ("7", "other.test")
    assert "transfer-encoding" not in sent.headers


class Transport(asyncio.Transport):
    """A socket that a test writes the server's bytes to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_closed = False

    def is_closing(self) -> bool:
        return self.is_closed

    def write(self, data: object) -> None:
        del data

    def abort(self) -> None:
        self.is_closed = True


RESPONSES = [
    HEAD + b"5\r\nabcde\r\n3;x=y\r\nabc\r\n0\r\ntrailer: x\r\n\r\n",
    LENGTH % 5 + b"abcde",
    b"HTTP/1.1 100 Continue\r\n\r\n" + UNTIL_CLOSE + b"abc",
    b"HTTP/1.1 204 No\r\n\r\n" + LENGTH % 1 + b"a",
    UPGRADE,
]
SURPRISES = [
    *(b"\r\n", b"\n", b"\r", b"\0", b":", b";", b" ", b"-1", b"\xff\xfe", b"ffffffff", END),
    *(b"content-length: 3\r\n", b"transfer-encoding: gzip, chunked\r\n", b"HTTP/1.1 ", b"a" * 300),
]


def _mutate(random: Random) -> bytes:
    response = bytearray(random.choice(RESPONSES))
    for _ in range(random.randrange(4)):
        place = random.randrange(len(response) + 1)
        match random.randrange(3):
            case 0:
                response[place : place + 1] = random.randbytes(1)
            case 1:
                response[place:place] = random.choice(SURPRISES)
            case _:
                del response[place : place + random.randrange(6)]
    return bytes(response)


async def test_whatever_a_server_sends_is_a_response_or_an_error_of_the_connection():
    random = Random(11)
    for _ in range(2_000):
        sent = _mutate(random)
        free: list[Connection] = []
        connection, transport = Connection(free.append, lambda _: None), Transport()
        connection.connection_made(transport)
        asking = asyncio.create_task(connection.send(b"", b"", 60))
        await asyncio.sleep(0)
        while sent and not transport.is_closed:
            size = random.choice((1, 3, 20, 200))
            connection.data_received(sent[:size])
            sent = sent[size:]
        connection.connection_lost(None if random.random() < 0.7 else ConnectionResetError())
        with suppress(OSError):  # anything else fails the test
            response = await asking
            body = b""
            while block := await response.readany():
                body += block
            assert len(body) < 1_000
            response.release(finished=False)
        assert free == []
        assert transport.is_closed


@in_one_test(
    ("url", "target"),
    [
        ("http://h", Target(Origin(False, "h", 80), "h", "/")),
        ("https://H:443/v1?a=%20b", Target(Origin(True, "h", 443), "h", "/v1?a=%20b")),
        ("http://[::1]:8080/x", Target(Origin(False, "::1", 8080), "[::1]:8080", "/x")),
        ("http://h?x=1", Target(Origin(False, "h", 80), "h", "/?x=1")),
        ("http://user:pass@h/", None),
        ("http://h/a b", None),
        ("http://h/a\r\nx: y", None),
        ("http://h/\N{LATIN SMALL LETTER E WITH ACUTE}", None),
        ("http://h:99999/", None),
        ("http://h/#fragment", None),
        ("ftp://h/", None),
        ("http://", None),
    ],
)
def test_only_an_address_that_needs_no_change_is_sent_as_it_is(url: str, target: Target | None):
    assert parse_target(url) == target


@in_one_test("headers", [{"X-Key": "k"}, FixedHeaders({"X-Key": "k"})])
def test_the_head_of_a_request(headers: Mapping[str, str]):
    for authority in ("h:81", "g:81"):
        target = parse_target(f"http://{authority}/v1")
        assert target is not None
        assert (
            encode_head("POST", target, headers, 2)
            == (
                b"POST /v1 HTTP/1.1\r\nhost: %b\r\naccept: */*\r\naccept-encoding: identity\r\n"
                b"user-agent: copilot-runtime\r\nx-key: k\r\ncontent-length: 2\r\n\r\n"
            )
            % authority.encode()
        )


def _certificate_for(name: str, folder: Path) -> tuple[Path, Path]:
    """Write a key and a certificate that signs itself, and return where."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, SHA256())
    )
    key_file, certificate_file = folder / "key.pem", folder / "certificate.pem"
    encoding = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    key_file.write_bytes(key.private_bytes(*encoding))
    certificate_file.write_bytes(certificate.public_bytes(Encoding.PEM))
    return key_file, certificate_file


@in_one_test(
    ("name", "is_trusted"), [("localhost", True), ("localhost", False), ("other.test", True)]
)
async def test_a_certificate_must_be_trusted_and_of_the_host(
    upstream: Upstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    is_trusted: bool,
):
    key, certificate = _certificate_for(name, tmp_path)
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    pools.create_tls_context.cache_clear()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    names: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: names.append(name)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(whole({"ok": True}))

    try:
        async with serving_one(answer, ssl=context) as port:
            url = f"https://localhost:{port}"
            if name == "localhost" and is_trusted:
                for _ in range(2):
                    assert (await upstream.request_json("GET", url)).body == {"ok": True}
            else:
                with pytest.raises(NetworkError, match="No secure connection could be made"):
                    await upstream.request_json("GET", url)
            await upstream.aclose()
        assert names == ["localhost"]
    finally:
        pools.create_tls_context.cache_clear()
