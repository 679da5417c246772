"""What was counted, in short, for tests to compare."""

from typing import Any

from copilot_runtime.telemetry import LocalTelemetry
from copilot_runtime.telemetry.metrics import Metrics, Point


def points_of(source: LocalTelemetry | Metrics, name: str) -> list[Point]:
    """Return the points of an instrument, none if nothing was recorded."""
    metrics = source if isinstance(source, Metrics) else source.metrics
    return [point for it in metrics.collect() if it.metric.name == name for point in it.points]


def values_of(source: LocalTelemetry | Metrics, name: str, attribute: str = "") -> dict[Any, float]:
    """Return the values of an instrument by one of its attributes."""
    return {point.attributes.get(attribute): point.value for point in points_of(source, name)}


def names_of(source: LocalTelemetry | Metrics) -> set[str]:
    """Return the instruments that have a value."""
    metrics = source if isinstance(source, Metrics) else source.metrics
    return {it.metric.name for it in metrics.collect()}
