"""Every log of plans, empty, in the same tests."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import time

import pytest

from copilot_runtime.extensions.planner.log import MemoryPlanLog, PlanLog
from copilot_runtime.extensions.planner.postgres import PostgresPlanLog
from copilot_runtime.extensions.planner.sqlite import SqlitePlanLog

MakeLog = Callable[..., PlanLog]
"""Makes a log on the same file or database each time: one for each server."""


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
