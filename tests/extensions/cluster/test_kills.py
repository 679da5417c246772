"""Servers are killed 200 times under load: nothing is lost, and nothing is done twice.

`python -m tests.extensions.cluster.kills --count 12000` does it more often.
"""

import asyncio
from dataclasses import replace

import pytest

from tests.extensions.cluster.kills.fork_server import forking
from tests.extensions.cluster.kills.plan import Backends, run_redis
from tests.extensions.cluster.kills.run import Options, Totals, play_all
from tests.threads.cluster import Cluster

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

SHORT = Options(servers=2, jobs=3, is_short=True, seed=17, patience=60)
FILE = replace(SHORT, numbers=range(120))
DATABASE = replace(SHORT, numbers=range(40))


async def test_servers_that_are_killed_lose_nothing_and_do_nothing_twice(cluster: Cluster) -> None:
    with run_redis() as redis:
        async with forking() as forks, asyncio.TaskGroup() as tasks:
            plays = [
                tasks.create_task(play_all(options, needs, forks))
                for options, needs in (
                    (FILE, Backends()),
                    (DATABASE, Backends(cluster)),
                    (DATABASE, Backends(cluster, redis)),
                )
            ]
    totals: list[Totals] = [play.result() for play in plays]

    assert [outcome.describe() for total in totals for outcome in total.failures] == []
    assert [total.scenes for total in totals] == [120, 40, 40]
    assert sum(total.cutting for total in totals) > 100, "the kills come when nothing happens"


BRIEF = Options(servers=2, jobs=1, numbers=[0], is_short=True, seed=17)


async def test_a_request_during_a_backend_failure_has_one_outcome_and_one_effect(
    cluster: Cluster,
) -> None:
    with run_redis() as redis:
        async with forking() as forks:
            totals = {
                outage: await play_all(
                    replace(BRIEF, outage=outage), Backends(cluster, redis), forks
                )
                for outage in ("redis", "postgres", "cut", "slow")
            }

    assert {outage: [it.wrong for it in total.failures] for outage, total in totals.items()} == {
        outage: [] for outage in totals
    }
    assert all(total.counts["runs"] > 3 for total in totals.values())
