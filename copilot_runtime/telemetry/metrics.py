"""Metrics: instruments with the buckets of the conventions, which aggregate values."""

import logging
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.measurements import Source, list_measurements
from copilot_runtime.telemetry.semconv import METRICS, Dialect, Metric
from copilot_runtime.telemetry.span import Attributes, Span

logger = logging.getLogger(__name__)

MAX_SETS = 500
"""Maximum number of attribute sets per instrument; further sets share one overflow sum."""
_MAX_CHARS = 128
"""Maximum length of an attribute's text: clients may send model names of any length."""
_OVERFLOW: Mapping[str, Any] = {semconv.METRIC_OVERFLOW: True}

_MAX_KEYS = 2 * MAX_SETS
"""Maximum number of attribute sets whose recording functions are cached."""
_NAMES = tuple(sorted({name for metric in METRICS.values() for name in metric.attributes}))
"""All attributes that any instrument uses."""
_NUMBERS = frozenset({int, float})
_MOST = 2.0**63
_BATCH = 500
"""Number of recorded values and spans after which pending values are aggregated."""

Export = Callable[[str, Any, Attributes], None]
"""Records a value by the name of its instrument, with the attributes that this declares."""

_Key = tuple[Any, ...]
_Note = Callable[[Any], None]
"""Adds a value to the pending ones of a sum."""
_Plan = Sequence[tuple[_Note, Source]]
"""The measurements of spans that differ in nothing but values."""


@dataclass(frozen=True, slots=True)
class Point:
    """The aggregate for one set of attributes. A histogram has the sum of `count` values.

    `buckets` counts the values between the bounds, and those above the last bound.
    """

    attributes: Mapping[str, Any]
    value: float
    count: int = 0
    buckets: Sequence[int] = ()


class Family(NamedTuple):
    """A snapshot of an instrument and all its points."""

    metric: Metric
    points: Sequence[Point]


class Metrics:
    """Aggregates values for the instruments of `semconv.METRICS`. Thread-safe.

    A value keeps only the attributes that its instrument declares, so that no id of a
    conversation or a user is among them. Values that are not numbers are ignored.
    """

    def __init__(self, dialect: Dialect = "released", *, max_sets: int = MAX_SETS) -> None:
        self._dialect: Dialect = dialect
        self._instruments = {
            metric.name: _Instrument(metric, max_sets)
            for metric in METRICS.values()
            if metric.kind != "gauge"
        }
        self._notes: dict[_Key, _Note] = {}
        self._plans: dict[_Key, _Plan] = {}
        self._export: Export | None = None
        self._noted = 0
        """Number of recorded values and spans since the last aggregation."""
        self._readers: dict[str, list[Callable[[], float]]] = {}
        self._lock = threading.Lock()

    def export(self, export: Export | None) -> None:
        """Pass the values that are recorded from now on to another function as well."""
        self._export = export
        self._notes.clear()
        self._plans.clear()

    def record(self, name: str, value: float, attributes: Attributes | None = None) -> None:
        """Add a value to a histogram or a counter."""
        key = (name, *attributes, *attributes.values()) if attributes else (name,)
        try:
            note = self._notes.get(key)
        except TypeError:  # a list, where a word is expected
            note = None
        if note is None:
            note = self._find_note(name, attributes or {})
            _remember(self._notes, key, note)
        note(value)
        self._noted += 1
        if self._noted >= _BATCH:
            self._add_up()

    def record_span(self, span: Span) -> None:
        """Record the measurements of an ended span."""
        attributes = span.attributes
        # all that `list_measurements` depends on
        key = (span.kind, *attributes, *map(attributes.get, _NAMES))
        try:
            plan = self._plans.get(key)
        except TypeError:  # a list, where a word is expected
            plan = None
        if plan is None:
            plan = self._plan(span)
            _remember(self._plans, key, plan)
        seconds = (span.end_time - span.start_time) / 1e9
        for note, source in plan:
            if source is None:
                note(seconds)
            elif type(source) is str:
                note(attributes[source])
            else:
                note(source)
        self._noted += 1
        if self._noted >= _BATCH:
            self._add_up()

    def _plan(self, span: Span) -> _Plan:
        return [
            (self._find_note(name, attributes), source)
            for name, source, attributes in list_measurements(span, self._dialect)
        ]

    def _find_note(self, name: str, attributes: Attributes) -> _Note:
        """Return the recording function of an instrument for these attributes."""
        instrument = self._instruments.get(name)
        if instrument is None:
            logger.debug("There is no counter or histogram %r", name)
            return _ignore
        with self._lock:
            note, export = instrument.find_sum(attributes).noted.append, self._export
        if export is None:
            return note
        names = instrument.metric.attributes
        labels = {name: attributes[name] for name in names if name in attributes}

        def note_and_export(value: Any) -> None:
            note(value)
            export(name, value, labels)

        return note_and_export

    def _add_up(self) -> None:
        """Aggregate the pending values."""
        with self._lock:
            self._noted = 0
            for instrument in self._instruments.values():
                for one in instrument.sets.values():
                    if one.noted:
                        one.add_up()

    def observe(self, name: str, read: Callable[[], float]) -> None:
        """Register a callback that returns the value of a gauge or counter at each `collect`.

        Several callbacks are summed: an application may have more than one runtime.
        """
        if name in METRICS:
            self._readers.setdefault(name, []).append(read)
        else:
            logger.debug("There is no gauge %r", name)

    def collect(self) -> Sequence[Family]:
        """Return every instrument that has a value, in the order of `semconv.METRICS`."""
        self._add_up()
        with self._lock:
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
        """Return the aggregate of a set of attributes, or the overflow aggregate."""
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
        """Return the point of each set of attributes that has a value."""
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
        """Values that are not aggregated yet. Any thread may append."""

    def add_up(self) -> None:
        """Aggregate the pending values; ignore those that are not numbers."""
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


_T = TypeVar("_T")


def _remember(cache: dict[_Key, _T], key: _Key, value: _T) -> None:
    """Cache a value, unless its key has a long text or a list. The size is bounded."""
    if len(cache) >= _MAX_KEYS:
        cache.clear()
    if all(type(it) is not str or len(it) <= _MAX_CHARS for it in key):
        with suppress(TypeError):
            cache[key] = value


def is_measure(value: Any) -> bool:
    """Return True if a value is a number from 0 on: imported spans may contain anything."""
    return type(value) in _NUMBERS and 0 <= value < _MOST


def _ignore(value: Any) -> None:
    del value


def _shorten(value: Any) -> Any:
    """Return an attribute value that is hashable and bounded: a number or a short text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)[:_MAX_CHARS]


def _read(read: Callable[[], float]) -> float:
    try:
        return float(read())
    except Exception as error:  # of another's bus or store: the other values are right
        logger.warning("A gauge cannot be read: %r", error)
        return 0.0
