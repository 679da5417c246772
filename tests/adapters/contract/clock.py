"""The clock of the event loop, put forward by a test: what takes a minute takes no time.

A limit that a test may set to a minute is never reached by a machine that is merely busy.
"""

import asyncio

import pytest


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._ahead = 0.0
        monkeypatch.setattr(self._loop, "time", self._now)

    def forward(self, seconds: float) -> None:
        """Let that time pass at once."""
        self._ahead += seconds

    def forward_soon(self, seconds: float) -> None:
        """Let that time pass as soon as the caller waits for something."""
        self._loop.call_soon(self.forward, seconds)

    def _now(self) -> float:
        return self._time() + self._ahead
