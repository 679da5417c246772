"""Every log of plans, empty, in the same tests."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from time import time
from typing import Any
from uuid import uuid4

import pytest

from copilot_runtime.agents.planner.log import MemoryPlanLog, PlanLog
from copilot_runtime.agents.planner.postgres import PostgresPlanLog
from copilot_runtime.agents.planner.sqlite import SqlitePlanLog
from tests.threads.cluster import Cluster, running_cluster

MakeLog = Callable[..., PlanLog]
"""Makes a log on the same file or database each time: one for each server."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
async def database(anyio_backend: str, cluster: Cluster) -> str:
    """Return the URL of an empty place: a schema of its own is made faster than a database."""
    name = f"test_{uuid4().hex}"
    connection: Any = await import_module("asyncpg").connect(cluster.url)
    await connection.execute(f"CREATE SCHEMA {name}")
    await connection.close()
    return f"{cluster.url}&search_path={name}"


@pytest.fixture(params=["sqlite", "postgres"])
def make_log(request: pytest.FixtureRequest, tmp_path: Path) -> MakeLog:
    """Return what makes a log that several servers share."""
    if request.param == "sqlite":
        return partial(SqlitePlanLog, tmp_path / "plans.db")
    return partial(PostgresPlanLog, request.getfixturevalue("database"))


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> PlanLog:
    clock: Callable[[], float] = getattr(request.module, "clock", time)
    match request.param:
        case "memory":
            return MemoryPlanLog(clock)
        case "sqlite":
            return SqlitePlanLog(tmp_path / "plans.db", clock=clock)
        case _:
            return PostgresPlanLog(request.getfixturevalue("database"), clock=clock)
