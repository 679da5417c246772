"""Time as the stores keep it: whole microseconds since 1970, never the same twice."""

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Clock:
    """Ticks at each reading, so that what was touched later is listed first."""

    def __init__(self) -> None:
        self._last = 0

    def now(self, count: int = 1) -> int:
        """Return the time; the `count - 1` microseconds after it are taken too."""
        now = max(self._last + 1, time.time_ns() // 1000)
        self._last = now + count - 1
        return now


def to_datetime(microseconds: int) -> datetime:
    return _EPOCH + microseconds * _MICROSECOND


def from_datetime(moment: datetime) -> int:
    """Return whole microseconds; a time without a zone is in UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MICROSECOND
