"""A plan survives `kill -9` at any moment: it ends, and no effect is had twice."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from copilot_runtime.extensions.planner.build import build_log
from copilot_runtime.extensions.planner.log import PlanQuery
from tests.extensions.planner.kills import CALLS, TASKS, count_effects

pytestmark = pytest.mark.anyio

KILLS = os.environ.get("KILLS", "20")


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'plans.db'}"
    return request.getfixturevalue("database")


async def test_no_effect_is_lost_or_had_twice(tmp_path: Path, address: str) -> None:
    arguments = [str(tmp_path), KILLS, "7", address]
    command = [sys.executable, "-m", "tests.extensions.planner.kills", *arguments]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{KILLS}\n", "")
    effects = count_effects(tmp_path)
    assert {name for name, times in effects.items() if times > 1 and "look" not in name} == set()
    log = build_log(address)
    plans = await log.list_plans(PlanQuery(limit=10_000))
    assert all(plan.is_over for plan in plans)
    assert len(effects) == len(plans) * TASKS * len(CALLS)
    await log.aclose()
