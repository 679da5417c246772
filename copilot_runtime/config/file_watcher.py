"""Reload files that an operator may change while the server runs."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence, Sized
from pathlib import Path
from time import monotonic
from typing import Generic, TypeVar

from copilot_runtime.base.errors import ConfigurationFailed

T = TypeVar("T", bound=Sized)

FileStates = Mapping[Path, tuple[int, int]]
"""The modification time in nanoseconds and the size in bytes of each file."""

_INTERVAL = 1.0

logger = logging.getLogger(__name__)


class FileWatcher(Generic[T]):
    """Reloads files if one of them was changed, added or removed, on each `refresh`.

    Errors in the files are logged, and the previous values stay in effect until the files are valid
    again; that is logged, too.

    Args:
        path: The file or folder, for messages.
        find: Returns the current files. Raises `OSError` or `ConfigurationFailed`.
        read: Returns the values in the files. Raises `ConfigurationFailed` with all errors.
        noun: The plural noun for the values, for messages.
        interval: Minimum number of seconds between two checks; `None` for one second.
    """

    def __init__(
        self,
        path: Path,
        find: Callable[[], Sequence[Path]],
        read: Callable[[FileStates], T],
        noun: str,
        *,
        interval: float | None = None,
    ) -> None:
        self._path = path
        self._find = find
        self._read = read
        self._noun = noun
        self._interval = _INTERVAL if interval is None else interval
        self._states: FileStates = {}
        self._checked_at = 0.0

    def look(self) -> FileStates:
        """Return the states of the files and mark them as read. Raises `ConfigurationFailed`."""
        self._states = self._find_states()
        return self._states

    async def refresh(self) -> T | None:
        """Return the values if the files have changed since the last check, else `None`."""
        now = monotonic()
        if now - self._checked_at < self._interval:
            return None
        self._checked_at = now
        return await asyncio.to_thread(self._reload)

    def _reload(self) -> T | None:
        try:
            states = self._find_states()
            if states == self._states:
                return None
            self._states = states
            values = self._read(states)
        except ConfigurationFailed as error:
            for mistake in error.message.splitlines():
                logger.error("The %s stay as they were: %s", self._noun, mistake)
            return None
        if len(values) == 1:
            logger.info("1 %s was read again.", self._noun.removesuffix("s"))
        else:
            logger.info("%d %s were read again.", len(values), self._noun)
        return values

    def _find_states(self) -> FileStates:
        try:
            stats = [(file, file.stat()) for file in self._find()]
        except OSError as error:
            raise ConfigurationFailed(
                f"The {self._noun} in '{self._path}' cannot be read: {error.strerror or error}."
            ) from error
        return {file: (stat.st_mtime_ns, stat.st_size) for file, stat in stats}


def read_text(file: Path) -> str:
    """Return the text of a file. Raises `ConfigurationFailed`, which names the file."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigurationFailed(f"{file}:1: it is not UTF-8 text.") from None
    except OSError as error:
        reason = error.strerror or error
        raise ConfigurationFailed(f"{file}:1: it cannot be read: {reason}.") from error
