"""Charts of late, for images and for pages that ask again: each only for whom it was made."""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from copilot_runtime.base.errors import NotFound
from copilot_runtime.extensions.analyst.result_storage import ResultStorage
from copilot_runtime.extensions.analyst.results import Chart
from copilot_runtime.extensions.analyst.scope import Scope

MOST_CHARTS = 500
"""Charts that are kept, of all people together."""

MOST_OF_ONE = 50
"""Charts of one person."""

SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class _Entry:
    chart: Chart
    owner: str | None
    expires_at: float


class ChartStore:
    """Charts by their ids, in memory: the oldest are dropped.

    In a `storage`, other processes find them as well.
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
        """Keep a chart for the person who asked for it."""
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
        """Return a chart. Raises `NotFound` also for one of somebody else."""
        entry = self._entries.get(id)
        if entry is not None and entry.owner == scope.owner and entry.expires_at >= self._clock():
            return entry.chart
        stored = await self._storage.get(scope.owner, id) if self._storage is not None else None
        if stored is None:
            raise NotFound("There is no such chart any more.")
        values: Mapping[str, Any] = stored
        return Chart(**values)
