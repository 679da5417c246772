"""Redis, PostgreSQL or the network between them and the servers fails while people ask.

`python -m tests.extensions.cluster.kills --outage redis` does it more often, and for longer.
"""

from dataclasses import replace

import pytest

from tests.extensions.cluster.kills.fork_server import forking
from tests.extensions.cluster.kills.run import Options, play_all
from tests.extensions.cluster.kills.stores import Backends, run_redis
from tests.threads.cluster import Cluster

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

SHORT = Options(servers=2, jobs=1, numbers=[0], is_short=True, seed=17)


async def test_a_request_during_a_backend_failure_has_one_outcome_and_one_effect(
    cluster: Cluster,
) -> None:
    with run_redis() as redis:
        async with forking() as forks:
            totals = {
                outage: await play_all(
                    replace(SHORT, outage=outage), Backends(cluster, redis), forks
                )
                for outage in ("redis", "postgres", "cut", "slow")
            }

    assert {outage: [it.wrong for it in total.failures] for outage, total in totals.items()} == {
        outage: [] for outage in totals
    }
    assert all(total.counts["runs"] > 3 for total in totals.values())
