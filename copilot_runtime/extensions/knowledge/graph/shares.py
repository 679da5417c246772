"""Limit the concurrent SPARQL queries of each user."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from copilot_runtime.base.errors import LimitExceeded

MOST_AT_ONCE = 2
"""Maximum number of running queries of one user; below the total number of slots."""
MOST_WAITING = 20
"""Maximum number of waiting queries of one user."""


@dataclass(slots=True)
class _Share:
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_AT_ONCE))
    users: int = 0


class Shares:
    """Gives each user a few slots. Further queries wait for other queries of that user only."""

    def __init__(self) -> None:
        self._shares: dict[str, _Share] = {}

    @asynccontextmanager
    async def take(self, asker: str | None, seconds: float) -> AsyncGenerator[None]:
        """Acquire a slot of a user for a block; `None`, the system itself, needs no slot.

        Raises `LimitExceeded` if too many wait already, or after some seconds.
        """
        if asker is None:
            yield
            return
        share = self._shares.setdefault(asker, _Share())
        if share.users >= MOST_AT_ONCE + MOST_WAITING:
            raise LimitExceeded(
                f"{MOST_WAITING} of your queries wait for others of yours.",
                hint=f"Ask {MOST_AT_ONCE} at a time.",
            )
        share.users += 1
        try:
            try:
                async with asyncio.timeout(seconds):
                    await share.places.acquire()
            except TimeoutError:
                raise LimitExceeded(
                    f"The query has waited {seconds:g} seconds for others of yours.",
                    hint=f"Ask {MOST_AT_ONCE} at a time.",
                ) from None
            try:
                yield
            finally:
                share.places.release()
        finally:
            share.users -= 1
            if not share.users:
                del self._shares[asker]
