"""A path longer than any id is refused before anything decodes it, and a head without an end."""

import asyncio
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from copilot_runtime.cli.http_protocol import limit_reading
from copilot_runtime.extensions.access.audit.log import AuditLog
from tests.extensions.access.server import entering
from tests.extensions.access.test_audit import audited, read
from tests.in_one_test import in_one_test
from tests.wire_agui.server import PATH, serving

pytestmark = pytest.mark.anyio

LONG = "%41" * 10_000
LONGEST_ID = "%F0%9F%98%80" * 500


@in_one_test(
    ("method", "path"),
    [
        ("DELETE", f"/threads/{LONG}"),
        ("GET", f"/threads/{LONG}/messages"),
        ("POST", f"/agent/{LONG}/run"),
        ("GET", f"/{LONG}"),
        ("GET", f"/a2a/{LONG}/.well-known/agent-card.json"),
    ],
)
async def test_a_path_that_is_too_long_is_refused_and_not_written_down(
    tmp_path: Path, method: str, path: str
) -> None:
    async with entering(tmp_path, settings=audited(tmp_path)) as server:
        browser = server.browser()
        answer = await browser.ask(method, path)
        longest = await browser.ask("DELETE", f"/threads/{LONGEST_ID}")
        await server.runtime.get(AuditLog).flush()

    assert (answer.status, longest.status) == (414, 401)
    assert [line["status"] for line in read(tmp_path / "audit.jsonl")] == [401]


@in_one_test(
    ("beginning", "answered"),
    [
        (f"GET {PATH}/info?{'x' * 40_000} HTTP/1.1\r\nhost: localhost\r\n\r\n", b"HTTP/1.1 401"),
        ("GET /" + "%41" * 6_000, b"HTTP/1.1 400"),
        ("GET /?" + "x" * 66_000, b"HTTP/1.1 400"),
    ],
)
async def test_a_url_without_an_end_closes_its_connection(
    tmp_path: Path, beginning: str, answered: bytes
) -> None:
    async with entering(tmp_path) as server:
        app = server.runtime.app(path=PATH)
        async with serving(app, http=limit_reading(60)) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(beginning.encode())
            answer = await reader.read(len(answered))
            writer.close()

    assert answer == answered


@in_one_test(
    "headers",
    [
        "a: b\r\n" * 300,
        f"a: {'x' * 10_000}\r\n" * 10,
        "a: " + "x" * 400_000,
        "x" * 400_000,
        "transfer-encoding: chunked\r\n\r\n0\r\n" + "a: b\r\n" * 300,
        "transfer-encoding: chunked\r\n\r\n0\r\na: " + "x" * 400_000,
        "transfer-encoding: chunked\r\n\r\n1;" + "x" * 400_000,
    ],
    ids=["many", "large", "value", "name", "trailers", "trailer", "extension"],
)
async def test_headers_without_an_end_are_refused(tmp_path: Path, headers: str) -> None:
    async with entering(tmp_path) as server:
        app = server.runtime.app(path=PATH)
        async with serving(app, http=limit_reading(60)) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"POST {PATH}/info HTTP/1.1\r\nhost: localhost\r\n{headers}".encode())
            answer = b""
            with suppress(ConnectionError):  # it is closed while this still writes
                answer = await reader.read()
            writer.close()

    assert b" 431 " in answer or answer == b"" or b" 401 " in answer
    assert reader.at_eof() or reader.exception() is not None


async def test_a_cookie_as_large_as_any_is_taken(tmp_path: Path) -> None:
    cookies = {f"x-cookie-{number}": "x" * 8_000 for number in range(7)}
    async with entering(tmp_path) as server:
        app = server.runtime.app(path=PATH)
        async with (
            serving(app, http=limit_reading(60)) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
        ):
            answers = [
                await client.get(f"{PATH}/info", headers={"authorization": "Bearer x", **cookies})
                for _ in range(3)
            ]

    assert [answer.status_code for answer in answers] == [401] * 3
