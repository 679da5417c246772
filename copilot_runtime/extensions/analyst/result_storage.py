"""Charts and downloads in a storage, where every process that shares it finds them."""

import hashlib
import logging
import re
import time
from collections.abc import Callable
from functools import cached_property

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject, require_object
from copilot_runtime.extensions.storage import ObjectNotFound, Storage
from copilot_runtime.extensions.storage.url import open_storage

_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")

_CLEARING = 3600.0
"""Seconds between two looks for what has expired, whoever's it is."""

logger = logging.getLogger(__name__)


class ResultStorage:
    """Values of one kind, each for its owner and until it expires.

    The key of one is `<kind>/<digest of the owner>/<id>~<when it expires>.json`: who does not know
    the owner does not find it, and nobody has to read what has expired to see that.

    Args:
        storage: Where they are, or its address, which is opened when it is first needed.
        kind: A word for the keys.
        most_of_one: Values of one owner: the oldest are deleted.
    """

    def __init__(
        self,
        storage: Storage | str,
        kind: str,
        most_of_one: int,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._place = storage
        self._kind = kind
        self._most_of_one = most_of_one
        self._clock = clock
        self._cleared_at = 0.0

    @cached_property
    def _storage(self) -> Storage:
        return open_storage(self._place) if isinstance(self._place, str) else self._place

    async def put(self, owner: str | None, id: str, value: JsonObject, expires_at: float) -> None:
        """Store a value. What fails is logged: this process has it in memory all the same."""
        folder = self._name_folder(owner)
        try:
            await self._storage.put(f"{folder}{id}~{int(expires_at)}.json", dumps(value))
            keys = await self._storage.find_by_prefix(folder)
            await self._storage.delete_many(keys[: -self._most_of_one])
            await self._clear()
        except CopilotError as error:
            logger.warning(
                "One of the %s is for this process alone, as it cannot be stored: %s",
                self._kind,
                error,
            )

    async def get(self, owner: str | None, id: str) -> JsonObject | None:
        """Return a value, or None for one that is not there, has expired or is somebody else's.

        Raises `CopilotError` if the storage cannot be reached.
        """
        if not _ID.fullmatch(id):
            return None
        keys = await self._storage.find_by_prefix(f"{self._name_folder(owner)}{id}~")
        found = [key for key in keys if not self._has_expired(key)]
        try:
            data = await self._storage.get(found[-1]) if found else b""
        except ObjectNotFound:
            return None
        return require_object(loads(data), "What is stored of a result") if data else None

    async def aclose(self) -> None:
        """Let go of the storage."""
        if "_storage" in self.__dict__ and isinstance(self._place, str):
            await self._storage.aclose()
            del self.__dict__["_storage"]

    async def _clear(self) -> None:
        """Delete what has expired, now and then."""
        if self._clock() - self._cleared_at < _CLEARING:
            return
        self._cleared_at = self._clock()
        keys = await self._storage.find_by_prefix(f"{self._kind}/")
        await self._storage.delete_many(key for key in keys if self._has_expired(key))

    def _has_expired(self, key: str) -> bool:
        expires_at = key.rpartition("~")[2].removesuffix(".json")
        return expires_at.isdecimal() and int(expires_at) < self._clock()

    def _name_folder(self, owner: str | None) -> str:
        digest = hashlib.sha256(dumps(owner)).hexdigest()[:32]
        return f"{self._kind}/{digest}/"
