"""What people see while Redis, PostgreSQL or the network between them and the servers fails."""

import asyncio
import random
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tests.extensions.cluster.kills.plan import Backends, Plan, Question
from tests.extensions.cluster.kills.proxy import Proxy, WayState
from tests.extensions.cluster.kills.scene import Person, Scene
from tests.extensions.cluster.kills.server import TALKER, Order
from tests.extensions.cluster.kills.world import World

_SLOW = 0.3
"""Seconds between the words of an answer that outlasts most outages."""


@dataclass(frozen=True, slots=True)
class Length:
    """How much is asked around an outage, and how long that lasts at most."""

    people: int = 6
    slow_words: int = 30
    seconds: float = 3.0
    rests: float = 0.0
    """Seconds between two questions of a person."""
    after: float = 1.0
    """Seconds for which people go on asking when the outage is over."""


LONG = Length()
SHORT = Length(people=2, slow_words=8, seconds=0.6, rests=0.1, after=0.1)


class Network:
    """The ways from each server to PostgreSQL and to Redis."""

    def __init__(self) -> None:
        self.ways: list[Proxy] = []

    @asynccontextmanager
    async def between(
        self, needs: Backends, settings: Mapping[str, Any], folder: Path, servers: int
    ) -> AsyncGenerator[Sequence[Mapping[str, Any]], None]:
        """Yield the settings of each server, whose addresses lead through proxies."""
        assert needs.cluster is not None
        async with AsyncExitStack() as stack:
            chosen: list[Mapping[str, Any]] = []
            for number in range(servers):
                parts = urlsplit(settings["threads"])
                query = dict(parse_qsl(parts.query))
                place = folder / f"pg{number}"
                place.mkdir()
                name = ".s.PGSQL.5432"
                await self._add(stack, Path(query["host"]) / name, place / name)
                url = urlunsplit(parts._replace(query=urlencode({**query, "host": str(place)})))
                own: dict[str, Any] = {"threads": url}
                if needs.redis is not None:
                    path = folder / f"redis{number}.sock"
                    await self._add(stack, needs.redis.path, path)
                    own["carrier"] = f"unix://{path}"
                chosen.append(own)
            yield chosen

    async def _add(self, stack: AsyncExitStack, target: Path, path: Path) -> None:
        proxy = Proxy(target)
        await stack.enter_async_context(proxy.listening(path))
        self.ways.append(proxy)


Outage = Callable[["OutageScene"], Awaitable[None]]
"""Begins, lasts for a while and ends."""


async def _restart_redis(scene: "OutageScene") -> None:
    redis = scene.needs.redis
    assert redis is not None, "these servers need no Redis"
    await asyncio.to_thread(redis.kill)
    pauses = (0.0, scene.draw.uniform(0, scene.length.seconds), 7.0)
    await asyncio.sleep(scene.draw.choice(pauses[:2] if scene.length is SHORT else pauses))
    await asyncio.to_thread(redis.start)


async def _restart_postgres(scene: "OutageScene") -> None:
    cluster = scene.needs.cluster
    assert cluster is not None, "these servers need no PostgreSQL"
    await asyncio.to_thread(cluster.stop)
    await asyncio.sleep(scene.draw.choice((0.0, scene.draw.uniform(0, scene.length.seconds))))
    await asyncio.to_thread(cluster.start)


async def _cut(scene: "OutageScene") -> None:
    """Cut some ways, or all of them, so that it is noticed or not."""
    draw, ways = scene.draw, scene.network.ways
    chosen = ways if draw.random() < 0.5 else draw.sample(ways, draw.randint(1, len(ways) - 1))
    state: WayState = draw.choice(("stalled", "broken"))
    for way in chosen:
        way.state = state
    await asyncio.sleep(draw.uniform(0.2, scene.length.seconds))
    for way in chosen:
        way.state = "open"


async def _slow_down(scene: "OutageScene") -> None:
    for way in scene.network.ways:
        way.delay = scene.draw.uniform(0.02, 0.15)
    await asyncio.sleep(scene.length.seconds)
    for way in scene.network.ways:
        way.delay = 0.0


