"""Chats with an application in this process; a thread has the event loop of its model or agent.

Counts of what such a chat does are the same on a busy machine. The HTTP server is not part of it.
"""

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Mapping, MutableMapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

from benchmarks.streaming.clients import Client
from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.agents.agui import AguiAgent
from copilot_runtime.api.agent import StageFunction
from copilot_runtime.threads.store import ThreadStore

_PAUSE = 0.003
"""Seconds before a word. The clock of uvloop has milliseconds, and chunks of one are joined."""

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class InProcess:
    """An application that answers with a model or an agent of `chunks` words.

    That sends a word when the client has received the one before, so each arrives alone.
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
        await self.request(path, body, client.accept)

    def read_cpu_clock(self) -> float:
        """Return the CPU seconds of this process, those of the model left out."""
        return time.process_time() - self._model.read_cpu_clock()

    async def request(
        self, path: str, body: bytes = b"", accept: str = "*/*", *, query: str = ""
    ) -> bytes:
        """Send a request, by GET if it has no body. Returns the last part of the response."""
        client = _Client(body, self._model)
        headers = {"host": "localhost", "content-type": "application/json", "accept": accept}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST" if body else "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        await self._app(scope, client.receive, client.send)
        return client.last_part


class _Client:
    """A request, with the attributes of uvicorn's own object that are read."""

    write_paused = False

    def __init__(self, body: bytes, model: "_Model") -> None:
        self.flow = self
        self.last_part = b""
        self._requests = [{"type": "http.request", "body": body, "more_body": False}]
        self._model = model
        self._done = asyncio.Event()

    async def receive(self) -> MutableMapping[str, Any]:
        if self._requests:
            return self._requests.pop()
        await self._done.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        assert message.get("status", 200) == 200, message
        self._model.go_on()
        if message["type"] == "http.response.body":
            self.last_part = message.get("body", b"")
            if not message.get("more_body"):
                self._done.set()


@asynccontextmanager
async def serve_in_process(
    threads: ThreadStore | str = "memory",
    stages: Sequence[StageFunction] = (),
    *,
    agent: bool = False,
) -> AsyncGenerator[InProcess]:
    """Serve an application below `/graphql`, with its threads in memory unless told otherwise.

    It answers with a model, or with an AG-UI agent.
    """
    model = _Model()
    url = f"http://127.0.0.1:{model.start()}"
    chat = None if agent else OpenAIAdapter("m", base_url=f"{url}/v1", api_key="k")
    runtime = CopilotRuntime(
        chat,
        agents={"default": AguiAgent(f"{url}{_AGENT_PATH}")} if agent else {},
        threads=threads,
        stages=stages,
        settings=Settings(threads="memory"),
    )
    recorder: Any = runtime.runtime.bus
    recorder._commits.patience = 3_600  # a slow machine would commit more often
    try:
        yield InProcess(runtime.lazy_app(), model)
    finally:
        await runtime.aclose()


class _Model:
    """A model, and an AG-UI agent at `_AGENT_PATH`."""

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

        run = partial(self._loop.run_until_complete, serve())
        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        return port.result()

    def read_cpu_clock(self) -> float:
        """Return the CPU seconds of the thread."""
        assert self._thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))

    def go_on(self) -> None:
        """Tell the model that a client has received something. Called from the other thread."""
        self._loop.call_soon_threadsafe(self._received.set)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                body = json.loads(await reader.readexactly(int(size)))
                script = _AGENT if f" {_AGENT_PATH} ".encode() in head else _MODEL
                await self._stream(writer, script, int(body["messages"][-1]["content"]))
        except asyncio.IncompleteReadError:
            writer.close()

    async def _stream(self, writer: asyncio.StreamWriter, script: "_Script", chunks: int) -> None:
        blocks = [_HEAD + _frame(script.first + script.word)]
        blocks += [_frame(script.word) for _ in range(chunks - 1)]
        blocks[-1] += _frame(script.last) + b"0\r\n\r\n"
        for number, block in enumerate(blocks):
            if number:
                await self._received.wait()
                await asyncio.sleep(_PAUSE)
            self._received.clear()
            writer.write(block)  # at once, so that it is read at once


class _Script(NamedTuple):
    """The server-sent events before the words, of a word, and after the words."""

    first: bytes
    word: bytes
    last: bytes


def _encode(event: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def _encode_chunk(delta: Mapping[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _encode({"id": "c", "model": "m", "choices": [choice]})


def _encode_message_event(kind: str, **fields: str) -> bytes:
    return _encode({"type": f"TEXT_MESSAGE_{kind}", "messageId": "m", **fields})


def _encode_run_event(kind: str) -> bytes:
    return _encode({"type": f"RUN_{kind}", "threadId": "t", "runId": "r"})


def _frame(block: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(block), block)


_AGENT_PATH = "/agent"
_MODEL = _Script(
    _encode_chunk({"role": "assistant", "content": ""}),
    _encode_chunk({"content": "word"}),
    _encode_chunk({}, "stop") + b"data: [DONE]\n\n",
)
_AGENT = _Script(
    _encode_run_event("STARTED") + _encode_message_event("START", role="assistant"),
    _encode_message_event("CONTENT", delta="word"),
    _encode_message_event("END") + _encode_run_event("FINISHED"),
)
