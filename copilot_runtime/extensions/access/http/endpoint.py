"""The REST endpoint `access` below the runtime's URL, for operators, and `access/whoami`."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from copilot_runtime.api.identity import Forbidden
from copilot_runtime.base.errors import NotFound
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.access.http.report import AccessReport
from copilot_runtime.extensions.tracing.http.access import TraceAccess
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Services, Transport, check_method

_PRIVATE = {"cache-control": "private, no-store", "x-content-type-options": "nosniff"}


class AccessEndpoint(Transport):
    """Handles `access` and `access/whoami`."""

    paths = ("access", "access/{rest:path}")

    def __init__(self, services: Services) -> None:
        self._report = services.parts.get(AccessReport)
        self._traces = services.parts.get(TraceAccess)

    async def accepts(self, request: Request) -> bool:
        return not request.is_websocket

    def routes(self, path: str, router: ASGIApp) -> Sequence[BaseRoute]:
        """Return the routes for the OpenAPI document."""
        from copilot_runtime.extensions.access.http.rest import rest_routes  # brings FastAPI along

        return rest_routes(path, router)

    async def __call__(self, request: Request) -> None:
        check_method(request, "GET", "HEAD")
        match request.path.split("/")[1:]:
            case ["whoami"]:
                is_operator = self._is_operator(request)
                found = await self._report.describe_caller(request.caller, is_operator=is_operator)
                await _respond(request, found)
            case []:
                if not self._is_operator(request):
                    raise Forbidden(
                        "Who may do what is for operators of this server.",
                        hint="They have the scope operate, or are named in telemetry.operators.",
                    )
                await _respond(request, await self._report.describe_server())
            case _:
                raise NotFound(f"There is nothing at {request.path[:100]!r}.")

    def _is_operator(self, request: Request) -> bool:
        return self._traces.allows(request.scope, request.headers, request.caller)


async def _respond(request: Request, value: Mapping[str, Any]) -> None:
    body = b"" if request.method == "HEAD" else dumps(value)
    await request.respond(200, body, headers=_PRIVATE)
