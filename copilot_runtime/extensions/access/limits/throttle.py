"""Make somebody who goes on asking after a refusal wait for the next one."""

import asyncio
import logging
from time import monotonic

_INTERVAL = 0.0025
"""Seconds between two refusals of one subject: 400 in a second, which cost some percent
of a core."""

_LONGEST_WAIT = 2.0
"""Seconds for which a refusal waits at most: who waits holds a connection."""

_LOG_EVERY = 60.0
"""Seconds between two lines about one subject."""

_MOST_SUBJECTS = 10_000
"""Subjects at one time; then all are forgotten, and what they send is one too many anew."""

logger = logging.getLogger(__name__)


class _Refusals:
    """When the next refusal may be answered, and the next line be logged."""

    __slots__ = ("next_answer", "next_line")

    def __init__(self) -> None:
        self.next_answer = 0.0
        self.next_line = 0.0


class Throttle:
    """Spaces out refusals: what one subject sends costs the others nothing but a refusal now and
    then. One that asks rarely waits for nothing.
    """

    def __init__(self) -> None:
        self._subjects: dict[str, _Refusals] = {}

    async def hold_back(self, subject: str, reason: str) -> None:
        """Return when a refusal may be answered; log its reason, though not each time."""
        now = monotonic()
        refusals = self._find(subject)
        if now >= refusals.next_line:
            refusals.next_line = now + _LOG_EVERY
            logger.info("A request was one too many: %s", reason)
        at = max(now, refusals.next_answer)
        refusals.next_answer = min(at, now + _LONGEST_WAIT) + _INTERVAL
        if at > now:
            await asyncio.sleep(min(at - now, _LONGEST_WAIT))

    def _find(self, subject: str) -> _Refusals:
        refusals = self._subjects.get(subject)
        if refusals is None:
            if len(self._subjects) >= _MOST_SUBJECTS:
                self._subjects.clear()
            refusals = self._subjects[subject] = _Refusals()
        return refusals
