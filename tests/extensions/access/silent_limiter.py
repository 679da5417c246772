"""A process, started with the address of a Redis, that takes the places of two runs."""

import asyncio
import sys

from copilot_runtime.api.identity import Identity
from copilot_runtime.extensions.access.limits.limiter import Limiter
from copilot_runtime.extensions.access.limits.redis import RedisCounters
from copilot_runtime.extensions.access.settings import LimitSettings

SECTION = LimitSettings.model_validate({"runs_at_once_per_user": 2})
ADA = Identity(user="ada")
LEASE_SECONDS = 0.6


async def take_places(url: str) -> None:
    """Take the places of two runs of Ada, and hold them."""
    limiter = Limiter(SECTION, RedisCounters(url), lease_seconds=LEASE_SECONDS)
    for run in ("r1", "r2"):
        await limiter.admit_run(ADA, ADA.owner, run)
    sys.stdout.write("taken\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(take_places(sys.argv[1]))
