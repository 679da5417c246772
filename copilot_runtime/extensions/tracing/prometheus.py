"""Metrics in Prometheus' text format, named by OpenTelemetry's compatibility rules.

The rules: https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/
The format: https://prometheus.io/docs/instrumenting/exposition_formats/ (version 0.0.4).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.metrics import Family, Point
from copilot_runtime.telemetry.semconv import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_UNITS = {"s": "seconds", "ms": "milliseconds", "By": "bytes", "1": "ratio"}
_ANNOTATION = re.compile(r"\{.*\}")
_NO_NAME = re.compile(r"[^a-zA-Z0-9:]+")
_NO_LABEL = re.compile(r"[^a-zA-Z0-9]+")
_NO_UNIT = re.compile(r"[^a-zA-Z0-9]+")


_HELP, _TYPE = "# HELP ", "# TYPE "


def render_metrics(
    families: Sequence[Family],
    resource: Mapping[str, Any],
    *,
    version: str = "",
    labels: Mapping[str, Any] | None = None,
) -> str:
    """Render the page. The attributes of `resource` become the metric `target_info`.

    All other samples carry the `labels`.
    """
    scope = {
        "otel_scope_name": semconv.SCOPE,
        "otel_scope_version": version,
        **(labels or {}),
    }
    lines = [*_render_target(resource)] if resource else []
    for family in families:
        lines += _render_family(family, scope)
    return "".join(f"{line}\n" for line in lines)


def merge_pages(pages: Iterable[str]) -> str:
    """Merge pages with distinct samples into one, with the samples of each family together."""
    families: dict[str, list[str]] = {}
    for page in pages:
        family, is_first = list[str](), True
        for line in page.split("\n"):  # not `splitlines`: a value may have other ends of lines
            if line.startswith(_HELP):
                name = line.removeprefix(_HELP).partition(" ")[0]
                is_first = name not in families
                family = families.setdefault(name, [])
            if line and (is_first or not line.startswith((_HELP, _TYPE))):
                family.append(line)
    return "".join(f"{line}\n" for family in families.values() for line in family)


def name_metric(metric: Metric) -> str:
    """Return the name of a metric in Prometheus: with its unit, and `_total` for a counter."""
    name = _NO_NAME.sub("_", metric.name)
    unit = _name_unit(metric.unit)
    if unit and not name.endswith(f"_{unit}"):
        name = f"{name}_{unit}"
    return f"{name}_total" if metric.kind == "counter" else name


def _name_unit(unit: str) -> str:
    """Return a unit as a name suffix; empty for an annotation in braces, such as `{token}`."""
    unit = _ANNOTATION.sub("", unit)
    return _UNITS.get(unit) or _NO_UNIT.sub("_", unit).strip("_")


def _render_target(resource: Mapping[str, Any]) -> Iterator[str]:
    yield f"{_HELP}target_info Target metadata"
    yield f"{_TYPE}target_info gauge"
    yield f"target_info{_render_labels(resource)} 1"


def _render_family(family: Family, scope: Mapping[str, str]) -> Iterator[str]:
    metric, name = family.metric, name_metric(family.metric)
    about = metric.about.replace("\\", r"\\").replace("\n", r"\n")
    yield f"{_HELP}{name} {about}"
    yield f"{_TYPE}{name} {metric.kind}"
    for point in family.points:
        labels = {**scope, **point.attributes}
        if metric.kind == "histogram":
            yield from _render_histogram(name, metric, point, labels)
        else:
            yield f"{name}{_render_labels(labels)} {_render_number(point.value)}"


def _render_histogram(
    name: str, metric: Metric, point: Point, labels: Mapping[str, Any]
) -> Iterator[str]:
    bounds = [*(_render_number(bound) for bound in metric.buckets), "+Inf"]
    for bound, count in zip(bounds, accumulate(point.buckets), strict=True):
        yield f"{name}_bucket{_render_labels({**labels, 'le': bound})} {count}"
    yield f"{name}_sum{_render_labels(labels)} {_render_number(point.value)}"
    yield f"{name}_count{_render_labels(labels)} {point.count}"


def _render_labels(attributes: Mapping[str, Any]) -> str:
    """Return labels in braces. Values of attributes with the same label name are joined."""
    labels: dict[str, list[str]] = {}
    for name, value in sorted(attributes.items()):
        labels.setdefault(_name_label(name), []).append(_render_value(value))
    pairs = [f'{label}="{_escape(";".join(values))}"' for label, values in labels.items()]
    return f"{{{','.join(pairs)}}}"


def _name_label(name: str) -> str:
    label = _NO_LABEL.sub("_", name)
    return f"_{label}" if label[:1].isdigit() else label


def _render_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _render_number(value: float) -> str:
    return repr(float(value))


def _escape(text: str) -> str:
    text = text.encode(errors="replace").decode()  # half a character cannot be written
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
