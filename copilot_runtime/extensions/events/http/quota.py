"""How much clients may publish: a log has room for the newest events only, of all together.

Without it, one client that never stops would push out what everybody else comes back for.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.events import ResourceEvent, encode_event

_HOUR = 3600.0
_LEAST_EVENTS = 100
_LEAST_BYTES = 1024 * 1024
"""More than any event has."""


class TooManyEvents(LimitExceeded):
    """A client publishes more than its share."""

    status_code = 429
    is_hint_public = True

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(
            message,
            hint=f"Publish again in {ceil(seconds)} seconds. Put what is long into a resource, and "
            "tell of many resources in one event. A program of the server is not limited.",
        )


class PublishQuota:
    """What clients may publish in an hour, of what the log holds: a tenth each, half of it all.

    A share grows again evenly. However small the log is, a share is 100 events and 1 MiB at least.
    """

    def __init__(
        self, max_events: int, max_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._each = (max(max_events // 10, _LEAST_EVENTS), max(max_bytes // 10, _LEAST_BYTES))
        self._all = _Share(
            max(max_events // 2, _LEAST_EVENTS), max(max_bytes // 2, _LEAST_BYTES), clock()
        )
        self._users: dict[str | None, _Share] = {}
        """Of those who published in the last hour, the latest last."""

    def spend(self, user: str | None, event: ResourceEvent) -> None:
        """Take an event from the share of a user, and from that of all. Raises `TooManyEvents`."""
        now, size = self._clock(), len(dumps(encode_event(event)))
        share = self._users.get(user) or _Share(*self._each, now)
        if seconds := share.find_wait(size, now):
            raise TooManyEvents("You have published too many events.", seconds)
        if seconds := self._all.find_wait(size, now):
            raise TooManyEvents("Clients have published too many events.", seconds)
        share.spend(size)
        self._all.spend(size)
        self._users.pop(user, None)
        self._users[user] = share
        self._forget(now - _HOUR)

    def _forget(self, before: float) -> None:
        """Forget those whose share is whole again."""
        while self._users[oldest := next(iter(self._users))].time < before:
            del self._users[oldest]


@dataclass(slots=True)
class _Share:
    """What is left of a number of events and of bytes, at a time."""

    max_events: int
    max_bytes: int
    time: float
    events: float = 0
    bytes: float = 0
    """What is spent, and has not grown again."""

    def find_wait(self, size: int, now: float) -> float:
        """Return the seconds until an event of a size may be published; 0 if it may be now."""
        part, self.time = (now - self.time) / _HOUR, now
        self.events = max(0, self.events - part * self.max_events)
        self.bytes = max(0, self.bytes - part * self.max_bytes)
        of_events = (self.events + 1 - self.max_events) / self.max_events
        of_bytes = (self.bytes + size - self.max_bytes) / self.max_bytes
        return max(0, of_events, of_bytes) * _HOUR

    def spend(self, size: int) -> None:
        self.events += 1
        self.bytes += size
