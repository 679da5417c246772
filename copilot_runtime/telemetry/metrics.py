"""Metrics: values from ended spans, and instruments with the buckets of the conventions.

Spans are the only source of the values of runs, so that traces and metrics never disagree.
"""

import logging
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

from copilot_runtime.base.errors import AgentNotFound
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.semconv import METRICS, Dialect, Metric
from copilot_runtime.telemetry.span import Attributes, Span

logger = logging.getLogger(__name__)

MAX_SETS = 500
"""Maximum number of attribute sets per instrument; further sets share one overflow sum."""
_MAX_CHARS = 128
"""Maximum length of an attribute's text: clients may send model names of any length."""
_OVERFLOW: Mapping[str, Any] = {semconv.METRIC_OVERFLOW: True}

_MAX_ROWS = 2 * MAX_SETS
_NAMES = tuple(sorted({name for metric in METRICS.values() for name in metric.attributes}))
"""All attributes that any instrument uses."""
_NUMBERS = frozenset({int, float})
_MOST = 2.0**63
_BATCH = 500
"""Number of `record_all` calls after which pending values are aggregated."""

Measurement = tuple[str, Any, Attributes]
"""The name of an instrument, a value, and the attributes to choose from."""

_Key = tuple[Any, ...]
_Row = dict[str, Callable[[Any], None]]
"""Recording functions for one set of attributes, by instrument name."""


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

    def __init__(self, *, max_sets: int = MAX_SETS) -> None:
        self._instruments = {
            metric.name: _Instrument(metric, max_sets)
            for metric in METRICS.values()
            if metric.kind != "gauge"
        }
        self._rows: dict[_Key, _Row] = {}
        self._noted = 0
        """Number of `record_all` calls since the last aggregation."""
        self._readers: dict[str, list[Callable[[], float]]] = {}
        self._lock = threading.Lock()

    def record(self, name: str, value: float, attributes: Attributes | None = None) -> None:
        """Add a value to a histogram or a counter."""
        self.record_all([(name, value, attributes or {})])

    def record_all(self, measurements: Iterable[Measurement]) -> None:
        """Record values; they are aggregated in batches, and before each `collect`."""
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
        """Return the cached recording functions for these attributes, by instrument."""
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
        """Return the recording function of an instrument for these attributes."""
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
        """Register a callback that returns the value of a gauge or counter at each `collect`.

        Several callbacks are summed: an application may have more than one runtime.
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


CLIENT_OPERATIONS = frozenset(
    {
        *(semconv.EMBEDDINGS, semconv.RETRIEVAL, semconv.CREATE_AGENT, semconv.FETCH_RESPONSE),
        *(semconv.SEARCH_MEMORY, semconv.CREATE_MEMORY, semconv.UPDATE_MEMORY),
        *(semconv.UPSERT_MEMORY, semconv.DELETE_MEMORY),
        *(semconv.CREATE_MEMORY_STORE, semconv.DELETE_MEMORY_STORE),
    }
)
"""Operations that are measured as client operations, beside model requests."""
_DURATIONS: Mapping[str, str] = {
    semconv.EXECUTE_TOOL: semconv.EXECUTE_TOOL_DURATION,
}
"""Duration metrics of operations that have no other metric."""
_USAGE = {
    semconv.USAGE_INPUT_TOKENS: "input",
    semconv.USAGE_OUTPUT_TOKENS: "output",
}
_USAGE_COUNTERS = {
    semconv.USAGE_INPUT_TOKENS: "input_tokens",
    semconv.USAGE_OUTPUT_TOKENS: "output_tokens",
    semconv.USAGE_CACHE_READ_TOKENS: "cache_read.input_tokens",
    semconv.USAGE_CACHE_WRITE_TOKENS: "cache_write.input_tokens",
    semconv.USAGE_REASONING_TOKENS: "reasoning.output_tokens",
}
_TOKENS_OF_OPERATION = {
    semconv.USAGE_INPUT_TOKENS: semconv.INFERENCE_INPUT_TOKENS,
    semconv.USAGE_OUTPUT_TOKENS: semconv.INFERENCE_OUTPUT_TOKENS,
}


def measure_span(span: Span, dialect: Dialect = "released") -> list[Measurement]:
    """Return the measurements of an ended span, with the metric names of a dialect."""
    attributes, seconds = span.attributes, span.duration
    operation: Any = attributes.get(semconv.OPERATION_NAME)
    measurements: list[Measurement] = []
    if type(operation) is not str:
        operation = ""
    if semconv.MCP_METHOD_NAME in attributes:
        if span.kind == "server":  # the action that it calls has a span of its own
            return [(semconv.MCP_SERVER_OPERATION_DURATION, seconds, attributes)]
        measurements.append((semconv.MCP_CLIENT_OPERATION_DURATION, seconds, attributes))
    if operation in semconv.INFERENCES:
        measurements += _measure_inference(attributes, seconds, dialect)
    elif operation == semconv.INVOKE_AGENT:
        measurements += _measure_agent(attributes, seconds)
    elif operation in CLIENT_OPERATIONS:
        measurements.append((semconv.OPERATION_DURATION, seconds, attributes))
        measurements += _measure_tokens(attributes)
    elif operation == semconv.INVOKE_WORKFLOW:
        measurements += _measure_workflow(attributes, seconds)
    elif operation == semconv.EXECUTE_TASK:
        measurements.append((semconv.TASK_COUNT, 1, attributes))
        measurements.append((semconv.TASK_DURATION, seconds, attributes))
    elif semconv.TOOL_WAITING in attributes:
        pass  # the browser has not returned a result yet
    elif (name := _DURATIONS.get(operation)) is not None:
        measurements.append((name, seconds, attributes))
    return measurements


def _measure_inference(
    attributes: Attributes, seconds: float, dialect: Dialect
) -> list[Measurement]:
    measurements: list[Measurement] = []
    first_chunk = attributes.get(semconv.RESPONSE_TIME_TO_FIRST_CHUNK)
    if dialect != "head":
        measurements.append((semconv.OPERATION_DURATION, seconds, attributes))
        if first_chunk is not None:
            measurements.append((semconv.TIME_TO_FIRST_CHUNK, first_chunk, attributes))
    if dialect != "released":
        measurements.append((semconv.INFERENCE_DURATION, seconds, attributes))
        if first_chunk is not None:
            measurements.append((semconv.INFERENCE_TIME_TO_FIRST_CHUNK, first_chunk, attributes))
    if (cost := attributes.get(semconv.COST_DOLLARS)) is not None:
        measurements.append((semconv.COST, cost, attributes))
    if dialect != "head":
        measurements += _measure_tokens(attributes)
    if dialect != "released":
        measurements += _count_tokens(attributes)
    return measurements


def _measure_tokens(attributes: Attributes) -> list[Measurement]:
    """Return token counts for the released histogram, with the token type as an attribute."""
    return [
        (semconv.TOKEN_USAGE, count, {**attributes, semconv.TOKEN_TYPE: kind})
        for name, kind in _USAGE.items()
        if (count := attributes.get(name)) is not None
    ]


def _count_tokens(attributes: Attributes) -> Iterator[Measurement]:
    """Yield token counts by type; the conventions require 0 if the provider gave no count.

    The modality is `unknown`: providers give it for parts of an answer only.
    """
    attributes = {**attributes, semconv.TOKEN_MODALITY: "unknown"}
    for name, kind in _USAGE_COUNTERS.items():
        count = attributes.get(name)
        if count is not None:
            yield semconv.INFERENCE_USAGE[kind], count, attributes
            if name in _TOKENS_OF_OPERATION:
                yield _TOKENS_OF_OPERATION[name], count, attributes
        elif name in _TOKENS_OF_OPERATION:
            yield semconv.INFERENCE_USAGE[kind], 0, attributes


def _measure_agent(attributes: Attributes, seconds: float) -> list[Measurement]:
    if attributes.get(semconv.ERROR_TYPE) == AgentNotFound.code:
        # clients may invent any number of names
        attributes = {**attributes, semconv.AGENT_NAME: semconv.ERROR_TYPE_OTHER}
    measurements: list[Measurement] = [(semconv.INVOKE_AGENT_DURATION, seconds, attributes)]
    turns = attributes.get(semconv.RUN_TURNS)
    tool_calls = attributes.get(semconv.RUN_TOOL_CALLS)
    if turns is not None:  # the model requests of a remote agent are unknown
        measurements.append((semconv.INVOKE_AGENT_INFERENCE_CALLS, turns, attributes))
    if turns is not None or tool_calls is not None:
        measurements.append((semconv.INVOKE_AGENT_TOOL_CALLS, tool_calls or 0, attributes))
    if semconv.RUN_OUTCOME in attributes:
        measurements.append((semconv.RUN_COUNT, 1, attributes))
    return measurements


def _measure_workflow(attributes: Attributes, seconds: float) -> list[Measurement]:
    measurements: list[Measurement] = [(semconv.INVOKE_WORKFLOW_DURATION, seconds, attributes)]
    if semconv.PLAN_OUTCOME in attributes:
        measurements.append((semconv.PLAN_COUNT, 1, attributes))
    if (duration := attributes.get(semconv.PLAN_SECONDS)) is not None:
        measurements.append((semconv.PLAN_DURATION, duration, attributes))
    if (waiting := attributes.get(semconv.TASK_WAITING)) is not None:
        measurements.append((semconv.PLAN_WAITING, waiting, attributes))
    return measurements
