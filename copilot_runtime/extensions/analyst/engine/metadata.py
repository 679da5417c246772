"""Statistics of data sets, computed only over the rows that the caller may read."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from copilot_runtime.base.concurrency import retrieve_exception
from copilot_runtime.extensions.analyst.engine.datasets import (
    Dataset,
    match_labels,
    quote_name,
)
from copilot_runtime.extensions.analyst.results import Column
from copilot_runtime.extensions.analyst.sql.rules import Scope

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.engine.engine import Engine

MOST_COLUMNS = 50
"""Maximum number of analysed columns; of the others, only name and type are known."""

MOST_VALUES = 15
"""Maximum number of collected values of a text column, the most frequent first."""

MOST_DISTINCT = 1_000
"""Text columns with more distinct values are not filters: no values are collected for them."""

MOST_TEXT_COLUMNS = 20
MOST_CHARACTERS = 200
MAX_ENTRIES = 256
EXACT_ROWS = 100_000
"""Maximum number of rows for exact distinct counts; they are estimated for larger data sets."""
"""Descriptions that are kept, of all scopes together."""

_TIME_NAMES = ("timestamp", "ts", "created_at", "date", "time", "day")


Relate = Callable[[Dataset, Scope], str]
"""Returns the FROM item for a data set with only the rows that a scope may see."""


def relate_all(dataset: Dataset, _scope: Scope) -> str:
    """Return the FROM item for a data set with all its rows."""
    return dataset.physical


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMetadata(Column):
    """A column with its statistics."""

    unique_count: int | None = None
    """The approximate number of distinct values."""
    null_percent: float | None = None
    minimum: Any = None
    """The minimum of a numeric or temporal column, or `None`."""
    maximum: Any = None
    average: float | None = None
    values: Sequence[str] = ()
    """The most frequent values of a text column with few distinct values."""
    is_complete: bool = False
    """`True` if `values` contains every distinct value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMetadata:
    """A data set as seen by one scope."""

    name: str
    row_count: int
    columns: Sequence[ColumnMetadata]
    fingerprint: str
    """A hash of the names and types of the columns."""
    source: str = ""
    description: str = ""
    time_column: str | None = None
    time_range: tuple[str, str] | None = None
    """First and last time in the time column, as ISO 8601, or `None`."""


class MetadataCache:
    """Caches descriptions by row filter and version; concurrent requests share one computation.

    Scopes with the same visible rows share an entry.
    """

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._entries: OrderedDict[tuple[str, ...], asyncio.Task[TableMetadata]] = OrderedDict()

    async def describe(self, dataset: Dataset, scope: Scope) -> TableMetadata:
        """Return the description of a data set for a scope."""
        relation = self._engine.relate(dataset, scope)
        # row filters may read other data sets of the operator
        key = (relation, dataset.name, dataset.version, self._engine.version)
        task = self._entries.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = asyncio.ensure_future(_describe(self._engine, dataset, relation))
            task.add_done_callback(retrieve_exception)
            self._entries[key] = task
        self._entries.move_to_end(key)
        while len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)
        return await asyncio.shield(task)


async def _describe(engine: "Engine", dataset: Dataset, relation: str) -> TableMetadata:
    columns = dataset.columns[:MOST_COLUMNS]
    is_small = dataset.row_count <= EXACT_ROWS
    counts = _build_counts(columns, relation, dataset.totals, is_exact=is_small)
    table = await engine.run(counts, limit=1)
    cells = iter(table.rows[0])
    row_count = int(next(cells))
    counted = [_read_counts(column, cells, row_count) for column in columns]
    counted = await _add_values(engine, counted, relation)
    time = _find_time_column(counted)
    rest = [ColumnMetadata(name=one.name, type=one.type) for one in dataset.columns[MOST_COLUMNS:]]
    return TableMetadata(
        name=dataset.name,
        row_count=row_count,
        columns=[*counted, *rest],
        fingerprint=dataset.fingerprint,
        source=dataset.source,
        description=dataset.description,
        time_column=time.name if time else None,
        time_range=(_format_time(time.minimum), _format_time(time.maximum)) if time else None,
    )