async def _partition(scene: "OutageScene") -> None:
    """Cut one server off from PostgreSQL until the others take it for dead."""
    way = scene.draw.choice(scene.network.ways[:: 2 if scene.needs.redis else 1])
    way.state = scene.draw.choice(("stalled", "broken"))
    await asyncio.sleep(18.0)
    way.state = "open"


async def _hang(scene: "OutageScene") -> None:
    """Stop a server until the others take it for dead, and let it go on."""
    server = scene.draw.choice(scene.world.servers)
    server.signal(signal.SIGSTOP)
    await asyncio.sleep(18.0)
    server.signal(signal.SIGCONT)


OUTAGES: Mapping[str, Outage] = {
    "redis": _restart_redis,
    "postgres": _restart_postgres,
    "cut": _cut,
    "slow": _slow_down,
    "partition": _partition,
    "hang": _hang,
}


class OutageScene(Scene):
    """People ask without a pause, something fails meanwhile, and then all is well again."""

    def __init__(
        self,
        world: World,
        plan: Plan,
        needs: Backends,
        network: Network,
        outage: Outage,
        *,
        seed: int,
        length: Length,
    ) -> None:
        super().__init__(world, plan, patience=40.0)
        self.needs = needs
        self.network = network
        self.length = length
        self.draw = random.Random(f"{seed}:{plan.number}")
        self._outage = outage
        self._numbers = count()

    async def _act(self) -> None:
        over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self.length.people):
                tasks.create_task(self._ask_on(over))
            tasks.create_task(self._add_person(words=self.length.slow_words, pause=_SLOW).ask())
            await asyncio.sleep(self.draw.uniform(0.1, 0.5))
            self.killed_at = monotonic()
            await self._outage(self)
            ended = monotonic()
            await self._wait_until_all_works()
            self.outcome.recovery = monotonic() - ended
            await asyncio.sleep(self.length.after)
            over.set()

    async def _ask_on(self, over: asyncio.Event) -> None:
        while not over.is_set():
            person = self._add_person()
            await person.ask()
            await asyncio.sleep(self.length.rests)

    def _add_person(self, home: int | None = None, words: int = 0, pause: float = 0.004) -> Person:
        servers = range(len(self.world.servers))
        home = self.draw.choice(servers) if home is None else home
        thread = f"{self.plan.number}-{next(self._numbers)}"
        question = Question(
            thread=thread,
            agent=TALKER,
            order=Order(
                run=f"r-{thread}",
                words=words or self.draw.randint(5, 40),
                payments=self.draw.randint(0, 2) if pause < _SLOW else 0,
                pause=pause,
            ),
            home=home,
            readers=[number for number in servers if number != home],
            is_sent_again=False,
        )
        person = Person(self.world, question, self.patience)
        self.people.append(person)
        return person

    async def _wait_until_all_works(self) -> None:
        """Ask each server until it answers, and another one shows the answer.

        One that has ended by itself is waited for no more: nobody starts it again here.
        """
        await asyncio.gather(*(self._wait_for_server(it.number) for it in self.world.servers))

    async def _wait_for_server(self, number: int) -> None:
        while not self.world.servers[number].has_ended():
            person = self._add_person(number, words=3)
            await person.ask()
            run = person.question.order.run
            last = person.first.answers().get(run)
            shown = [it for it in person.readings if it.operation == "connect" and it.has_end(run)]
            if last is not None and last.last == "RUN_FINISHED" and shown:
                return
        self.outcome.wrong.append(f"server {number} ended by itself: its log says why")


@asynccontextmanager
async def failing_world(
    world: World, needs: Backends, folder: Path
) -> AsyncGenerator[Network, None]:
    """Put proxies between the servers of a world and what they need, and start them."""
    network = Network()
    between = network.between(needs, world.settings, folder, len(world.servers))
    async with between as settings:
        for server, own in zip(world.servers, settings, strict=True):
            server.settings = own
        try:
            await world.start()
            # one that cannot open its store ends, and nobody starts it again here
            await asyncio.gather(*(it.wait_until_ready() for it in world.servers))
            yield network
        finally:
            world.stop()


def build_plan(number: int) -> Plan:
    """Return the plan of a scene without a kill."""
    return Plan(
        number=number,
        moment="outage",
        victim=0,
        events=0,
        delay=0,
        restart=0.0,
        elsewhere=0,
        questions=(),
    )
