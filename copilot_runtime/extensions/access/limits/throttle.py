"""Throttles refusals, so that a client that keeps sending refused requests costs little."""

import asyncio
import logging
from time import monotonic

_INTERVAL = 0.0025
"""Seconds between refusals of one subject: 400 per second, which cost some percent of a core."""

_LONGEST_WAIT = 2.0
"""Maximum delay of a refusal in seconds, as it occupies a connection."""

_LOG_EVERY = 60.0
"""Seconds between log lines about one subject."""

_MOST_SUBJECTS = 10_000
"""Maximum subjects in memory; beyond that, all are cleared."""

logger = logging.getLogger(__name__)


class _Refusals:
    """The times of a subject's next refusal and next log line."""

    __slots__ = ("next_answer", "next_line")

    def __init__(self) -> None:
        self.next_answer = 0.0
        self.next_line = 0.0


class Throttle:
    """Spaces out the refusals of each subject; the first one is never delayed."""

    def __init__(self) -> None:
        self._subjects: dict[str, _Refusals] = {}

    async def hold_back(self, subject: str, reason: str) -> None:
        """Wait until a refusal may be sent; log its reason at most once a minute."""
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
