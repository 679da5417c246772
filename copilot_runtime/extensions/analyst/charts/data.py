"""The data of a chart: columns of a table, assigned to axes and series."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Literal, get_args

from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonValue
from copilot_runtime.extensions.analyst.charts.style import strip_tags
from copilot_runtime.extensions.analyst.results import Column, Table, to_plain
from copilot_runtime.extensions.analyst.tools.queries import (
    find_column,
    list_measures,
)
from copilot_runtime.extensions.analyst.tools.tool import ToolFailed

ChartKind = Literal["bar", "line", "area", "scatter", "pie", "histogram", "heatmap", "box"]

KINDS: Mapping[str, ChartKind] = {
    **{kind: kind for kind in get_args(ChartKind)},
    "column": "bar",
    "bars": "bar",
    "bar chart": "bar",
    "lines": "line",
    "time series": "line",
    "line chart": "line",
    "point": "scatter",
    "points": "scatter",
    "donut": "pie",
    "hist": "histogram",
    "distribution": "histogram",
    "boxplot": "box",
    "box plot": "box",
}
"""Chart types by their synonyms."""

MOST_SLICES = 10
MOST_SERIES = 12
MOST_BARS = 60

_CALENDARS = (
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    ["mon", "tue", "wed", "thu", "fri", "sat", "sun"],
)
OTHER = "Other"


@dataclass(frozen=True, kw_only=True)
class Series:
    """One data series, drawn in one colour."""

    name: str
    x: Sequence[JsonValue]
    y: Sequence[JsonValue]


@dataclass(frozen=True, kw_only=True)
class ChartData:
    """A chart independent of a format: both formats are generated from it."""

    kind: ChartKind
    title: str
    x: Column
    y: Sequence[Column]
    series: Sequence[Series]
    split_by: str | None = None
    """The column whose values define the series."""
    z: Column | None = None
    """The colour column of a heatmap."""
    z_values: Sequence[JsonValue] = ()
    notes: Sequence[str] = ()
    """Sentences on data that the chart omits."""

    @property
    def point_count(self) -> int:
        """The number of points of all series."""
        return sum(len(one.x) for one in self.series)

    @property
    def y_title(self) -> str:
        """The title of the value axis."""
        return self.y[0].name if len(self.y) == 1 else ""


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The axis that each column is assigned to, as far as the model specified it."""

    x: str = ""
    y: Sequence[str] = ()
    split_by: str = ""


def build_chart_data(
    kind: ChartKind, table: Table, roles: Roles, title: str, *, is_ordered: bool
) -> ChartData:
    """Return the data of a chart. With `is_ordered`, keep the order of the rows.

    Raises `ToolFailed` if a column does not exist, or is not numeric where it must be.
    """
    x, ys, split = _choose_columns(kind, table, roles)
    if kind == "heatmap" and split is not None:
        return _build_heatmap(table, x, split, ys[0], title)
    rows = table.rows if is_ordered else _sort_rows(kind, table, x, ys, split)
    position = {column.name: index for index, column in enumerate(table.columns)}
    if kind == "histogram":
        numbers = to_numbers(x, (row[position[x.name]] for row in rows))
        named = Series(name=x.name, x=numbers, y=[])
        return ChartData(kind=kind, title=title, x=x, y=[], series=[named])
    parts = {"": rows} if split is None else _split_rows(rows, position[split.name])
    series = [
        Series(
            name=strip_tags(name or y.name),
            x=[_to_label(row[position[x.name]]) for row in part],
            y=to_numbers(y, (row[position[y.name]] for row in part)),
        )
        for name, part in parts.items()
        for y in ys
    ]
    data = ChartData(
        kind=kind, title=title, x=x, y=ys, series=series, split_by=split.name if split else None
    )
    return _limit_series(_limit_slices(data))


def _to_label(value: Any) -> JsonValue:
    plain = to_plain(value)
    if isinstance(plain, list | dict):
        plain = dumps(plain).decode()
    return strip_tags(plain) if isinstance(plain, str) else plain


