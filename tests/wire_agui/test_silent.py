"""A client that sends nothing, or half of something, does not keep its connection."""

import asyncio
import json
import socket
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedOK
from websockets.typing import Subprotocol

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.scripted import Gate, ScriptedAdapter, say
from copilot_runtime.cli.http_protocol import limit_reading, limit_silence
from tests.in_one_test import in_one_test
from tests.wire.client import data, user
from tests.wire.test_subscriptions import QUERY
from tests.wire_agui.http import Browser
from tests.wire_agui.server import PATH, serving

pytestmark = pytest.mark.anyio

SOON = 0.3
WHOLE = f"GET {PATH}/info HTTP/1.1\r\nhost: localhost\r\n\r\n"
HEAD = f"POST {PATH}/agent/default/run HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n"


def runtime(gate: Gate | None = None, **more: Any) -> CopilotRuntime:
    settings = Settings(threads="memory", read_timeout=SOON, keep_alive=SOON, **more)
    return CopilotRuntime(adapter=ScriptedAdapter(say("Hello."), gate=gate), settings=settings)


@in_one_test(
    ("said", "status"),
    [
        ("", b""),
        ("GET ", b""),
        (WHOLE[:-2], b""),
        (WHOLE + WHOLE[:-2], b"200"),
        (HEAD, b"408"),
        (HEAD + '{"a', b"408"),
    ],
    ids=["nothing", "a word", "half a head", "half a second head", "no body", "half a body"],
)
async def test_a_connection_on_which_nothing_comes_is_closed(said: str, status: bytes) -> None:
    async with serving(runtime().app(path=PATH), http=limit_reading(SOON)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said.encode())

        answer = await asyncio.wait_for(reader.read(), 60)

        writer.close()
    assert answer[9:12] == status


@in_one_test("path", ["", "/agent/default/run", "/mcp", "/actions/execute"])
async def test_what_comes_of_a_body_after_its_time_is_no_other_request(path: str) -> None:
    app = runtime(serve_mcp=True, serve_remote=True).app(path=PATH)
    async with serving(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD.replace("/agent/default/run", path).encode() + b'{"a')

        answer = await asyncio.wait_for(reader.read(), 60)

        writer.close()
    assert answer[9:12] == b"408"
    assert b"connection: close" in answer


async def test_an_answer_may_take_longer_than_a_request() -> None:
    gate = Gate()
    app = runtime(gate).app(path=PATH)
    async with (
        serving(app, http=limit_reading(SOON)) as port,
        Browser(port).running() as exchange,
    ):
        await exchange.until("RUN_STARTED")
        for _ in range(3):
            await exchange.to_comment()
        gate.release(10)
        assert (await exchange.rest())[-1]["type"] == "RUN_FINISHED"


async def test_a_websocket_is_closed_once_it_is_used_for_nothing() -> None:
    gate = Gate()
    listening = asyncio.Semaphore(0)
    payload = {"query": QUERY, "variables": {"data": data(user())}}
    inner = runtime(gate).app(path=PATH)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def listen() -> Message:
            listening.release()
            return await receive()

        await inner(scope, listen if scope["type"] == "websocket" else receive, send)

    async with serving(app, http=limit_reading(SOON)) as port:
        url, protocol = f"ws://127.0.0.1:{port}{PATH}", Subprotocol("graphql-transport-ws")
        async with connect(url, subprotocols=[protocol]) as socket:
            await socket.send(json.dumps({"type": "connection_init"}))
            await socket.recv()
            await socket.send(json.dumps({"id": "1", "type": "subscribe", "payload": payload}))
            for _ in range(4 + 3):  # after four messages, it gives up listening three times
                await listening.acquire()
            gate.release(10)
            seen = [json.loads(await socket.recv())["type"]]
            while seen[-1] != "complete":
                seen.append(json.loads(await socket.recv())["type"])
            with pytest.raises(ConnectionClosedOK, match=r"No operation for 0\.3 s"):
                await asyncio.wait_for(socket.recv(), 60)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="an option of Linux")
def test_a_connection_ends_whose_other_machine_has_vanished() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        limit_silence(listener, 120)
        with socket.create_connection(listener.getsockname()):
            connection, _ = listener.accept()
            with connection:
                options = [socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL]
                times = [connection.getsockopt(socket.IPPROTO_TCP, name) for name in options]
                assert times == [120_000, 60, 15]
                assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


@in_one_test("seconds", [2 * 86_400.0, 1e9])
def test_a_time_that_is_too_long_for_the_system_is_its_longest(seconds: float) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        limit_silence(listener, seconds)

        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
