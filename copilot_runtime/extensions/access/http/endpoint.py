"""The REST endpoint `access` below the runtime's URL, for operators, and `access/whoami`."""

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from pydantic import ValidationError
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from copilot_runtime.api.identity import OPERATE, SCOPES, Caller, Forbidden
from copilot_runtime.base.errors import ConfigurationFailed, NotFound
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.config.sections import ROLES
from copilot_runtime.extensions.access.api_keys.issue import NewKey, describe_rights, make_key
from copilot_runtime.extensions.access.api_keys.key import PREFIX, ApiKey, KeyStore
from copilot_runtime.extensions.access.limits.limiter import Limiter, LimitStatus
from copilot_runtime.extensions.access.limits.storage import StorageLimits
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.extensions.tracing.http.access import TraceAccess
from copilot_runtime.security.schemes import SchemeChain
from copilot_runtime.threads.store import ThreadQuery
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Services, Transport, check_method

_PRIVATE = {"cache-control": "private, no-store", "x-content-type-options": "nosniff"}


class AccessEndpoint(Transport):
    """Handles `access`, `access/whoami`, `access/keys` and `access/users/{owner}/threads`."""

    paths = ("access", "access/{rest:path}")

    def __init__(self, services: Services) -> None:
        self._report = services.parts.get(AccessReport)
        self._traces = services.parts.get(TraceAccess)
        self._runs = services.runs

    async def accepts(self, request: Request) -> bool:
        return not request.is_websocket

    def routes(self, path: str, router: ASGIApp) -> Sequence[BaseRoute]:
        from copilot_runtime.extensions.access.http.rest import rest_routes  # brings FastAPI along

        return rest_routes(path, router)

    async def __call__(self, request: Request) -> None:
        match request.path.split("/")[1:]:
            case ["keys"]:
                check_method(request, "POST")
                await self._create_key(request)
            case ["keys", key]:
                check_method(request, "DELETE")
                await self._revoke_key(request, key)
            case ["users", owner, "threads"]:
                check_method(request, "DELETE")
                await self._delete_threads(request, unquote(owner))
            case ["whoami"]:
                check_method(request, "GET", "HEAD")
                is_operator = self._is_operator(request)
                found = await self._report.describe_caller(request.caller, is_operator=is_operator)
                await _respond(request, found)
            case []:
                check_method(request, "GET", "HEAD")
                if not self._is_operator(request):
                    raise Forbidden(
                        "Only operators may read the access report of this server.",
                        hint="They have the scope operate, or are named in telemetry.operators.",
                    )
                await _respond(request, await self._report.describe_server())
            case _:
                raise NotFound(f"There is nothing at {request.path[:100]!r}.")

    async def _create_key(self, request: Request) -> None:
        _check_operates(request, "keys.create")
        body = await request.json_object()
        key, text = self._report.make_key(body, request.caller.identity.permissions)
        request.subject = describe_rights(key)
        await self._report.find_keys().add(key)
        await _respond(request, {"key": text, **key.describe(time.time())}, status=201)

    async def _revoke_key(self, request: Request, id: str) -> None:
        _check_operates(request, "keys.revoke")
        keys, now = self._report.find_keys(), time.time()
        key = await keys.revoke(id.removeprefix(PREFIX), now)
        if key is None:
            raise NotFound(f"There is no key {id[:100]!r}.")
        request.subject = describe_rights(key)
        await _respond(request, key.describe(now))

    async def _delete_threads(self, request: Request, owner: str) -> None:
        """Delete the threads of a user, at most so many that the client sees progress."""
        _check_operates(request, "threads.delete")
        request.subject = f"all of {owner}"
        query = ThreadQuery(owner=owner, archived=True, limit=200)
        page = await self._runs.list(query)
        for thread in page.threads:
            with suppress(NotFound):  # its owner has deleted it meanwhile
                await self._runs.delete(thread.key)
        await _respond(
            request, {"deleted": len(page.threads), "more": page.next_cursor is not None}
        )

    def _is_operator(self, request: Request) -> bool:
        return self._traces.allows(request.scope, request.headers, request.caller)


def _check_operates(request: Request, action: str) -> None:
    """Raise `Forbidden` without the scope `operate`; to be named in a setting is not enough."""
    request.action = action
    if not request.caller.identity.allows(OPERATE):
        raise Forbidden("You may not do this: it needs the scope 'operate'.")


async def _respond(request: Request, value: Mapping[str, Any], status: int = 200) -> None:
    body = b"" if request.method == "HEAD" else dumps(value)
    await request.respond(status, body, headers=_PRIVATE)


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
            "keys": [key.describe(time.time()) for key in keys[-_MOST_KEYS:]],
            "key_count": len(keys),
        }

    def _name_hook(self) -> Sequence[str]:
        return ["authenticate"] if self._has_hook else []

    def find_keys(self) -> KeyStore:
        """Return the store of keys. Raises `ConfigurationFailed` if this server accepts none."""
        if self._schemes is not None and "api_keys" in self._schemes.names:
            from copilot_runtime.extensions.access.authentication.api_keys import ApiKeyScheme

            scheme = self._schemes.find_scheme(ApiKeyScheme)
            if isinstance(scheme, ApiKeyScheme):
                return scheme.store
        raise ConfigurationFailed(
            "This server takes no API keys.", hint="Set access.authenticate: [api_keys]."
        )

    def make_key(self, body: JsonObject, permissions: Collection[str]) -> tuple[ApiKey, str]:
        """Return a new key of the fields in a body, and its text.

        Raises `ConfigurationFailed`, and `Forbidden` for one that may do more than its maker.
        """
        try:
            new = NewKey.model_validate(body)
        except ValidationError as error:
            wrong = error.errors()[0]
            place = ".".join(map(str, wrong["loc"]))
            raise ConfigurationFailed(f"The key was not made: {place}: {wrong['msg']}.") from None
        key, text = make_key(self._settings, new, time.time())
        rights = self._settings.access.find_scopes(key.roles)
        if key.scopes is not None and "*" not in key.scopes:  # which is all that the roles allow
            rights = rights & {*key.scopes}
        if beyond := sorted(rights - {*permissions}):
            raise Forbidden(f"You may not give what you do not have: {', '.join(beyond)}.")
        return key, text

    async def _list_keys(self) -> Sequence[ApiKey]:
        try:
            return await self.find_keys().list_keys()
        except ConfigurationFailed:
            return ()

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
