"""Who may read traces: operators. The only place that decides it.

A trace tells what other people do here. So it is not enough to have come in: the setting
`telemetry.operators` names the users who may read all of them, beside those with the scope
`operate`. Where nobody signs in, that is
whoever sits at the machine, and opens the page at `/`: a request that came from this machine, asks
for it by one of its own names, comes through no proxy, and from no page of another origin.
"""

from collections.abc import Collection, Mapping
from typing import Any

from starlette.types import Scope

from copilot_runtime.api.caller import Caller
from copilot_runtime.api.identity import OPERATE
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
    """Traces are for operators, and nobody else learns whether there are any."""

    code = "FORBIDDEN"
    status_code = 403
    visibility = "banner"


class TraceAccess:
    """Decides about requests for traces, and has the traces for those who may read them."""

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
        """Whether there is anybody at all who may read traces."""
        if not self._has_users:
            return self._has_console
        return bool(self._operators) or self._has_roles

    def allows(self, scope: Scope, headers: Mapping[str, str], caller: Caller) -> bool:
        """Return whether a request may read traces."""
        if self._has_users:
            return caller.identity.allows(OPERATE) or caller.user in self._operators
        return self._has_console and self._is_local(scope, headers)

    def require(self, scope: Scope, headers: Mapping[str, str], caller: Caller) -> None:
        """Raise `TracesForbidden` for a request that may not read traces."""
        if not self.allows(scope, headers, caller):
            raise TracesForbidden(
                "Traces are for operators of this server.",
                hint="The setting telemetry.operators names them; where nobody signs in, the page "
                "at / on this machine may read traces.",
            )

    def find_store(self) -> TraceStore:
        """Return where traces are kept. Raises `NotFound` with the way out, if nowhere."""
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
