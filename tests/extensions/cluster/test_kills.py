"""Servers are killed 200 times under load: nothing is lost, and nothing is done twice.

`python -m tests.extensions.cluster.kills --count 12000` does it more often.
"""

import asyncio
from dataclasses import replace

import pytest

from tests.extensions.cluster.kills.fork_server import forking
from tests.extensions.cluster.kills.run import Options, Totals, play_all
from tests.extensions.cluster.kills.stores import Backends, run_redis
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
