"""What happens in one scene, drawn from a seed: who asks what where, and when who is killed."""

import random
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Literal, Self

from copilot_runtime.threads.postgres.schema import LEASE
from tests.extensions.cluster.kills.server import ASKER, TALKER, Order
from tests.extensions.cluster.redis_server import RedisServer, redis_server
from tests.threads.cluster import Cluster, running_cluster

Moment = Literal["start", "accept", "stream", "end", "effect", "stop", "resume", "delete", "outage"]
"""Next to what the process is killed; with an outage, none is."""

MOMENTS: Sequence[tuple[Moment, int]] = (
    ("start", 1),
    ("accept", 3),
    ("stream", 5),
    ("end", 3),
    ("effect", 4),
    ("stop", 2),
    ("resume", 2),
    ("delete", 1),
)
"""And how often, in proportion."""

_LONGEST_DELAY = {
    "start": 0.05,
    "accept": 0.02,
    "stream": 0.01,
    "end": 0.012,
    "effect": 0.016,
    "stop": 0.008,
    "resume": 0.025,
    "delete": 0.01,
}
"""Seconds that pass at most between what is waited for and the kill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question: where it is asked, and where its answer is read."""

    thread: str
    agent: str
    order: Order
    home: int
    readers: Sequence[int]
    is_sent_again: bool
    """Whether the client asks again, elsewhere, when the connection breaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One scene. The first question is the one that is aimed at."""

    number: int
    moment: Moment
    victim: int
    events: int
    """Events of the first answer that come before the kill."""
    delay: float
    restart: float | None
    """Seconds until the server is started again; None for when all know what became of the runs."""
    elsewhere: int
    """Which server is asked to stop, to resume or to delete."""
    questions: Sequence[Question]

    @property
    def aim(self) -> Question:
        return self.questions[0]


def draw_plan(seed: int, number: int, *, servers: int, pace: float, is_short: bool) -> Plan:
    """Return the scene of a seed and a number.

    `pace` is by how much the store is slower than a file. What `is_short` costs a fifth.
    """
    draw = random.Random(f"{seed}:{number}")
    moments, weights = zip(*MOMENTS, strict=True)
    moment: Moment = draw.choices(moments, weights)[0]
    victim = draw.randrange(servers)
    questions = [
        _draw_question(
            draw, f"{number}-{it}", moment if it == 0 else None, victim, servers, is_short
        )
        for it in range(2 if is_short else draw.randint(2, 3))
    ]
    words = questions[0].order.words
    return Plan(
        number=number,
        moment=moment,
        victim=victim,
        events=draw.randint(2, max(2, words // 2)),
        delay=pace * draw.uniform(0, _LONGEST_DELAY[moment]),
        restart=draw.choices((None, 0.0, draw.uniform(0, 0.05)), (1, 4, 4))[0],
        elsewhere=draw.randrange(servers),
        questions=questions,
    )


def _draw_question(
    draw: random.Random,
    thread: str,
    moment: Moment | None,
    victim: int,
    servers: int,
    is_short: bool,
) -> Question:
    is_aim = moment is not None
    most = 10 if is_short else 30
    order = Order(
        run=f"r-{thread}",
        words=draw.randint(4, most) if is_aim else draw.randint(most + 10, 4 * most),
        payments=draw.randint(1, 3) if moment == "effect" else draw.randint(0, 2),
        pause=draw.choice((0.001, 0.003)) if is_aim else 0.004 * 30 / most,
    )
    home = victim if is_aim or draw.random() < 0.7 else draw.randrange(servers)
    others = [number for number in range(servers) if number != home]
    return Question(
        thread=thread,
        agent=ASKER if moment == "resume" else TALKER,
        order=order,
        home=home,
        readers=(home, draw.choice(others)) if draw.random() < 0.3 else (draw.choice(others),),
        is_sent_again=draw.random() < 0.3,
    )


CARRIERS = {"sqlite": ("unix",), "postgres": ("postgres", "redis")}


class RestartableRedis:
    """A Redis that is killed and started again, empty."""

    def __init__(self, server: RedisServer) -> None:
        self.url = server.url
        self.path = Path(server.url.removeprefix("unix://"))
        self._server = server
        self._running = ExitStack()

    def start(self) -> None:
        self._running.enter_context(self._server.running())

    def kill(self) -> None:
        self._running.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


@dataclass(frozen=True, slots=True)
class Backends:
    """What the servers need beside a folder: None where they need no such thing."""

    cluster: Cluster | None = None
    redis: RestartableRedis | None = None
    started_at: float = field(default_factory=monotonic)

    @property
    def pace(self) -> float:
        """By how much the store is slower than a file."""
        return 1.0 if self.cluster is None else 4.0

    def find_lease(self) -> float:
        """Return how many seconds dead servers count as alive.

        Those of a database that has just started have the length of the lease to come back.
        """
        is_new = self.cluster is not None and monotonic() - self.started_at < LEASE + 1
        return LEASE if is_new else 0.0

    async def make_place(self, folder: Path) -> Mapping[str, Any]:
        """Return the settings of servers that share an empty store."""
        if self.cluster is None:
            return {"threads": f"sqlite:{folder / 'threads.db'}"}
        settings = {"threads": await self.cluster.make_schema()}
        return settings if self.redis is None else {**settings, "carrier": self.redis.url}


@contextmanager
def backends(store: str, carrier: str) -> Generator[Backends, None, None]:
    """Run what servers need. Raises `ValueError` for a carrier that the store does not have."""
    if carrier not in CARRIERS[store]:
        raise ValueError(f"{store} has {' or '.join(CARRIERS[store])}, not {carrier!r}.")
    if store == "sqlite":
        yield Backends()
        return
    with running_cluster() as cluster:
        if carrier == "postgres":
            yield Backends(cluster)
            return
        with run_redis() as redis:
            yield Backends(cluster, redis)


@contextmanager
def run_redis() -> Generator[RestartableRedis, None, None]:
    with redis_server() as server, RestartableRedis(server) as redis:
        yield redis
