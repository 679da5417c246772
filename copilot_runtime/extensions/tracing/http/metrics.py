"""The Prometheus endpoint `/metrics`, for this machine or for clients with the token."""

from collections.abc import Mapping, Sequence
from hmac import compare_digest
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
from copilot_runtime.telemetry.worker_metrics import WorkerMetrics


class MetricsEndpoint:
    """Answers with the metrics of this process, or of all workers of the server if it is one.

    `resource` is what describes the server.

    With a `token`, only those who send it are answered; without one, programs of this machine are,
    and nobody for whom a proxy asks.
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
                    "telemetry.metrics_token, they are for whoever sends it."
                },
                status_code=403,
            )
        from copilot_runtime.extensions.tracing.prometheus import CONTENT_TYPE

        if self._workers is None:
            families = self._metrics.collect()  # here: the gauges look at what the loop changes
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
        from copilot_runtime.extensions.tracing.prometheus import render_metrics

        return await call(render_metrics, families, resource, version=self._version, labels=labels)

    async def _render_worker(self) -> str:
        """Render the metrics of this worker, without `target_info`."""
        number = 0 if self._workers is None else self._workers.number
        return await self._render(self._metrics.collect(), {}, {"worker": number})

    async def _render_all(self, workers: WorkerMetrics) -> str:
        """Render the merged page of all responding workers, and which of them responded."""
        from copilot_runtime.extensions.tracing.prometheus import merge_pages

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
