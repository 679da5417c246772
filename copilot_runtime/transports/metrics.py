"""`/metrics`: what Prometheus reads, for this machine or for whoever has the token."""

from collections.abc import Mapping
from hmac import compare_digest
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from copilot_runtime.concurrency import call
from copilot_runtime.security.loopback import (
    LoopbackGuard,
    is_forwarded,
    is_from_other_page,
    is_loopback,
)
from copilot_runtime.telemetry.metrics import Metrics


class MetricsEndpoint:
    """Answers with the metrics of this process. `resource` is what describes it.

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
        from copilot_runtime.telemetry.prometheus import CONTENT_TYPE, render_metrics

        families = self._metrics.collect()  # here: the gauges look at what the loop changes
        text = await call(render_metrics, families, self._resource, version=self._version)
        return Response(text, media_type=CONTENT_TYPE, headers={"cache-control": "no-store"})

    def _has_token(self, request: Request) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and compare_digest(
            token.strip().encode("latin-1"), self._token
        )

    def _is_local(self, request: Request) -> bool:
        """Return whether a program of this machine asks, by a name of this machine."""
        client, headers = request.client, request.headers
        if client is None or not is_loopback(client.host):
            return False
        return not (
            is_forwarded(headers)
            or is_from_other_page(headers)
            or self._guard.check_host(headers) is not None
        )
