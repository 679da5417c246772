"""Kills processes that carry out plans, at random moments: `python -m … FOLDER KILLS SEED LOG`.

A child is forked for each life, which ends after some effects. It goes on with the plans of those
before it, and begins one if there is none. Its tools write one byte-exact line for each effect. A
person, who can read those lines, answers what the engine asks.
"""

import asyncio
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from copilot_runtime.extensions.planner.build import build_log
from copilot_runtime.extensions.planner.events import PlanEntry, QuestionAsked
from copilot_runtime.extensions.planner.log import PlanLog, PlanQuery
from copilot_runtime.extensions.planner.plan import TaskState
from copilot_runtime.extensions.planner.roles import TaskContext
from tests.extensions.planner.crew import Crew, build_engine, build_plan

TASKS = 20
CALLS = ("look", "send", "pay")
"""Tools that each task calls; the first one may be called twice."""


def main(folder: Path, kills: int, seed: int, address: str) -> None:
    """Live and die so often, then live to the end, and print what was done."""
    chance = random.Random(seed)  # no secret
    deaths = 0
    while True:
        is_last = deaths >= kills
        work, works = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(live(folder, build_log(address), works, only_finish=is_last))
            except BaseException:
                traceback.print_exc()
            os._exit(0)
        os.close(works)
        if not is_last:
            effects = chance.randint(0, 40)
            while effects and os.read(work, 1):
                effects -= 1
            time.sleep(chance.uniform(0, 0.005))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(work)
        deaths += os.WIFSIGNALED(status)
        if is_last:
            break
    sys.stdout.write(f"{deaths}\n")


async def live(folder: Path, log: PlanLog, works: int, *, only_finish: bool) -> None:
    """Go on with all plans; then begin new ones, unless this is the last life.

    `works` is a file that gets a byte with each effect.
    """
    effects = folder / "effects"

    async def work(state: TaskState, context: TaskContext) -> str:
        for tool in CALLS:
            line = f"{context.plan.id}/{state.id}/{tool}\n"

            async def run(line: str = line) -> str:
                await asyncio.sleep(0.001)
                write_line(effects, line)
                os.write(works, b".")
                await asyncio.sleep(0.001)
                return "done"

            await context.call_tool(tool, tool, "{}", run, is_idempotent=tool == "look")
        return "ok"

    names = [f"t{number}" for number in range(TASKS)]
    crew = Crew(dict.fromkeys(names, work))
    engine = build_engine(crew, log)
    await engine.log.open()
    while True:
        plan_ids = await engine.recover()
        for plan_id in plan_ids:
            after = 0
            async for entry in engine.follow(plan_id, after):
                if isinstance(entry, PlanEntry) and isinstance(entry.event, QuestionAsked):
                    question = entry.event
                    if question.question_id not in (await engine.get(plan_id)).questions:
                        continue
                    line = f"{plan_id}/{question.task_id}/{question.call_id}\n"
                    was_done = effects.exists() and line in effects.read_text()
                    await engine.answer(
                        plan_id, question.question_id, "done" if was_done else "retry"
                    )
        if only_finish:
            plans = await log.list_plans(PlanQuery(all_users=True, limit=10_000))
            if all(plan.is_over for plan in plans):
                break
            # a database takes a moment to notice that the life before has ended
            await asyncio.sleep(0.01)
            continue
        tasks = [
            {"name": name, "depends_on": names[max(0, at - 4) : max(0, at - 3)]}
            for at, name in enumerate(names)
        ]
        plan_id = await engine.submit(build_plan(*tasks))
        async for _ in engine.follow(plan_id):
            pass
    await engine.aclose()


def write_line(path: Path, line: str) -> None:
    """Append a line with one system call: a kill leaves all of it or nothing."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)


def count_effects(folder: Path) -> Counter[str]:
    """Return how often each effect was had; none where each server was killed while it started."""
    file = folder / "effects"
    return Counter(file.read_text().split() if file.exists() else ())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])


class Wire:
    """Carries connections from a port of this machine to a database's socket."""

    def __init__(self, database: str) -> None:
        query = parse_qs(urlsplit(database).query)
        self._socket = f"{query['host'][0]}/.s.PGSQL.5432"
        self._schema = query["search_path"][0]
        self._server: asyncio.Server | None = None
        self._port = 0
        self._streams: set[asyncio.StreamWriter] = set()
        self._carries = {name: asyncio.Event() for name in ("questions", "answers")}
        self.release()

    @property
    def url(self) -> str:
        """The address of the database at this end of the wire."""
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres?search_path={self._schema}"

    async def join(self) -> None:
        """Carry connections, from now on or again."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        assert self._server is not None
        self._server.close()
        for stream in self._streams:
            stream.transport.abort()

    def hold(self, *names: str) -> None:
        """Carry no more questions or answers, or neither, without breaking a connection."""
        for name in names or self._carries:
            self._carries[name].clear()

    def release(self) -> None:
        """Carry what was held up, and what comes."""
        for event in self._carries.values():
            event.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(self._socket)
        self._streams |= {writer, far_writer}
        try:
            await asyncio.gather(
                self._pump(reader, far_writer, self._carries["questions"]),
                self._pump(far_reader, writer, self._carries["answers"]),
            )
        except OSError:
            pass
        finally:
            for stream in (writer, far_writer):
                stream.close()
                self._streams.discard(stream)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, carries: asyncio.Event
    ) -> None:
        while data := await reader.read(65536):
            await carries.wait()
            writer.write(data)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def join_wire(database: str) -> AsyncGenerator[Wire, None]:
    """Return a wire to a database, for a while."""
    wire = Wire(database)
    await wire.join()
    try:
        yield wire
    finally:
        wire.release()
        wire.cut()
