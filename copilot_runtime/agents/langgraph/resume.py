"""Which events of a run are here already, whatever the server sends again.

The ids of events are those of Redis, milliseconds and a number. Those of `langgraph dev` all have
the number 0, so that two of one moment share an id and the server, asked for what came after it,
leaves one out. It also sends what happens while a stream is taken up once from its memory and once
more. So we ask for the whole last moment again, and leave out what we have.
"""

import re
from collections.abc import Sequence

from copilot_runtime.agents.langgraph.sse import Frame

_FROM_THE_START = "-1"
_REDIS = re.compile(r"([0-9]+)-[0-9]+")
_LAST_NUMBER = 2**64 - 1
"""Of the events of one moment: https://redis.io/docs/latest/commands/xadd/"""


class Seen:
    """Remembers the last moment of which there are events, and these."""

    def __init__(self) -> None:
        self._last_id = _FROM_THE_START
        self._moment: int | None = None
        self._events: set[tuple[str, int]] = set()

    @property
    def resume_id(self) -> str:
        """Return after which event to go on."""
        if self._moment is None:
            return self._last_id
        return f"{self._moment - 1}-{_LAST_NUMBER}"

    def new(self, frames: Sequence[Frame], *, again: bool) -> list[Frame]:
        """Return the events that are new. Only a stream taken up `again` repeats any."""
        return [frame for frame in frames if self._note(frame) or not again]

    def _note(self, frame: Frame) -> bool:
        """Remember an event. Returns whether it is new."""
        if frame.id is None:
            return True
        self._last_id = frame.id
        moment = _moment(frame.id)
        if moment is None or self._moment is None or moment > self._moment:
            self._moment = moment
            self._events = {_mark(frame)}
            return True
        mark = _mark(frame)
        if moment < self._moment or mark in self._events:
            return False
        self._events.add(mark)
        return True


def _moment(id: str) -> int | None:
    found = _REDIS.fullmatch(id)
    return int(found[1]) if found else None


def _mark(frame: Frame) -> tuple[str, int]:
    return frame.id or "", hash((frame.name, frame.data))
