"""A model provider on loopback, every byte and every silence of which a test decides."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from copilot_runtime import OpenAIAdapter

RESET: Final = "reset"
"""Cut the connection without a word."""

SILENCE: Final = "silence"
"""Say nothing more until the other side hangs up."""

Step = bytes | str | asyncio.Event
"""Bytes to send, RESET, SILENCE, or an event to wait for."""

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)
END = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def piece(data: bytes) -> bytes:
    """Return one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def delta(content: dict[str, Any], *, finish: str | None = None, id: str = "chatcmpl-1") -> bytes:
    """Return one server-sent event of the chat completions API."""
    choice = {"index": 0, "delta": content, "finish_reason": finish}
    body = {"id": id, "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


def text(content: str) -> bytes:
    """Return a chunk with one piece of text."""
    return piece(delta({"content": content}))


def call(
    arguments: str, *, index: int = 0, id: str | None = None, name: str | None = None
) -> bytes:
    """Return a chunk with one piece of a call; `id` and `name` come with the first piece."""
    function = {"arguments": arguments, **({"name": name} if name else {})}
    start = {"id": id, "type": "function"} if id else {}
    return piece(delta({"tool_calls": [{"index": index, **start, "function": function}]}))


def finish(reason: str = "stop") -> bytes:
    """Return the end of a complete answer."""
    return piece(delta({}, finish=reason)) + piece(DONE) + END


def saying(*words: str) -> list[Step]:
    """Return the script of a complete answer, one chunk per word."""
    return [HEAD, *map(text, words), finish()]


def refusing(status: int, message: str, *headers: str) -> list[Step]:
    """Return the script of an error answer."""
    body = json.dumps({"error": {"message": message, "type": "mock", "code": None}}).encode()
    head = [f"HTTP/1.1 {status} Refused", "Content-Type: application/json", *headers]
    head += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return ["\r\n".join(head).encode() + body]


class Upstream:
    """Plays one script per request, the last one for all that follow."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[dict[str, Any]] = []
        self.open = 0
        self.hung_up = 0
        self._scripts: list[Sequence[Step]] = [saying("Hello")]
        self._change = asyncio.Condition()

    def adapter(self, **options: Any) -> OpenAIAdapter:
        """Return an adapter that talks to this provider, and does not try twice."""
        options = {"api_key": "k", "max_retries": 0, **options}
        return OpenAIAdapter(base_url=self.url, **options)

    def plays(self, *scripts: Sequence[Step]) -> None:
        """Set what is answered to the next requests."""
        self._scripts = list(scripts)

    async def until(self, *, open: int | None = None, hung_up: int = 0, asked: int = 0) -> None:
        """Wait until so many requests are open, were left by the caller, or came at all."""
        async with self._change:
            await self._change.wait_for(
                lambda: (
                    (open is None or self.open == open)
                    and self.hung_up >= hung_up
                    and len(self.requests) >= asked
                )
            )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
            request = json.loads(await reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            return
        self.requests.append(request)
        self.open += 1
        await self._tell()
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        play = asyncio.create_task(self._play(script, writer))
        gone = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait([play, gone], return_when=asyncio.FIRST_COMPLETED)
            if not play.done():
                self.hung_up += 1
        finally:
            for task in (play, gone):
                task.cancel()
            await asyncio.gather(play, gone, return_exceptions=True)
            writer.close()
            self.open -= 1
            await self._tell()

    async def _play(self, script: Sequence[Step], writer: asyncio.StreamWriter) -> None:
        for step in script:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif isinstance(step, asyncio.Event):
                await step.wait()
            elif step == RESET:
                writer.transport.abort()
            else:
                await asyncio.Event().wait()

    async def _tell(self) -> None:
        async with self._change:
            self._change.notify_all()


@asynccontextmanager
async def upstream() -> AsyncGenerator[Upstream, None]:
    """Serve a provider on a free port of loopback."""
    provider = Upstream()
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield provider
    finally:
        server.close()
        await provider.until(open=0)
