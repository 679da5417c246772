"""Drops events of a run that a resumed stream repeats.

The ids of events are those of Redis, milliseconds and a number. Those of `langgraph dev` all have
the number 0, so that two of one moment share an id, and a stream resumed after one of them lacks
the other. The server also sends twice what happens while a stream is being resumed. So the whole
last moment is requested again, and events that have come before are dropped.
"""

import re
from collections.abc import Sequence

from copilot_runtime.extensions.frameworks.langgraph.sse import Frame

_START_ID = "-1"
_REDIS = re.compile(r"([0-9]+)-[0-9]+")
_MAX_NUMBER = 2**64 - 1
"""Largest number of an event: https://redis.io/docs/latest/commands/xadd/"""


class ResumeCursor:
    """The position in a stream: its last moment, and the events of it."""

    def __init__(self) -> None:
        self._last_id = _START_ID
        self._moment: int | None = None
        self._events: set[tuple[str, int]] = set()

    @property
    def resume_id(self) -> str:
        """Return the `Last-Event-ID` to resume with."""
        if self._moment is None:
            return self._last_id
        return f"{self._moment - 1}-{_MAX_NUMBER}"

    def filter(self, frames: Sequence[Frame], *, is_resumed: bool) -> list[Frame]:
        """Return the events that are new, and record them. Only a resumed stream repeats any."""
        return [frame for frame in frames if self._record(frame) or not is_resumed]

    def _record(self, frame: Frame) -> bool:
        """Record an event. Return whether it is new."""
        if frame.id is None:
            return True
        self._last_id = frame.id
        moment = _parse_moment(frame.id)
        if moment is None or self._moment is None or moment > self._moment:
            self._moment = moment
            self._events = {_fingerprint(frame)}
            return True
        fingerprint = _fingerprint(frame)
        if moment < self._moment or fingerprint in self._events:
            return False
        self._events.add(fingerprint)
        return True


def _parse_moment(id: str) -> int | None:
    match = _REDIS.fullmatch(id)
    return int(match[1]) if match else None


def _fingerprint(frame: Frame) -> tuple[str, int]:
    return frame.id or "", hash((frame.name, frame.data))
