"""Behind a real nginx with the settings it comes with, no part is held back."""

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from copilot_runtime import CopilotRuntime
from tests.processes import running
from tests.wire.client import HEADERS, PATH, chat
from tests.wire.server import listening
from tests.wire.upstream import HEAD, Step, Upstream, finish, text

pytestmark = pytest.mark.anyio

CONFIGURATION = """
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log stderr notice;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen unix:{folder}/nginx.sock;
    location / {{ proxy_pass http://127.0.0.1:{port}; }}
  }}
}}
"""


def need_nginx() -> str:
    """Return the program, or skip the test, or fail where tests must not be skipped."""
    if program := shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
        return program
    reason = "This test puts a real nginx in front of the runtime: apt-get install nginx."
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def configured(port: int) -> Generator[tuple[Path, Path], None, None]:
    """Write a configuration into a folder that nginx's own user can enter."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        configuration = folder / "nginx.conf"
        configuration.write_text(CONFIGURATION.format(folder=folder, port=port))
        yield folder, configuration


@asynccontextmanager
async def nginx(port: int) -> AsyncGenerator[Path, None]:
    """Run nginx in front of a port; yield the socket it listens on."""
    program = need_nginx()
    with (
        configured(port) as (folder, configuration),
        running([program, "-p", folder, "-c", configuration]) as server,
    ):
        server.errors.until("start worker process ")
        yield folder / "nginx.sock"


async def test_every_token_passes_before_the_next_one_is_made(provider: Upstream) -> None:
    words = [f"word{number} " for number in range(8)]
    gates = [asyncio.Event() for _ in words]
    script: list[Step] = [HEAD]
    for gate, word in zip(gates, words, strict=True):
        script += [gate, text(word)]
    provider.plays([*script, finish()])
    adapter = provider.adapter()

    async with listening(CopilotRuntime(adapter=adapter)) as port, nginx(port) as socket:
        reader, writer = await asyncio.open_unix_connection(socket)
        writer.write(request(chat()))
        head = await reader.readuntil(b"\r\n\r\n")
        seen = 0
        for gate, word in zip(gates, words, strict=True):
            gate.set()
            await reader.readuntil(f'["{word}"]'.encode())
            seen += 1
        rest = await reader.readuntil(b"-----")
        writer.close()
        await writer.wait_closed()

    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b'boundary="-"' in head
    assert seen == len(words)
    assert b'"SuccessResponseStatus"' in rest


async def test_leaving_the_proxy_closes_the_call_to_the_model(provider: Upstream) -> None:
    provider.plays([HEAD, text("Hello"), asyncio.Event()])
    adapter = provider.adapter()

    async with listening(CopilotRuntime(adapter=adapter)) as port, nginx(port) as socket:
        reader, writer = await asyncio.open_unix_connection(socket)
        writer.write(request(chat()))
        await reader.readuntil(b'["Hello"]')
        writer.transport.abort()

        await provider.until(open=0, hung_up=1)


def request(body: object) -> bytes:
    payload = json.dumps(body).encode()
    fields = {"host": "localhost", **HEADERS, "content-length": str(len(payload))}
    lines = [f"POST {PATH} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode() + payload
