"""Instruments of this process: histograms with the conventions' buckets, counters and gauges."""

import logging
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
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

_Key = tuple[Any, ...]


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
        self._readers: dict[str, list[Callable[[], float]]] = {}
        self._lock = threading.Lock()

    def record(self, name: str, value: float, attributes: Attributes | None = None) -> None:
        """Add a value to a histogram or a counter."""
        instrument = self._instruments.get(name)
        if instrument is None:
            logger.debug("There is no counter or histogram %r", name)
        elif isfinite(value) and value >= 0:
            with self._lock:
                instrument.add(value, attributes or {})

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
            points = {name: it.snapshot() for name, it in self._instruments.items() if it.sets}
        for name, readers in [*self._readers.items()]:
            points.setdefault(name, []).append(Point({}, sum(map(_read, readers))))
        return [Family(METRICS[name], points[name]) for name in METRICS if name in points]


class _Instrument:
    """A histogram or a counter: a sum for each set of attributes."""

    def __init__(self, metric: Metric, max_sets: int) -> None:
        self.metric = metric
        self.sets: dict[_Key, _Sum] = {}
        self._max_sets = max_sets

    def add(self, value: float, attributes: Attributes) -> None:
        key = tuple(map(attributes.get, self.metric.attributes))
        try:
            found = self.sets.get(key)
        except TypeError:  # a list, where a word is expected
            found = None
        if found is None:
            found = self._find(tuple(map(_shorten, key)))
        found.value += value
        found.count += 1
        if found.buckets:
            found.buckets[bisect_left(self.metric.buckets, value)] += 1

    def _find(self, key: _Key) -> "_Sum":
        found = self.sets.get(key)
        if found is None:
            if len(self.sets) >= self._max_sets - 1:
                return self.sets.setdefault((), self._make(_OVERFLOW))
            names = self.metric.attributes
            own = {name: it for name, it in zip(names, key, strict=True) if it is not None}
            found = self.sets[key] = self._make(own)
        return found

    def _make(self, attributes: Mapping[str, Any]) -> "_Sum":
        bounds = self.metric.buckets
        return _Sum(attributes, [0] * (len(bounds) + 1) if bounds else [])

    def snapshot(self) -> list[Point]:
        return [
            Point(one.attributes, one.value, one.count, tuple(one.buckets))
            for one in self.sets.values()
        ]


class _Sum:
    __slots__ = ("attributes", "buckets", "count", "value")

    def __init__(self, attributes: Mapping[str, Any], buckets: list[int]) -> None:
        self.attributes = attributes
        self.buckets = buckets
        self.value = 0.0
        self.count = 0


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