def to_numbers(column: Column, values: Iterable[Any]) -> list[JsonValue]:
    """Convert values to numbers. Raises `ToolFailed` for text that is not a number."""
    numbers: list[JsonValue] = []
    for value in values:
        plain = to_plain(value)
        if isinstance(plain, str):
            try:
                plain = to_plain(float(plain))
            except ValueError:
                raise ToolFailed(
                    f"The column {column.name!r} holds texts such as {plain[:40]!r}, not numbers.",
                    hint="Choose a numeric column for y, or count in SQL.",
                ) from None
        numbers.append(int(plain) if isinstance(plain, bool) else plain)
    return numbers


def _choose_columns(
    kind: ChartKind, table: Table, roles: Roles
) -> tuple[Column, Sequence[Column], Column | None]:
    columns = table.columns
    split = find_column(roles.split_by, columns) if roles.split_by else None
    ys = [find_column(name, columns) for name in roles.y]
    used = [*ys, *([split] if split else [])]
    if roles.x:
        x = find_column(roles.x, columns)
    elif kind == "histogram":
        x = ys[0] if ys else next(iter(list_measures(columns)), columns[0])
    else:
        x = _choose_x(columns, used, kind)
    if kind == "histogram":
        return x, [], None
    if not ys:
        rest = [column for column in columns if column not in (x, split)]
        ys = list_measures(rest)[:1] or rest[:1]
    if not ys:
        raise ToolFailed(
            "A chart needs a column for y.", hint="Select a second column: a number for each x."
        )
    if kind == "heatmap" and split is None:
        rest = [column for column in columns if column not in (x, *ys)]
        if not rest:
            raise ToolFailed("A heatmap needs three columns: x, y and a number as the colour.")
        split = next((column for column in rest if not column.is_numeric), None)
        if split is None:  # x and y were given, so the third column is the colour
            split, ys = ys[0], rest[:1]
        elif not ys[0].is_numeric:
            split, ys = ys[0], list_measures(rest)[:1] or rest[:1]
    return x, ys if kind not in ("pie", "heatmap") else ys[:1], split


def _choose_x(columns: Sequence[Column], used: Sequence[Column], kind: ChartKind) -> Column:
    free = [column for column in columns if column not in used] or list(columns)
    if kind == "scatter":
        return next((one for one in free if one.is_numeric), free[0])
    times = [column for column in free if column.is_time]
    texts = [column for column in free if not column.is_numeric]
    return (times or texts or free)[0]


def _sort_rows(
    kind: ChartKind, table: Table, x: Column, ys: Sequence[Column], split: Column | None
) -> Sequence[Sequence[Any]]:
    """Return rows in a readable order: by time or number, otherwise by size."""
    names = [column.name for column in table.columns]
    at_x, at_y = names.index(x.name), names.index(ys[0].name) if ys else 0
    rows = list(table.rows)
    if kind in ("histogram", "scatter"):
        return rows
    calendar = find_calendar([row[at_x] for row in rows])
    if calendar is not None:
        return sorted(rows, key=lambda row: calendar.index(str(row[at_x])[:3].lower()))
    if x.is_time or x.is_numeric or kind in ("line", "area", "box"):
        return sorted(rows, key=lambda row: sort_key(row[at_x]))
    if split is not None:
        sums: dict[str, float] = {}
        for row in rows:
            sums[str(row[at_x])] = sums.get(str(row[at_x]), 0) + _to_float(row[at_y])
        return sorted(rows, key=lambda row: -sums[str(row[at_x])])
    return sorted(rows, key=lambda row: -_to_float(row[at_y]))


def find_calendar(values: Sequence[Any]) -> Sequence[str] | None:
    """Return the calendar order if all values are names of months or weekdays, else `None`."""
    labels = [str(value) for value in values]
    return next((one for one in _CALENDARS if _is_calendar(labels, one)), None)


def order_labels(values: Sequence[JsonValue]) -> list[JsonValue]:
    """Return distinct values sorted; months and weekdays in calendar order."""
    labels = list_labels(values)
    if (calendar := find_calendar(labels)) is not None:
        return sorted(labels, key=lambda label: calendar.index(str(label)[:3].lower()))
    return sorted(labels, key=sort_key)


