"""Regular expressions of scenario files, searched with a timeout."""

import re
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

SECONDS = 2.0
"""How long one search may take. A few characters can describe one that takes years."""


class PatternTimeout(Exception):
    """A search took longer than `SECONDS`."""


def search_pattern(pattern: str, text: str) -> bool:
    """Return whether a pattern is somewhere in a text. Raises `PatternTimeout`."""
    with _limit_time():
        return re.search(pattern, text) is not None


@contextmanager
def _limit_time() -> Generator[None]:
    """End what takes too long, where this system and this thread can: `re` looks for signals."""
    if not _has_timer():
        yield
        return

    def give_up(_signal: int, _frame: FrameType | None) -> None:
        raise PatternTimeout

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _has_timer() -> bool:
    """Return True if the interval timer is available and unused (a test runner may use it)."""
    return (
        hasattr(signal, "setitimer")
        and threading.current_thread() is threading.main_thread()
        and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    )
