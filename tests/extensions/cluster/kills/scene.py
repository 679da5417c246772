"""One scene: people ask and read, a server is killed, and each of them learns what became of it."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import Any

from tests.extensions.cluster.kills.plan import Plan, Question
from tests.extensions.cluster.kills.reading import INTERRUPTED, Answer, Reading, read
from tests.extensions.cluster.kills.server import ASKER, TALKER, Order
from tests.extensions.cluster.kills.world import Server, World
from tests.wire_agui.http import run_input, user

PATIENCE = 45.0
"""Seconds for a scene: the lease, and time for a machine that is busy."""

_RETRY = 0.02
"""Seconds before a reader looks again for an answer that has not begun."""

_AGREEMENT = 15.0
"""Seconds until all servers have the same of a thread: for ten they keep a copy of a log."""


@dataclass(slots=True)
class Outcome:
    """What came of a scene."""

    plan: Plan
    wrong: list[str] = field(default_factory=list[str])
    runs: int = 0
    """Runs of which somebody saw the beginning."""
    cut: int = 0
    """Runs that the kill cut off."""
    events: int = 0
    readings: int = 0
    payments: int = 0
    waits: list[float] = field(default_factory=list[float])
    """Seconds from the kill until a reader saw the end of a run that was cut off."""
    recovery: float = 0.0
    """Seconds from the end of an outage until all worked again."""
    evidence: dict[str, Any] = field(default_factory=dict[str, Any])

    def describe(self) -> Mapping[str, Any]:
        return {"plan": asdict(self.plan), "wrong": self.wrong, **self.evidence}


class Person:
    """Asks a question, reads the answer in several windows, and remembers what they showed."""

    def __init__(self, world: World, question: Question, patience: float) -> None:
        self.question = question
        self.first = Reading("run", question.home)
        self.readings = [self.first]
        self.runs: dict[str, Order] = {question.order.run: question.order}
        """The runs that the person has asked for."""
        self.stopped: dict[str, float] = {}
        """The runs that a server said it had stopped, and when it did."""
        self.deleted_at: float | None = None
        self.refusals: list[str] = []
        self._world = world
        self._patience = patience

    def body(self, run: str, order: Order, **fields: Any) -> Mapping[str, Any]:
        message = user(order.encode(), id=f"u-{order.run}")
        return run_input(thread=self.question.thread, run=run, messages=[message], **fields)

    async def ask(self) -> None:
        """Ask, and read to the end in every window."""
        order, home = self.question.order, self._world.servers[self.question.home]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._ask(home, self.first))
            for number in self.question.readers:
                tasks.create_task(self.follow(order.run, number, self.first))

    async def _ask(self, home: Server, asking: Reading) -> None:
        body = self.body(self.question.order.run, self.question.order)
        await read(home, "run", body, self.question.agent, asking)
        if self.question.is_sent_again and not asking.is_whole:
            again = Reading("run again", home.number)
            self.readings.append(again)
            other = self._world.others(home)[0]
            await read(other, "run", body, self.question.agent, again)

    async def answer(self, server: Server, run: str) -> Reading:
        """Answer the question of the agent."""
        order = self.question.order
        self.runs[run] = Order(run=run, words=order.words, payments=1)
        resume = [{"interruptId": order.call_id(0), "status": "resolved", "payload": True}]
        reading = Reading("resume", server.number)
        self.readings.append(reading)
        body = self.body(run, order, resume=resume)
        await read(server, "run", body, ASKER, reading)
        return reading

    async def follow(self, run: str, number: int, asking: Reading) -> None:
        """Open the thread, again and again, until the end of a run is there."""
        server = self._world.servers[number]
        while self.deleted_at is None:
            was_over = asking.is_whole or bool(asking.error)
            reading = await self.open_thread(server)
            answer = reading.answers().get(run)
            if reading.is_whole and answer is not None:
                if answer.last is None and self.deleted_at is None:
                    self.refusals.append(f"{run}: the answer of {number} ended without its end")
                return
            if reading.is_whole and reading.status == 200 and was_over:
                return  # it was never accepted
            if not reading.is_whole:
                server = self._world.others(server)[0]
            await asyncio.sleep(_RETRY)

    async def open_thread(self, server: Server, operation: str = "connect") -> Reading:
        reading = Reading(operation, server.number)
        body = run_input(thread=self.question.thread, run="connect", messages=[])
        await read(server, "connect", body, self.question.agent, reading)
        if reading.frames:
            self.readings.append(reading)
        return reading

    async def stop(self, server: Server) -> None:
        run, start = self.question.order.run, monotonic()
        try:
            answer = await server.browser.ask(
                "POST", f"/agent/{self.question.agent}/stop/{self.question.thread}"
            )
            if answer.status == 200 and answer.json().get("stopped"):
                self.stopped[run] = monotonic()
        except (OSError, EOFError, ValueError):  # a part of the answer, or none
            return
        self._check_wait("stop", start)

    def _check_wait(self, request: str, start: float) -> None:
        if (wait := monotonic() - start) > self._patience:
            self.refusals.append(f"{request} took {wait:.1f} seconds")

    async def delete(self, server: Server) -> int:
        """Delete the thread, and return the status; 0 if there is none."""
        start = monotonic()
        path, body = f"/threads/{self.question.thread}", {"agentId": self.question.agent}
        try:
            answer = await server.browser.ask("DELETE", path, body)
        except (OSError, EOFError):
            return 0
        if answer.status == 200:
            self.deleted_at = monotonic()
        self._check_wait("delete", start)
        return answer.status


class Scene:
    """One scene of a world. `patience` is how long anybody may wait for what became of a run."""

    def __init__(self, world: World, plan: Plan, *, patience: float) -> None:
        self.world = world
        self.plan = plan
        self.patience = patience
        self.people = [Person(world, question, patience) for question in plan.questions]
        self.outcome = Outcome(plan)
        self.killed_at = 0.0

    async def play(self) -> Outcome:
        """Play it, and return what came of it."""
        try:
            async with asyncio.timeout(PATIENCE + 2 * self.patience):
                await self._act()
                if self.plan.restart is None:
                    await self.world.servers[self.plan.victim].start()
                await self._check()
        except TimeoutError:
            self.outcome.wrong.append("it does not end")
        if self.outcome.wrong:
            self.outcome.evidence["readings"] = [
                reading.describe() for person in self.people for reading in person.readings
            ]
        return self.outcome

    async def _act(self) -> None:
        aim = self.people[0]
        if self.plan.moment == "resume":
            await aim.ask()
        async with asyncio.TaskGroup() as tasks:
            for person in self.people[1:]:
                tasks.create_task(person.ask())
            match self.plan.moment:
                case "resume":
                    tasks.create_task(self._resume(aim, tasks))
                case "stop" | "delete":
                    tasks.create_task(aim.ask())
                    tasks.create_task(self._interfere(aim, tasks))
                case _:
                    tasks.create_task(aim.ask())
                    tasks.create_task(self._kill_at_moment(aim))

    async def _resume(self, aim: Person, tasks: asyncio.TaskGroup) -> None:
        """Answer a question at the server that is killed, and once more elsewhere."""
        victim = self.world.servers[self.plan.victim]
        first = f"{aim.question.order.run}-yes"
        answering = tasks.create_task(aim.answer(victim, first))
        await asyncio.sleep(self.plan.delay)
        await self._kill()
        reading = await answering
        tasks.create_task(aim.follow(first, self.world.others(victim)[0].number, reading))
        await aim.answer(self.world.others(victim)[0], f"{first}-again")

    async def _interfere(self, aim: Person, tasks: asyncio.TaskGroup) -> None:
        """Stop a run or delete its thread, and kill the server meanwhile."""
        await self._wait_for_events(aim)
        server = self.world.servers[self.plan.elsewhere]
        work = aim.stop(server) if self.plan.moment == "stop" else aim.delete(server)
        tasks.create_task(_finish(work))
        await asyncio.sleep(self.plan.delay)
        await self._kill()

    async def _kill_at_moment(self, aim: Person) -> None:
        match self.plan.moment:
            case "accept":
                await asyncio.sleep(0)
            case "stream" | "start":
                await self._wait_for_events(aim)
            case "end":
                await aim.first.wait_until(lambda: _says_last_word(aim))
            case _:
                await aim.first.wait_until(lambda: _is_paying(aim))
        await asyncio.sleep(self.plan.delay if self.plan.moment != "start" else 0)
        await self._kill()

    async def _wait_for_events(self, aim: Person) -> None:
        await aim.first.wait_until(lambda: len(aim.first.frames) > self.plan.events)

    async def _kill(self) -> None:
        """Kill the server and start another one in its place."""
        victim = self.world.servers[self.plan.victim]
        victim.kill()
        self.killed_at = victim.killed_at
        if self.plan.restart is None:
            return
        await asyncio.sleep(self.plan.restart)
        await victim.start()
        if self.plan.moment == "start":
            await asyncio.sleep(self.plan.delay)
            victim.kill()
            await victim.start()

    async def _check(self) -> None:
        for person in self.people:
            self.outcome.wrong += person.refusals
            if self.plan.moment == "delete" and person is self.people[0]:
                await self._check_deletion(person)
            else:
                await self._check_person(person)
        self._check_payments()

    async def _check_person(self, person: Person) -> None:
        """Compare what was seen with what each server has now."""
        wrong, out = self.outcome.wrong, self.outcome
        kept = await self._read_everywhere(person)
        for reading in person.readings:
            out.readings += 1
            out.events += len(reading.frames)
            for run, seen in reading.answers().items():
                if run in person.runs and "run" in seen.order:
                    self._check_answer(person, run, seen, kept.get(run, Answer(run)))
            if (
                reading.is_whole
                and reading.frames
                and reading.frames[-1]["type"]
                not in (
                    "RUN_FINISHED",
                    "RUN_ERROR",
                )
            ):
                wrong.append(f"{person.question.thread}: {reading.operation} ends without an end")
        for run, answer in kept.items():
            out.runs += 1
            if answer.last is None:
                wrong.append(f"{run} has no outcome")
            if answer.code == INTERRUPTED:
                out.cut += 1
                self._measure_wait(person, run)
            if run in person.stopped and answer.last != "RUN_ERROR":
                wrong.append(f"{run} was stopped, and is {answer.last}")
        await self._check_freedom(person)

    async def _read_everywhere(self, person: Person) -> Mapping[str, Answer]:
        """Return what all servers have of a thread, once they agree.

        The end of a run that its server could not store is there for seconds, in copies of its log.
        """
        give_up = monotonic() + _AGREEMENT
        while True:
            replays: list[dict[str, Answer]] = []
            for server in self.world.servers:
                reading = await person.open_thread(server, "replay")
                replays.append(reading.answers())
                if not reading.is_whole:
                    error = f"server {server.number} breaks off: {reading.error}"
                    self.outcome.wrong.append(error)
            kept, *others = replays
            different = [other for other in others if other != kept]
            if not different:
                return kept
            if monotonic() > give_up:
                found = f"{kept} and {different[0]}"
                self.outcome.wrong.append(f"{person.question.thread}: servers differ: {found}")
                return kept
            await asyncio.sleep(_RETRY)

    def _check_answer(self, person: Person, run: str, seen: Answer, kept: Answer) -> None:
        order = person.runs[run]
        for complaint in (*seen.check(order), *kept.lacks(seen)):
            self.outcome.wrong.append(f"{run}: {complaint}")

    def _measure_wait(self, person: Person, run: str) -> None:
        for reading in person.readings:
            if reading.operation == "replay":
                continue
            for frame, time in zip(reading.frames, reading.times, strict=False):
                if frame["type"] == "RUN_ERROR" and time > self.killed_at and reading.has_end(run):
                    wait = time - self.killed_at
                    self.outcome.waits.append(wait)
                    if wait > self.patience:
                        where = f"{reading.operation} at {reading.server}"
                        self.outcome.wrong.append(f"{run}: {where} waited for {wait:.1f} seconds")

    async def _check_freedom(self, person: Person) -> None:
        """Ask once more in the thread: it must not be busy."""
        server = self.world.servers[self.plan.elsewhere]
        order = Order(run=f"r-{person.question.thread}-bye", words=2, pause=0)
        reading = Reading("run", server.number)
        await read(server, "run", person.body(order.run, order), TALKER, reading)
        answer = reading.answers().get(order.run, Answer(order.run))
        complaints = [*answer.check(order)]
        if answer.last != "RUN_FINISHED" or complaints:
            self.outcome.wrong.append(
                f"{person.question.thread} takes no question: {reading.frames} {complaints}"
            )

    async def _check_deletion(self, person: Person) -> None:
        """Delete the thread for good, and look that nothing is left."""
        for server in self.world.servers:
            status = await person.delete(server)
            if status not in (200, 404):
                self.outcome.wrong.append(f"{person.question.thread}: deleting gives {status}")
        for server in self.world.servers:
            reading = await person.open_thread(server)
            if reading.frames or not reading.is_whole:
                self.outcome.wrong.append(f"{person.question.thread} is there after its end")

    def _check_payments(self) -> None:
        made: dict[str, list[float]] = {}
        for id, moment in self.world.effects.read():
            made.setdefault(id, []).append(moment)
        for person in self.people:
            for order in person.runs.values():
                for number in range(max(1, order.payments)):
                    id = order.call_id(number)
                    moments = made.get(id, [])
                    self.outcome.payments += len(moments)
                    if len(moments) > 1:
                        self.outcome.wrong.append(f"{id} was paid {len(moments)} times")
                    stopped = person.stopped.get(order.run)
                    if stopped is not None and any(it > stopped for it in moments):
                        self.outcome.wrong.append(f"{id} was paid after it had been stopped")
            for reading in person.readings:
                for answer in reading.answers().values():
                    for id in {*answer.list_payments()} - made.keys():
                        self.outcome.wrong.append(f"{id} has a result and was not paid")


async def _finish(work: Any) -> None:
    await work


def _says_last_word(aim: Person) -> bool:
    order = aim.question.order
    last = order.text(order.payments)[-1]
    return any(frame.get("delta") == last for frame in aim.first.frames[-3:])


def _is_paying(aim: Person) -> bool:
    return any(frame["type"] == "TOOL_CALL_END" for frame in aim.first.frames)
