"""Instruments of this process: histograms with the conventions' buckets, counters and gauges."""

import logging
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.semconv import METRICS, Metric
from copilot_runtime.telemetry.span import Attributes

logger = logging.getLogger(__name__)

MAX_SETS = 500
"""Most sets of attributes of one instrument; what comes with further ones is counted together."""
_MAX_CHARS = 128
"""Longest text of an attribute: a model may be called anything by whoever asks."""
_OVERFLOW: Mapping[str, Any] = {semconv.METRIC_OVERFLOW: True}

_MAX_ROWS = 2 * MAX_SETS
_NAMES = tuple(sorted({name for metric in METRICS.values() for name in metric.attributes}))
"""All attributes that an instrument may have."""
_NUMBERS = frozenset({int, float})
_MOST = 2.0**63
_BATCH = 500
"""How often values are noted before they are added up."""

Measurement = tuple[str, Any, Attributes]
"""The name of an instrument, a value, and the attributes to choose from."""

_Key = tuple[Any, ...]
_Row = dict[str, Callable[[Any], None]]
"""What takes values with one set of attributes, by the names of instruments."""


@dataclass(frozen=True, slots=True)
class Point:
    """What one set of attributes came to. `value` is the sum, for a histogram of `count` values.

    `buckets` says how many values lie between the bounds, and beyond the last one.
    """

    attributes: Mapping[str, Any]
    value: float
    count: int = 0
    buckets: Sequence[int] = ()


class Family(NamedTuple):
    """An instrument and all its points, as they were at one time."""

    metric: Metric
    points: Sequence[Point]


class Metrics:
    """Adds values to the instruments of `semconv.METRICS`, from any thread.

    A value has those attributes that its instrument names and no others, so no id of a
    conversation or a person can be among them. Values that are no numbers are left out.
    """

    def __init__(self, *, max_sets: int = MAX_SETS) -> None:
        self._instruments = {
            metric.name: _Instrument(metric, max_sets)
            for metric in METRICS.values()
            if metric.kind != "gauge"
        }
        self._rows: dict[_Key, _Row] = {}
        self._noted = 0
        """How often values were noted since they were added up."""
        self._readers: dict[str, list[Callable[[], float]]] = {}
        self._lock = threading.Lock()

    def record(self, name: str, value: float, attributes: Attributes | None = None) -> None:
        """Add a value to a histogram or a counter."""
        self.record_all([(name, value, attributes or {})])

    def record_all(self, measurements: Iterable[Measurement]) -> None:
        """Note values of instruments; they are added up when there are many, or somebody looks."""
        row: _Row = {}
        former: Attributes | None = None
        for name, value, attributes in measurements:
            if attributes is not former:  # those of a span are the same for most of its values
                former, row = attributes, self._find_row(attributes)
            note = row.get(name)
            if note is None:
                note = row[name] = self._find_sum(name, attributes)
            note(value)
        self._noted += 1
        if self._noted >= _BATCH:
            with self._lock:
                self._add_up()

    def _find_row(self, attributes: Attributes) -> "_Row":
        """Return what takes values with these attributes, by instrument, as far as it is known."""
        key = tuple(map(attributes.get, _NAMES))
        try:
            row = self._rows.get(key)
        except TypeError:  # a list, where a word is expected
            return {}
        if row is None:
            if len(self._rows) >= _MAX_ROWS:
                self._rows.clear()
            row = {}
            if all(type(it) is not str or len(it) <= _MAX_CHARS for it in key):
                self._rows[key] = row
        return row

    def _find_sum(self, name: str, attributes: Attributes) -> Callable[[Any], None]:
        """Return what takes values of an instrument with these attributes."""
        instrument = self._instruments.get(name)
        if instrument is None:
            logger.debug("There is no counter or histogram %r", name)
            return _ignore
        with self._lock:
            return instrument.find_sum(attributes).noted.append

    def _add_up(self) -> None:
        self._noted = 0
        for instrument in self._instruments.values():
            for one in instrument.sets.values():
                if one.noted:
                    one.add_up()

    def observe(self, name: str, read: Callable[[], float]) -> None:
        """Let a gauge or a counter be what a function returns, when somebody looks.

        With several functions, it is the sum: an application may have more than one runtime.
        """
        if name in METRICS:
            self._readers.setdefault(name, []).append(read)
        else:
            logger.debug("There is no gauge %r", name)

    def collect(self) -> Sequence[Family]:
        """Return every instrument that has a value, in the order of `semconv.METRICS`."""
        with self._lock:
            self._add_up()
            points = {
                name: found
                for name, instrument in self._instruments.items()
                if (found := instrument.list_points())
            }
        for name, readers in [*self._readers.items()]:
            points.setdefault(name, []).append(Point({}, sum(map(_read, readers))))
        return [Family(METRICS[name], points[name]) for name in METRICS if name in points]


class _Instrument:
    """A histogram or a counter: a sum for each set of attributes."""

    def __init__(self, metric: Metric, max_sets: int) -> None:
        self.metric = metric
        self.sets: dict[_Key, _Sum] = {}
        self._max_sets = max_sets

    def find_sum(self, attributes: Attributes) -> "_Sum":
        """Return the sum of a set of attributes, or of all sets that are too many."""
        names = self.metric.attributes
        key = tuple(_shorten(attributes.get(name)) for name in names)
        found = self.sets.get(key)
        if found is None:
            if len(self.sets) >= self._max_sets - 1:
                return self.sets.setdefault((), self._make(_OVERFLOW))
            own = {name: it for name, it in zip(names, key, strict=True) if it is not None}
            found = self.sets[key] = self._make(own)
        return found

    def _make(self, attributes: Mapping[str, Any]) -> "_Sum":
        return _Sum(attributes, self.metric.buckets)

    def list_points(self) -> list[Point]:
        """Return what each set came to, if it has a value."""
        return [
            Point(one.attributes, one.value, one.count, tuple(one.buckets))
            for one in self.sets.values()
            if one.count
        ]


class _Sum:
    __slots__ = ("attributes", "bounds", "buckets", "count", "noted", "value")

    def __init__(self, attributes: Mapping[str, Any], bounds: Sequence[float]) -> None:
        self.attributes = attributes
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1) if bounds else []
        self.value = 0.0
        self.count = 0
        self.noted: list[Any] = []
        """Values that are not added up yet. Any thread may append to it."""

    def add_up(self) -> None:
        """Add what was noted, as far as it is a measure."""
        values = self.noted[:]
        del self.noted[: len(values)]
        if not (_NUMBERS.issuperset(map(type, values)) and 0 <= min(values) <= sum(values) < _MOST):
            values = [value for value in values if is_measure(value)]
        self.value += sum(values)
        self.count += len(values)
        if self.bounds:
            places = Counter(map(bisect_left, repeat(self.bounds), values))
            for place, count in places.items():
                self.buckets[place] += count


def is_measure(value: Any) -> bool:
    """Return whether a value can be added: another process may have written anything else."""
    return type(value) in _NUMBERS and 0 <= value < _MOST


def _ignore(value: Any) -> None:
    del value


def _shorten(value: Any) -> Any:
    """Return a value that can be part of a set: a number, or a text that is not long."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)[:_MAX_CHARS]


def _read(read: Callable[[], float]) -> float:
    try:
        return float(read())
    except Exception as error:  # of another's bus or store: the other values are right
        logger.warning("A gauge cannot be read: %r", error)
        return 0.0
