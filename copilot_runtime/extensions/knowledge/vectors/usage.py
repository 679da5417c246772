"""Which models' vectors are used, so that those that nobody uses any more can go.

Beside the vectors of each model is an object that says when they were last written or searched; it
is written again by the hour. Servers with an old model and with a new one may run for a while
beside each other, so vectors are deleted after a day in which nobody has used them.
"""

import logging
import time

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.extensions.storage import ObjectNotFound, Storage

logger = logging.getLogger(__name__)

_NAME = "used.json"
_HOUR = 3600.0
_LONGEST_PAUSE = 24 * _HOUR


class ModelUsage:
    """When the vectors below each folder of a prefix were last used; `folder` is our own."""

    def __init__(self, storage: Storage, prefix: str, folder: str, model: str) -> None:
        self._storage = storage
        self._prefix = prefix
        self._folder = folder
        self._model = model
        self._next_note = 0.0

    async def touch(self) -> None:
        """Note that our vectors are used, unless that was noted within the hour."""
        if time.time() < self._next_note:
            return
        self._next_note = time.time() + _HOUR
        try:
            if time.time() - await self._read_time(self._folder) >= _HOUR:
                await self._write_time(self._folder, self._model)
        except CopilotError as error:  # who may only read can search all the same
            logger.info("That the vectors of %s are used is not noted: %s", self._model, error)

    async def clear_others(self) -> None:
        """Delete the vectors that nobody has used for a day."""
        keys = await self._storage.find_by_prefix(f"{self._prefix}/")
        folders = {key.rpartition("/")[0] for key in keys} - {self._folder}
        for folder in sorted(folders):
            used_at = await self._read_time(folder)
            if not used_at:  # an earlier release, which may still be running, does not note it
                await self._write_time(folder, "")
            elif time.time() - used_at > _LONGEST_PAUSE:
                own = [key for key in keys if key.rpartition("/")[0] == folder]
                await self._storage.delete_many(sorted(own, key=_is_note))

    async def _read_time(self, folder: str) -> float:
        """Return when the vectors of a folder were last used; 0 if that is not known."""
        try:
            return float(loads(await self._storage.get(f"{folder}/{_NAME}"))["time"])
        except (ObjectNotFound, ValueError, KeyError, TypeError):
            return 0.0

    async def _write_time(self, folder: str, model: str) -> None:
        note = {"model": model, "time": time.time()}
        await self._storage.put(f"{folder}/{_NAME}", dumps(note))


def _is_note(key: str) -> bool:
    """Return whether a key is deleted last, so that who dies meanwhile goes on the next time."""
    return key.endswith(f"/{_NAME}")
