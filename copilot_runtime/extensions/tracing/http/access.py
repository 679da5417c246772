"""Authorization for traces: only operators may read them, and only this module decides it.

Traces show what other users do, so being authenticated is not enough: the setting
`telemetry.operators` names the users who may read all traces, beside those with the scope
`operate`. Without authentication, the operator is the user of this machine who opens the page at
`/`: the request comes from this machine, to one of its own names, through no proxy, and from no
page of another origin.
"""

from collections.abc import Collection, Mapping
from typing import Any

from starlette.types import Scope

from copilot_runtime.api.identity import OPERATE, Caller
from copilot_runtime.base.errors import CopilotError, NotFound
from copilot_runtime.extensions.tracing.store.store import TraceStore
from copilot_runtime.security.loopback import (
    LoopbackGuard,
    is_elsewhere,
    is_forwarded,
    is_from_other_page,
    is_loopback,
)
from copilot_runtime.telemetry.telemetry import Telemetry


class TracesForbidden(CopilotError):
    """The caller is not an operator. The error does not reveal whether there are traces."""

    code = "FORBIDDEN"
    status_code = 403
    visibility = "banner"


class TraceAccess:
    """Authorizes requests for traces, and gives access to the trace store."""

    def __init__(
        self,
        telemetry: Telemetry,
        *,
        operators: Collection[str] = (),
        has_users: bool,
        has_roles: bool = False,
        has_console: bool,
        guard: LoopbackGuard,
    ) -> None:
        self.telemetry = telemetry
        self._operators = frozenset(operators)
        self._has_users = has_users
        self._has_roles = has_roles
        self._has_console = has_console
        self._guard = guard

    @property
    def may_allow(self) -> bool:
        """True if any caller could be allowed to read traces."""
        if not self._has_users:
            return self._has_console
        return bool(self._operators) or self._has_roles

    def allows(self, scope: Scope, headers: Mapping[str, str], caller: Caller) -> bool:
        """Return True if a request may read traces."""
        if self._has_users:
            return caller.identity.allows(OPERATE) or caller.user in self._operators
        return self._has_console and self._is_local(scope, headers)

    def require(self, scope: Scope, headers: Mapping[str, str], caller: Caller) -> None:
        """Raise `TracesForbidden` for a request that may not read traces."""
        if not self.allows(scope, headers, caller):
            raise TracesForbidden(
                "Traces are for operators of this server.",
                hint="The setting telemetry.operators names them; without authentication, the page "
                "at / on this machine may read traces.",
            )

    def find_store(self) -> TraceStore:
        """Return the trace store. Raises `NotFound`, with a hint, if there is none."""
        store: Any = getattr(self.telemetry, "store", None)
        if isinstance(store, TraceStore):
            return store
        raise NotFound(
            "This server keeps no traces: set telemetry.store to memory or sqlite:traces.db, and "
            "telemetry.enabled to true."
        )

    def _is_local(self, scope: Scope, headers: Mapping[str, str]) -> bool:
        client = scope.get("client")
        is_near = self._guard.applies(scope) or (client and is_loopback(client[0]))
        return bool(
            is_near
            and not (client and is_elsewhere(client[0]))
            and not is_forwarded(headers)
            and not is_from_other_page(headers)
            and self._guard.is_own_name(headers.get("host", ""))
            and headers.get("origin", "").partition("://")[2] in ("", headers.get("host"))
        )