def _is_calendar(labels: Sequence[str], calendar: Sequence[str]) -> bool:
    names = {label[:3].lower() for label in labels}
    return len(names) > 1 and names <= set(calendar) and max(map(len, labels)) <= len("September")


def sort_key(value: Any) -> tuple[int, Any]:
    """Return a key for sorting mixed values; empty ones come last."""
    if value is None:
        return 3, ""
    if isinstance(value, int | float) and value == value:
        return 0, value
    if isinstance(value, datetime | date):
        return 1, value.isoformat()
    return 2, str(value)


def _to_float(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if number == number else 0.0


def _split_rows(
    rows: Sequence[Sequence[Any]], position: int
) -> Mapping[str, Sequence[Sequence[Any]]]:
    parts: dict[str, list[Sequence[Any]]] = {}
    for row in rows:
        plain = to_plain(row[position])
        parts.setdefault("(empty)" if plain is None else str(plain), []).append(row)
    return dict(sorted(parts.items(), key=lambda item: _natural(item[0])))


def _natural(text: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts numbers inside texts as numbers."""
    return [
        (0, int(part), "") if part.isdecimal() and len(part) < 18 else (1, 0, part.lower())
        for part in re.split(r"(\d+)", text)
    ]


def _limit_slices(data: ChartData) -> ChartData:
    """Return a pie of at most ten slices; the smallest are merged."""
    if data.kind != "pie":
        return data
    labels, values = data.series[0].x, data.series[0].y
    pairs = [("(empty)" if x is None else str(x), y) for x, y in zip(labels, values, strict=True)]
    if any(isinstance(value, int | float) and value < 0 for _, value in pairs):
        raise ToolFailed("A pie cannot show negative values.", hint="Use a bar chart.")
    if len(pairs) > MOST_SLICES:
        pairs = sorted(pairs, key=lambda pair: -_to_float(pair[1]))
        rest = sum(_to_float(value) for _, value in pairs[MOST_SLICES - 1 :])
        pairs = [*pairs[: MOST_SLICES - 1], (OTHER, round(rest, 6))]
    one = Series(name="", x=[label for label, _ in pairs], y=[value for _, value in pairs])
    return replace(data, series=[one])


def _limit_series(data: ChartData) -> ChartData:
    notes: list[str] = []
    series = data.series
    if len(series) > MOST_SERIES:
        size = {id(one): sum(map(abs, map(_to_float, one.y))) for one in series}
        largest = sorted(series, key=lambda one: -size[id(one)])[:MOST_SERIES]
        notes.append(f"Of {len(series)} series, the {MOST_SERIES} largest are shown.")
        series = [one for one in series if one in largest]
    is_nominal = data.kind == "bar" and not (data.x.is_time or data.x.is_numeric)
    if is_nominal and len(series) == 1 and len(series[0].x) > MOST_BARS:
        one = series[0]
        notes.append(f"Of {len(one.x)} bars, the first {MOST_BARS} are shown.")
        series = [replace(one, x=one.x[:MOST_BARS], y=one.y[:MOST_BARS])]
    return replace(data, series=series, notes=notes)


def _build_heatmap(table: Table, x: Column, y: Column, z: Column, title: str) -> ChartData:
    names = [column.name for column in table.columns]
    at_x, at_y, at_z = names.index(x.name), names.index(y.name), names.index(z.name)
    colors = to_numbers(z, (row[at_z] for row in table.rows))
    cells = Series(
        name=z.name,
        x=[_to_label(row[at_x]) for row in table.rows],
        y=[_to_label(row[at_y]) for row in table.rows],
    )
    return ChartData(kind="heatmap", title=title, x=x, y=[y], series=[cells], z=z, z_values=colors)


def list_labels(values: Iterable[JsonValue]) -> list[JsonValue]:
    """Return the distinct values in their order."""
    return list(dict.fromkeys(values))
