"""Forty clients that open a long thread and stop reading: what that costs a real server."""

import asyncio
import json
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.in_one_test import in_one_test
from tests.processes import Program, running
from tests.wire_agui.http import Browser, connect_input, user
from tests.wire_agui.stalled_server import SIZE

pytestmark = pytest.mark.anyio

READERS = 40
LIMIT = 2.0
MEGABYTE = 1024 * 1024

THREADS = {"texts": "Hi", "text": "Hi", "result": "Hi", "state": "Hi", "question": "x" * SIZE}
MEMORY_REQUESTS = [
    *((thread, "POST", "/agent/default/connect") for thread in THREADS),
    ("result", "GET", "/threads/result/messages"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    file = tmp_path_factory.mktemp("threads") / "threads.db"
    command = [sys.executable, "-m", "tests.wire_agui.stalled_server", file, f"{LIMIT}"]
    with running(command) as program:
        yield program


@pytest.fixture(scope="module")
def port(server: Program) -> int:
    return int(server.until(r"^(\d+)\n")[1])


def memory(server: Program) -> int:
    """Return the bytes of memory that the server has at this moment."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def sockets(server: Program) -> int:
    """Return how many sockets the server has open."""
    count = 0
    for file in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            count += file.readlink().name.startswith("socket:")
    return count


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc of Linux")
@in_one_test(("thread", "method", "path"), MEMORY_REQUESTS)
async def test_forty_readers_that_stall_cost_little_and_lose_their_connections(
    thread: str, method: str, path: str, server: Program, port: int
) -> None:
    browser = Browser(port)
    if (await browser.ask("GET", f"/threads/{thread}/messages")).json()["messages"] == []:
        await browser.run(thread=thread, messages=[user(THREADS[thread])])
    await browser.ask(method, path, connect_input(thread))  # what is read once is warm
    body = json.dumps(connect_input(thread)).encode()
    head = f"{method} /copilotkit{path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    before, others, most = memory(server), sockets(server), 0
    with ExitStack() as stack:
        for _ in range(READERS):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(request)
        for _ in range(int((LIMIT + 5) / 0.05)):
            most = max(most, memory(server))
            await asyncio.sleep(0.05)  # memory has no event
            if sockets(server) <= others and most > before:
                break
        assert sockets(server) <= others  # one of before may have been about to close
    assert most - before < 60 * MEGABYTE
