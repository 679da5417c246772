"""The Prometheus endpoint `/metrics`, for this machine or for clients with the token.

Metrics are named by OpenTelemetry's compatibility rules, in Prometheus' text format 0.0.4:
https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hmac import compare_digest
from itertools import accumulate
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from copilot_runtime.base.concurrency import call
from copilot_runtime.security.loopback import (
    LoopbackGuard,
    is_forwarded,
    is_from_other_page,
    is_loopback,
)
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.metrics import Family, Metrics, Point
from copilot_runtime.telemetry.semconv import Metric
from copilot_runtime.telemetry.worker_metrics import WorkerMetrics


class MetricsEndpoint:
    """Serves the metrics of this process, or those of all workers if it is a worker.

    `resource` holds the attributes that describe the server.

    With a `token`, only requests that carry it are answered. Without one, only direct requests
    from this machine are, not those forwarded by a proxy.
    """

    def __init__(
        self, metrics: Metrics, resource: Mapping[str, Any], *, version: str, token: str = ""
    ) -> None:
        self._metrics = metrics
        self._resource = resource
        self._version = version
        self._token = token.encode()
        self._guard = LoopbackGuard()
        self._workers: WorkerMetrics | None = None
        self._place = 0

    def join(self, workers: WorkerMetrics) -> None:
        """Serve the metrics of all workers from now on, labelled with the worker number."""
        self._workers, self._place = workers, workers.add(self._render_worker)

    def route(self, path: str) -> Route:
        """Return the route at a path; it answers GET and HEAD."""
        return Route(path, self.answer, methods=["GET"], include_in_schema=False)

    async def answer(self, request: Request) -> Response:
        """Answer a request."""
        if self._token and not self._has_token(request):
            return JSONResponse(
                {"error": "Send the token of the setting telemetry.metrics_token as a bearer."},
                status_code=401,
                headers={"www-authenticate": "Bearer"},
            )
        if not self._token and not self._is_local(request):
            return JSONResponse(
                {
                    "error": "Metrics are for this machine only. With the setting "
                    "telemetry.metrics_token, other machines can read them by that token."
                },
                status_code=403,
            )

        if self._workers is None:
            families = self._metrics.collect()  # on the event loop: gauges read its state
            text = await self._render(families, self._resource)
        else:
            text = await self._render_all(self._workers)
        return Response(text, media_type=CONTENT_TYPE, headers={"cache-control": "no-store"})

    async def _render(
        self,
        families: Sequence[Family],
        resource: Mapping[str, Any],
        labels: Mapping[str, Any] | None = None,
    ) -> str:

        return await call(render_metrics, families, resource, version=self._version, labels=labels)

    async def _render_worker(self) -> str:
        """Render the metrics of this worker, without `target_info`."""
        number = 0 if self._workers is None else self._workers.number
        return await self._render(self._metrics.collect(), {}, {"worker": number})

    async def _render_all(self, workers: WorkerMetrics) -> str:
        """Render the merged page of all responding workers, and which of them responded."""

        pages = await workers.collect(self._place)
        points = [Point({"worker": it}, float(page is not None)) for it, page in pages.items()]
        up = Family(semconv.METRICS[semconv.WORKER_UP], points)
        first = await self._render([up], self._resource)
        return await call(merge_pages, [first, *filter(None, pages.values())])

    def _has_token(self, request: Request) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and compare_digest(
            token.strip().encode("latin-1"), self._token
        )

    def _is_local(self, request: Request) -> bool:
        """Return True if the request comes from this machine, to one of its own names."""
        client, headers = request.client, request.headers
        if client is None or not is_loopback(client.host):
            return False
        return not (
            is_forwarded(headers)
            or is_from_other_page(headers)
            or self._guard.check_host(headers) is not None
        )


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
        for line in page.split("\n"):  # not `splitlines`: values may contain other line breaks
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
    text = text.encode(errors="replace").decode()  # lone surrogates cannot be encoded
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
