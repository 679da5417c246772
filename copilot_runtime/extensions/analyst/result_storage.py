"""Shared storage of charts and downloads, and the cache of recent charts."""

import hashlib
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from copilot_runtime.base.errors import CopilotError, NotFound
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject, require_object
from copilot_runtime.extensions.analyst.results import Chart
from copilot_runtime.extensions.analyst.scope import Scope
from copilot_runtime.storage import ObjectNotFound, Storage
from copilot_runtime.storage.storage import open_storage

_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")

_CLEARING = 3600.0
"""Seconds between two deletions of expired values."""

logger = logging.getLogger(__name__)


class ResultStorage:
    """Values of one kind, stored per owner until they expire.

    A key is `<kind>/<digest of the owner>/<id>~<expiry time>.json`: it cannot be found without the
    owner, and expired values are recognised without a read.

    Args:
        storage: The storage, or its URL, which is opened on first use.
        kind: The first segment of the keys.
        most_of_one: Maximum number of values per owner; the oldest are deleted.
    """

    def __init__(
        self,
        storage: Storage | str,
        kind: str,
        most_of_one: int,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._target = storage
        self._kind = kind
        self._most_of_one = most_of_one
        self._clock = clock
        self._cleared_at = 0.0

    @cached_property
    def _storage(self) -> Storage:
        return open_storage(self._target) if isinstance(self._target, str) else self._target

    async def put(self, owner: str | None, id: str, value: JsonObject, expires_at: float) -> None:
        """Store a value. Failures are logged only: this process has the value in memory, too."""
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
        """Return a value; `None` if it is missing, expired or belongs to another owner.

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
        """Close the storage if it was opened here."""
        if "_storage" in self.__dict__ and isinstance(self._target, str):
            await self._storage.aclose()
            del self.__dict__["_storage"]

    async def _clear(self) -> None:
        """Delete expired values, at most once an hour."""
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


MOST_CHARTS = 500
"""Maximum number of stored charts of all users together."""

MOST_OF_ONE = 50
"""Maximum number of charts per owner."""

SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class _Entry:
    chart: Chart
    owner: str | None
    expires_at: float


class ChartStore:
    """In-memory charts by identifier: the oldest are evicted.

    With a `storage`, other processes find them as well.
    """

    def __init__(
        self,
        storage: ResultStorage | None = None,
        *,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._storage = storage
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._seconds = seconds
        self._clock = clock

    async def add(self, chart: Chart, scope: Scope) -> None:
        """Store a chart for the user who asked for it."""
        entry = _Entry(chart, scope.owner, self._clock() + self._seconds)
        self._entries[chart.id] = entry
        own = [id for id, one in self._entries.items() if one.owner == scope.owner]
        for id in own[:-MOST_OF_ONE]:
            del self._entries[id]
        while len(self._entries) > MOST_CHARTS:
            self._entries.popitem(last=False)
        if self._storage is not None:
            await self._storage.put(scope.owner, chart.id, asdict(chart), entry.expires_at)

    async def get(self, id: str, scope: Scope) -> Chart:
        """Return a chart. Raises `NotFound`, also for another owner's chart."""
        entry = self._entries.get(id)
        if entry is not None and entry.owner == scope.owner and entry.expires_at >= self._clock():
            return entry.chart
        stored = await self._storage.get(scope.owner, id) if self._storage is not None else None
        if stored is None:
            raise NotFound("There is no such chart any more.")
        values: Mapping[str, Any] = stored
        return Chart(**values)
