"""A server is killed while another one shows its runs: each reader there learns how they ended."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

import aiohttp
import pytest

from tests.threads.kills import KILLS, Frame, Server, by_run, kill_amid, started
from tests.threads.test_kill import Content

READERS = 8

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300 + 30 * KILLS)]


class Follower:
    """Asks one server again and again until it dies, and reads its answers at another one."""

    def __init__(self, name: str, begun: asyncio.Event) -> None:
        self.seen: dict[str, list[Frame]] = {}
        """What it saw of each thread."""
        self._name = name
        self._begun = begun

    async def read(self, owner: Server, other: Server) -> None:
        for number in count():
            thread = f"{self._name}-{number}"
            asking = asyncio.create_task(owner.read("run", thread, f"r-{thread}", []))
            frames: list[Frame] = []
            while not frames and not (asking.done() and asking.exception()):
                await other.read("connect", thread, "connect", frames)
            self.seen[thread] = frames
            self._begun.set()
            try:
                await asking
            except aiohttp.ClientError:
                return


@pytest.mark.parametrize("kill", range(KILLS))
async def test_readers_elsewhere_see_the_end_of_the_runs_of_a_killed_server(
    tmp_path: Path, kill: int
) -> None:
    del kill
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(started(tmp_path / "threads.db"))
        other = await stack.enter_async_context(started(tmp_path / "threads.db"))
        begun = asyncio.Event()
        followers = [Follower(f"t{number}", begun) for number in range(READERS)]
        await kill_amid(owner, begun, [follower.read(owner, other) for follower in followers])
        seen = {thread: frames for one in followers for thread, frames in one.seen.items()}
        replays: Mapping[str, list[Frame]] = {thread: await other.replay(thread) for thread in seen}
        again: dict[str, list[Frame]] = {thread: [] for thread in seen if by_run(replays[thread])}
        for thread, frames in again.items():
            await other.read("run", thread, f"r-{thread}", frames)

    for thread, frames in seen.items():
        if not frames or not by_run(replays[thread]):
            continue  # the server was killed before it had accepted the question
        assert frames[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR"), thread
        assert Content.of(frames) == Content.of(replays[thread]), frames
        assert Content.of(again[thread]) == Content.of(replays[thread]), "it was answered anew"
