"""The REST endpoint `access` below the runtime's URL, for operators, and `access/whoami`."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from copilot_runtime.api.identity import SCOPES, Caller, Forbidden
from copilot_runtime.base.errors import NotFound
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.config.sections import ROLES
from copilot_runtime.extensions.access.api_keys.key import ApiKey
from copilot_runtime.extensions.access.limits.limiter import Limiter, LimitStatus
from copilot_runtime.extensions.access.limits.storage import StorageLimits
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.extensions.tracing.http.access import TraceAccess
from copilot_runtime.security.schemes import SchemeChain
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
                        "Only operators may read the access report of this server.",
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


_MOST_KEYS = 1_000


class AccessReport:
    """Reports the authentication schemes, roles, keys and limits of a server, without secrets."""

    def __init__(
        self,
        settings: Settings,
        *,
        schemes: SchemeChain | None = None,
        limiter: Limiter | None = None,
        storage: StorageLimits | None = None,
        has_hook: bool = False,
    ) -> None:
        self._settings = settings
        self._schemes = schemes
        self._meters = [meter for meter in (limiter, storage) if meter is not None]
        self._has_hook = has_hook

    @property
    def is_open(self) -> bool:
        """`True` if anonymous requests are accepted."""
        has_login = self._schemes is not None or self._has_hook
        return not has_login or (self._schemes is not None and self._settings.access.anonymous)

    async def describe_caller(self, caller: Caller, *, is_operator: bool) -> Mapping[str, Any]:
        """Return the identity, the scopes and the limit usage of a caller."""
        identity = caller.identity
        statuses = [
            status
            for meter in self._meters
            for status in await meter.list_statuses(identity, caller.user)
        ]
        return {
            "user": identity.user,
            "tenant": identity.tenant or None,
            "owner": caller.user,
            "roles": [*identity.roles],
            "unknown_roles": self._settings.access.list_unknown(identity.roles),
            "scopes": sorted(identity.permissions),
            "method": identity.method or None,
            "key": identity.key or None,
            "is_operator": is_operator,
            "limits": [describe_status(status) for status in statuses],
        }

    async def describe_server(self) -> Mapping[str, Any]:
        """Return the report for operators. Raises `StoreFailed`."""
        access = self._settings.access
        roles = {**ROLES, **access.roles}
        keys = await self._list_keys()
        return {
            "is_open": self.is_open,
            "ways": [*(self._schemes.names if self._schemes else ()), *self._name_hook()],
            "scopes": SCOPES,
            "roles": {name: sorted(access.find_scopes([name])) for name in roles},
            "default_roles": [*access.default_roles],
            "operators": [*self._settings.telemetry.operators],
            "limits": self._list_limits(),
            "audit": bool(self._settings.audit.file),
            "keys": [describe_key(key, time.time()) for key in keys[-_MOST_KEYS:]],
            "key_count": len(keys),
        }

    def _name_hook(self) -> Sequence[str]:
        return ["authenticate"] if self._has_hook else []

    async def _list_keys(self) -> Sequence[ApiKey]:
        if self._schemes is None or "api_keys" not in self._schemes.names:
            return ()
        from copilot_runtime.extensions.access.authentication.api_keys import ApiKeyScheme

        scheme = self._schemes.find_scheme(ApiKeyScheme)
        return await scheme.store.list_keys() if isinstance(scheme, ApiKeyScheme) else ()

    def _list_limits(self) -> Mapping[str, Any]:
        values = self._settings.limits.model_dump(exclude={"store"})
        return {
            name: [*value] if isinstance(value, tuple) else value
            for name, value in values.items()
            if value
        }


def describe_status(status: LimitStatus) -> Mapping[str, Any]:
    """Return the JSON of a limit's usage."""
    return {**status._asdict(), "seconds_left": round(status.seconds_left)}


def describe_key(key: ApiKey, now: float) -> Mapping[str, Any]:
    """Return the JSON of a key, without its hash."""
    fields = asdict(key)
    for name in ("salt", "hash", "id"):
        del fields[name]
    return {"prefix": key.prefix, **fields, "state": key.describe_state(now)}
