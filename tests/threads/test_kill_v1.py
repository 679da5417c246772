"""A server that is killed amid v1 chats: their threads keep how each answer began.

A v1 client may have seen a little more than that: it cannot come back to the middle of an
answer, but asks again with all it has seen. `KILLS=200` kills more often.
"""

import asyncio
import json
import random
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.conformance.v2.oracle import Oracle
from tests.threads.kills import KILLS, Frame, Server, asked, by_run, kill_amid, started
from tests.wire.client import HEADERS, WHEN, Json, chat, merge, user

CHATS = 12

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300 + 30 * KILLS)]


@dataclass
class Answer:
    """What came of one answer."""

    question: str
    body: bytearray = field(default_factory=bytearray)

    @property
    def is_whole(self) -> bool:
        return self.body.endswith(b"\r\n-----\r\n")

    def response(self) -> Json | None:
        """Return what the client shows; None if not even the head has come."""
        parts = bytes(self.body).split(b"\r\n---")[1:-1]
        payloads = [json.loads(part.split(b"\r\n\r\n", 1)[1]) for part in parts]
        return merge(payloads)["generateCopilotResponse"] if payloads else None


@dataclass
class Chat:
    """What a v1 client has of one thread."""

    thread: str
    messages: list[Json] = field(default_factory=list[Json])
    answers: list[Answer] = field(default_factory=list[Answer])

    async def ask(self, server: Server, begun: asyncio.Event) -> None:
        """Ask one question after the other, with all before it, until the server is gone."""
        with suppress(aiohttp.ClientError):
            while True:
                await self._ask(server, begun)

    async def _ask(self, server: Server, begun: asyncio.Event) -> None:
        answer = Answer(f"u-{self.thread}-{len(self.answers)}")
        self.answers.append(answer)
        self.messages.append(user("Talk!", answer.question))
        session = {"agentName": "default"}
        body = chat(*self.messages, threadId=self.thread, agentSession=session)
        try:
            async with server.client.post(server.url, json=body, headers=HEADERS) as response:
                async for some in response.content.iter_any():
                    answer.body += some
                    begun.set()
        finally:
            shown: Json = answer.response() or {"messages": []}
            self.messages += [one for message in shown["messages"] for one in _brought(message)]


def _brought(message: Json) -> Iterable[Json]:
    """Yield a message of an answer as the next request brings it."""
    head = {"id": message["id"], "createdAt": WHEN}
    match message:
        case {"content": pieces}:
            yield head | {"textMessage": {"role": "assistant", "content": "".join(pieces)}}
        case {"arguments": pieces, "name": name}:
            call = {"name": name, "arguments": "".join(pieces)}
            yield head | {"actionExecutionMessage": call}
        case {"result": result, "actionExecutionId": call, "actionName": name}:
            told = {"result": result, "actionExecutionId": call, "actionName": name}
            yield head | {"resultMessage": told}
        case _:
            pass


def _shown(messages: Iterable[Json]) -> str:
    """Return all that is said in the messages of an answer."""
    return "".join(
        piece
        for message in messages
        for key in ("content", "arguments", "result")
        for piece in message.get(key, ())
    )


def _kept(frames: Iterable[Frame]) -> str:
    """Return all that is said in the replay of a run, without what ends a call for us."""
    said: list[str] = []
    for frame in frames:
        match frame:
            case {"type": "TEXT_MESSAGE_CONTENT" | "TOOL_CALL_ARGS", "delta": text}:
                said.append(text)
            case {"type": "TOOL_CALL_RESULT", "content": text} if text.endswith(" seen"):
                said.append(text)
            case _:
                pass
    return "".join(said)


@dataclass
class Losses:
    """How much of the answers that were cut off the threads have not kept, in characters."""

    of_each: list[int] = field(default_factory=list[int])

    def wrong(self, answer: Answer, runs: Iterable[Sequence[Frame]]) -> str | None:
        """Say what is wrong with what is kept of an answer."""
        response = answer.response()
        if response is None:
            return None
        frames = next((run for run in runs if answer.question in asked(run)), None)
        if frames is None:
            return f"{answer.question} is not kept"
        shown, kept = _shown(response["messages"]), _kept(frames)
        if answer.is_whole:
            is_kept = kept == shown and frames[-1]["type"] == "RUN_FINISHED"
            return None if is_kept else f"{shown!r} shown to its end, {kept!r} kept"
        self.of_each.append(max(0, len(shown) - len(kept)))
        is_beginning = shown.startswith(kept) or kept.startswith(shown)
        return None if is_beginning else f"{shown!r} shown, {kept!r} kept"


async def check(server: Server, chats: Sequence[Chat], oracle: Oracle, losses: Losses) -> list[Any]:
    """Return what is wrong with the threads of these chats."""
    wrong: list[Any] = []
    for one in chats:
        frames = await server.replay(one.thread)
        runs = by_run(frames).values()
        found = [oracle.verify(frames), *(losses.wrong(each, runs) for each in one.answers)]
        wrong += [(one.thread, complaint) for complaint in found if complaint]
    return wrong


async def test_what_is_kept_of_an_answer_is_its_beginning(tmp_path: Path) -> None:
    file, losses = tmp_path / "threads.db", Losses()
    old = [Chat(f"old-{number}") for number in range(CHATS // 2)]
    chats: list[Chat] = []
    with Oracle() as oracle:
        for kill in range(KILLS):
            async with started(file) as server:
                assert await check(server, chats, oracle, Losses()) == []
                chats = [*old, *(Chat(f"new-{kill}-{number}") for number in range(CHATS // 2))]
                random.shuffle(chats)
                begun = asyncio.Event()
                await kill_amid(server, begun, [one.ask(server, begun) for one in chats])
        async with started(file) as server:
            assert await check(server, chats, oracle, losses) == []

    answers = sum(len(one.answers) for one in chats)
    lost = f"lost {sorted(losses.of_each)} characters of the last {len(losses.of_each)} cut off"
    sys.stdout.write(f"{KILLS} kills, {answers} answers, {lost}\n")
    assert losses.of_each
