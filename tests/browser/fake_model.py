"""A server on loopback that speaks OpenAI's bytes and says what a test tells it to."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import takewhile
from typing import Any

SUGGESTIONS = [
    {"title": "What is left?", "message": "What is left to do?"},
    {"title": "Plan the party", "message": "Plan the party"},
]

Script = Callable[["Turn"], Awaitable[None]]


class Turn:
    """One request of the runtime, and the answer to it."""

    def __init__(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.body = body
        self.left = asyncio.Event()
        """Set when the runtime closed the connection before the answer was whole."""
        self._writer = writer
        self._streaming = False
        self._calls = 0

    @property
    def question(self) -> str:
        """What the person said last."""
        said = [m["content"] for m in self.body["messages"] if m["role"] == "user"]
        return said[-1] if said else ""

    @property
    def results(self) -> list[str]:
        """The results of actions, if those are what is to be answered."""
        fresh = takewhile(lambda m: m["role"] != "user", reversed(self.body["messages"]))
        return [message["content"] for message in fresh if message["role"] == "tool"][::-1]

    @property
    def wants_suggestions(self) -> bool:
        """Say whether the page asks for suggestions: CopilotKit then forces one function."""
        return self._forced in ("extract", "copilotkitSuggest")

    @property
    def _forced(self) -> str | None:
        choice = self.body.get("tool_choice")
        return choice["function"]["name"] if isinstance(choice, dict) else None

    async def suggest(self) -> None:
        """Call the function the page forces: v1 and v2 name it differently."""
        await self.call(self._forced or "", suggestions=SUGGESTIONS)

    async def say(self, text: str) -> None:
        """Stream one piece of text."""
        await self._delta({"content": text})

    async def call(self, name: str, **arguments: Any) -> None:
        """Stream the call of an action, its arguments cut in the middle."""
        text = json.dumps(arguments)
        call_id = f"call_{name}_{len(self.body['messages'])}_{self._calls}"
        pieces = ["", text[: len(text) // 2], text[len(text) // 2 :]]
        for number, piece in enumerate(pieces):
            call: dict[str, Any] = {"index": self._calls, "function": {"arguments": piece}}
            if number == 0:
                call |= {"id": call_id, "type": "function"}
                call["function"]["name"] = name
            await self._delta({"tool_calls": [call]})
        self._calls += 1

    async def refuse(self, status: int, message: str) -> None:
        """Answer with an error instead of a stream."""
        error = {"error": {"message": message, "type": "invalid_request_error", "code": None}}
        await self._head(f"{status} Refused", "application/json")
        await self._write(json.dumps(error).encode())

    async def finish(self) -> None:
        """End the answer as OpenAI does, unless it was refused."""
        if self._streaming:
            await self._delta({}, finish="tool_calls" if self._calls else "stop")
            await self._write(b"data: [DONE]\n\n")

    async def _delta(self, delta: dict[str, Any], finish: str | None = None) -> None:
        if not self._streaming:
            self._streaming = True
            await self._head("200 OK", "text/event-stream")
            await self._delta({"role": "assistant", "content": ""})
        chunk = {
            "id": f"chatcmpl-{len(self.body['messages'])}",
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": self.body.get("model"),
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }
        await self._write(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    async def _head(self, status: str, content_type: str) -> None:
        head = f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\nconnection: close\r\n\r\n"
        await self._write(head.encode())

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


class FakeModel:
    """Answers each question with the script a test put under it."""

    def __init__(self) -> None:
        self.url = ""
        self.place = "board"
        """What the model calls the page when it repeats the results of actions."""
        self.scripts: dict[str, Script] = {}
        self.fallback: Script | None = None
        """What answers a question without a script, if that is not just said."""
        self.turns: list[Turn] = []
        self._connections: set[asyncio.Task[None]] = set()

    def turn(self, question: str) -> Turn:
        """Return the last turn that answered this question itself: no result, no suggestions."""
        turns = [t for t in self.turns if not t.results and not t.wants_suggestions]
        return [t for t in turns if t.question == question][-1]

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection in a task of ours, so that `close` can end it."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def close(self) -> None:
        """End every connection that is still open."""
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.split("content-length:")[1].split("\r\n")[0])
                turn = Turn(json.loads(await reader.readexactly(length)), writer)
                self.turns.append(turn)
                await self._answer_or_notice(turn, reader)
            finally:
                writer.close()
                await writer.wait_closed()

    async def _answer_or_notice(self, turn: Turn, reader: asyncio.StreamReader) -> None:
        """Answer, unless the runtime leaves first."""
        answering = asyncio.create_task(self.answer(turn))
        leaving = asyncio.create_task(reader.read())
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                turn.left.set()
        finally:
            answering.cancel()
            leaving.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    async def answer(self, turn: Turn) -> None:
        """Answer one request."""
        if turn.wants_suggestions:
            await turn.suggest()
        elif turn.results:
            await turn.say(f"The {self.place} says: {' '.join(turn.results)}")
        elif turn.question in self.scripts:
            await self.scripts[turn.question](turn)
        elif self.fallback is not None:
            await self.fallback(turn)
        else:
            await turn.say(f"Nobody told me what to say to {turn.question!r}.")
        await turn.finish()


@asynccontextmanager
async def running_model(model: FakeModel | None = None) -> AsyncGenerator[FakeModel, None]:
    """Serve a `FakeModel` on a free port."""
    model = model or FakeModel()
    server = await asyncio.start_server(model.accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    model.url = f"http://{host}:{port}"
    try:
        yield model
    finally:
        server.close()
        await model.close()
