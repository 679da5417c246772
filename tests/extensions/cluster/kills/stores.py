"""Stores and carriers that real servers share: SQLite, PostgreSQL, Redis."""

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Self

from copilot_runtime.threads.postgres.schema import LEASE
from tests.extensions.cluster.redis_server import RedisServer, redis_server
from tests.threads.cluster import Cluster, running_cluster

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