def _build_counts(
    columns: Sequence[Column],
    relation: str,
    totals: Mapping[str, Sequence[str]],
    *,
    is_exact: bool,
) -> str:
    """Return SQL for the figures of columns; lines that add up others have no part in averages."""
    lines = [match_labels(f"t.{quote_name(name)}", labels) for name, labels in totals.items()]
    own = f"NOT ({' OR '.join(lines)})" if lines else "true"
    parts = ["count(*)"]
    for column in columns:
        name = f"t.{quote_name(column.name)}"
        distinct = f"count(DISTINCT {name})" if is_exact else f"approx_count_distinct({name})"
        parts += [f"count({name})", distinct]
        if column.is_numeric:
            finite = f"{name}::DOUBLE"
            parts += [f"{kind}({name}) FILTER ({own})" for kind in ("min", "max")]
            parts.append(f"avg({finite}) FILTER ({own} AND isfinite({finite}))")
        elif column.is_time:
            parts += [f"min({name})", f"max({name})"]
    return f"SELECT {', '.join(parts)} FROM {relation} AS t"


def _read_counts(column: Column, cells: Any, row_count: int) -> ColumnMetadata:
    filled, distinct = int(next(cells)), int(next(cells))
    minimum = maximum = average = None
    if column.is_numeric:
        minimum, maximum, average = next(cells), next(cells), next(cells)
    elif column.is_time:
        minimum, maximum = next(cells), next(cells)
    return ColumnMetadata(
        name=column.name,
        type=column.type,
        unique_count=min(distinct, filled),
        null_percent=round(100 * (row_count - filled) / row_count, 2) if row_count else None,
        minimum=minimum,
        maximum=maximum,
        average=average,
    )


async def _add_values(
    engine: "Engine", columns: Sequence[ColumnMetadata], relation: str
) -> Sequence[ColumnMetadata]:
    """Collect the values of text columns in one query, so that the table is read once."""
    texts = [
        one for one in columns if _is_category(one) and 0 < (one.unique_count or 0) <= MOST_DISTINCT
    ][:MOST_TEXT_COLUMNS]
    if not texts:
        return columns
    parts = [
        f"(SELECT {number} AS n, left(t.{quote_name(one.name)}::VARCHAR, {MOST_CHARACTERS}) AS v, "
        f"count(*) AS c FROM {relation} AS t WHERE t.{quote_name(one.name)} IS NOT NULL "
        f"GROUP BY ALL ORDER BY c DESC, v LIMIT {MOST_VALUES})"
        for number, one in enumerate(texts)
    ]
    table = await engine.run(
        " UNION ALL ".join(parts) + " ORDER BY n, c DESC, v", limit=MOST_VALUES * len(texts)
    )
    found: dict[str, list[str]] = {}
    for number, value, _ in table.rows:
        found.setdefault(texts[number].name, []).append(value)
    return [_with_values(one, found.get(one.name, ())) for one in columns]


def _is_category(column: Column) -> bool:
    return column.is_text or column.type == "BOOLEAN"


def _with_values(column: ColumnMetadata, values: Sequence[str]) -> ColumnMetadata:
    is_complete = 0 < len(values) < MOST_VALUES
    return replace(column, values=tuple(values), is_complete=is_complete)


def _find_time_column(columns: Sequence[ColumnMetadata]) -> ColumnMetadata | None:
    """Return the column with the time of a row: by its name, or else the first temporal one."""
    times = [one for one in columns if one.is_time and one.minimum is not None]
    names = {one.name.lower(): one for one in reversed(times)}
    by_name = next((names[name] for name in _TIME_NAMES if name in names), None)
    return by_name or (times[0] if times else None)


def _format_time(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
