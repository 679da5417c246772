"""Chats with an application in this process, and a model in a thread with an event loop of its own.

Counts of what such a chat does are the same on a busy machine. The HTTP server is not part of it.
"""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, MutableMapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.streaming.clients import Client
from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.openai import OpenAIAdapter

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class InProcess:
    """An application that answers with a model of `chunks` words.

    The model sends a word when the client has received the one before, so each arrives alone.
    """

    def __init__(self, app: Any, model: "_Model") -> None:
        self._app = app
        self._model = model

    async def chat_many(self, client: Client, path: str, count: int) -> None:
        """Send short chats, one after another."""
        for _ in range(count):
            await self.chat(client, path)

    async def chat(self, client: Client, path: str, chunks: int = 1) -> None:
        """Send one chat, and receive its whole answer."""
        body = json.dumps(client.body((), str(chunks), "")).encode()
        requests = [{"type": "http.request", "body": body, "more_body": False}]
        done = asyncio.Event()

        async def receive() -> MutableMapping[str, Any]:
            if requests:
                return requests.pop()
            await done.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            assert message.get("status", 200) == 200, message
            self._model.go_on()
            if message["type"] == "http.response.body" and not message.get("more_body"):
                done.set()

        headers = {"host": "localhost", "content-type": "application/json", "accept": client.accept}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        await self._app(scope, receive, send)


@asynccontextmanager
async def serve_in_process() -> AsyncGenerator[InProcess]:
    """Serve an application whose threads are in memory, below `/graphql`."""
    model = _Model()
    url = f"http://127.0.0.1:{model.start()}/v1"
    adapter = OpenAIAdapter("m", base_url=url, api_key="k")
    runtime = CopilotRuntime(adapter, settings=Settings(threads="memory"))
    recorder: Any = runtime.runtime.bus
    recorder._commits.patience = 3_600  # a slow machine would commit more often
    try:
        yield InProcess(runtime.lazy_app(), model)
    finally:
        await runtime.aclose()


class _Model:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._received = asyncio.Event()

    def start(self) -> int:
        """Start the thread; return the port."""
        port: Future[int] = Future()

        async def serve() -> None:
            server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
            port.set_result(server.sockets[0].getsockname()[1])
            await server.serve_forever()

        threading.Thread(target=lambda: self._loop.run_until_complete(serve()), daemon=True).start()
        return port.result()

    def go_on(self) -> None:
        """Tell the model that a client has received something. Called from the other thread."""
        self._loop.call_soon_threadsafe(self._received.set)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                body = json.loads(await reader.readexactly(int(size)))
                await self._stream(writer, int(body["messages"][-1]["content"]))
        except asyncio.IncompleteReadError:
            writer.close()

    async def _stream(self, writer: asyncio.StreamWriter, chunks: int) -> None:
        word = _encode({"content": "word"})
        last = _encode({}, "stop") + b"data: [DONE]\n\n"
        blocks = [_HEAD + _frame(_encode({"role": "assistant", "content": ""}) + word)]
        blocks += [_frame(word) for _ in range(chunks - 1)]
        blocks[-1] += _frame(last) + b"0\r\n\r\n"
        for number, block in enumerate(blocks):
            if number:
                await self._received.wait()
            self._received.clear()
            writer.write(block)  # at once, so that it is read at once


def _encode(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _frame(block: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(block), block)
