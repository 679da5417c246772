"""Compare values, search texts with a time limit, and format values for reports."""

import re
import signal
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, cast

from copilot_runtime.base.jsontext import dumps

_LONGEST = 200


def shorten(text: str, length: int = _LONGEST) -> str:
    """Return a text on one line, truncated and without terminal control characters."""
    line = "".join(it for it in " ".join(text.split()) if it.isprintable())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def format_value(value: Any) -> str:
    """Return a value as JSON, or its `repr` if JSON cannot represent it."""
    try:
        return dumps(value).decode()
    except (TypeError, ValueError):
        return repr(value)


def is_part(expected: Any, value: Any) -> bool:
    """Return whether a value contains the expected one: objects may have other fields."""
    if isinstance(expected, Mapping):
        fields = cast("Mapping[str, Any]", expected)
        return isinstance(value, Mapping) and all(
            name in value and is_part(it, value[name]) for name, it in fields.items()
        )
    if isinstance(expected, list | tuple):
        items = cast("Sequence[Any]", expected)
        return (
            isinstance(value, list | tuple)
            and len(cast("Sequence[Any]", value)) == len(items)
            and all(map(is_part, items, cast("Sequence[Any]", value)))
        )
    is_boolean = isinstance(expected, bool) or isinstance(value, bool)
    return expected == value and (not is_boolean or type(expected) is type(value))


def read_path(value: Any, path: str) -> Any:
    """Return the value at a path such as `filter.limit`, or None if there is none."""
    for name in path.split("."):
        if isinstance(value, Mapping):
            value = cast("Mapping[str, Any]", value).get(name)
        elif (
            isinstance(value, list) and name.isdigit() and int(name) < len(cast("list[Any]", value))
        ):
            value = cast("list[Any]", value)[int(name)]
        else:
            return None
    return value


SECONDS = 2.0
"""Timeout in seconds of one search, because a short pattern can take years."""


class PatternTimeout(Exception):
    """A search took longer than `SECONDS`."""


def search_pattern(pattern: str, text: str) -> bool:
    """Return `True` if a pattern matches anywhere in a text. Raises `PatternTimeout`."""
    with _limit_time():
        return re.search(pattern, text) is not None


@contextmanager
def _limit_time() -> Generator[None]:
    """Interrupt the block after `SECONDS` if a timer is available, as `re` checks for signals."""
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
