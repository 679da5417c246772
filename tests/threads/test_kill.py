"""A server that is killed has lost nothing that a reader saw who may come back.

`KILLS=200 pytest tests/threads/test_kill.py` kills it more often.
"""

import asyncio
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from tests.conformance.v2.oracle import Oracle
from tests.threads.kills import KILLS, Frame, Server, asked, by_run, kill_amid, started

READERS = 12

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300 + 30 * KILLS)]


@dataclass
class Seen:
    """What a reader saw of one run."""

    thread: str
    run: str
    frames: list[Frame] = field(default_factory=list[Frame])


@dataclass(frozen=True)
class Content:
    """What some events of a run amount to: the same for every way to cut a text into pieces."""

    order: Sequence[str]
    """What began, each thing once, in the order in which it began."""
    texts: Mapping[str, str]
    last: str

    @classmethod
    def of(cls, frames: Iterable[Frame]) -> "Content":
        order: list[str] = []
        texts: defaultdict[str, str] = defaultdict(str)
        last = ""
        for frame in frames:
            key = frame.get("messageId") or frame.get("toolCallId") or ""
            match last := str(frame["type"]):
                case "TEXT_MESSAGE_START" | "TOOL_CALL_START":
                    order.append(key)
                case "TEXT_MESSAGE_CONTENT" | "TOOL_CALL_ARGS":
                    texts[key] += frame["delta"]
                case "TOOL_CALL_RESULT":
                    order.append(key)
                    texts[key] = frame["content"]
                case "CUSTOM":
                    order.append(f"custom {frame['value']}")
                case _:
                    pass
        return cls(order, texts, last)

    def lacks(self, other: "Content") -> str | None:
        """Say what is not here of what a reader saw."""
        seen = list(other.order)
        if list(self.order)[: len(seen)] != seen:
            return f"order: {seen} seen, {self.order} kept"
        for key, text in other.texts.items():
            if not self.texts.get(key, "").startswith(text):
                return f"{key}: {text!r} seen, {self.texts.get(key)!r} kept"
        if other.last in ("RUN_FINISHED", "RUN_ERROR") and self.last != other.last:
            return f"end: {other.last} seen, {self.last} kept"
        return None


async def ask(server: Server, thread: str, begun: asyncio.Event, seen: list[Seen]) -> None:
    """Ask one question after the other, until the server is gone."""
    with suppress(aiohttp.ClientError):
        while True:
            now = Seen(thread, f"{thread}-{len(seen)}-{random.randrange(10**9)}")
            seen.append(now)
            reading = server.read("run", now.thread, now.run, now.frames)
            begun.set()
            await reading


async def talk_and_kill(server: Server, threads: Sequence[str]) -> list[Seen]:
    """Let many readers ask, and kill the server at some moment. Returns what they saw."""
    seen: list[Seen] = []
    begun = asyncio.Event()
    await kill_amid(server, begun, [ask(server, thread, begun, seen) for thread in threads])
    return seen


async def check(server: Server, seen: Sequence[Seen], oracle: Oracle) -> list[str]:
    """Return what is wrong with the threads these readers saw."""
    wrong: list[str] = []
    for thread in dict.fromkeys(one.thread for one in seen):
        frames = await server.replay(thread)
        if complaint := oracle.verify(frames):
            wrong.append(f"{thread}: {complaint}")
        runs = by_run(frames)
        for one in seen:
            if one.thread == thread and one.frames:
                kept = runs.get(one.run, [])
                lacking = Content.of(kept).lacks(Content.of(one.frames))
                if lacking or f"u-{one.run}" not in asked(kept):
                    wrong.append(f"{one.run}: {lacking or 'the question'}")
    return wrong


async def test_nothing_is_lost_that_a_reader_saw(tmp_path: Path) -> None:
    file = tmp_path / "threads.db"
    all_seen: list[Seen] = []
    seen: list[Seen] = []
    with Oracle() as oracle:
        for kill in range(KILLS):
            old = [f"old-{kill // 5}-{number}" for number in range(READERS // 2)]
            new = [f"new-{kill}-{number}" for number in range(READERS // 2)]
            async with started(file) as server:
                assert await check(server, seen, oracle) == []
                seen = await talk_and_kill(server, [*old, *new])
            all_seen += seen
        async with started(file) as server:
            assert await check(server, all_seen, oracle) == []

    frames = sum(len(one.frames) for one in all_seen)
    sys.stdout.write(f"{KILLS} kills, {len(all_seen)} runs, {frames} events seen\n")
    assert frames > KILLS
