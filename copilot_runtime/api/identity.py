"""Callers and their identities: user, tenant, permissions, and the owner key of their data."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.telemetry.context import SpanContext

SCOPES = {
    "runs:start": "start runs, answer their questions, and stop them",
    "threads:read": "list and read their threads",
    "threads:write": "rename, archive and delete their threads",
    "data:read": "read knowledge, data, plans and events that are theirs",
    "data:write": "change knowledge, data, plans and events that are theirs",
    "operate": "read the traces, plans, limits and keys of all users",
}
"""Scopes, and what each permits."""

OPERATE = "operate"
"""The only scope that grants access to data of other users."""

USER_SCOPES = frozenset(SCOPES) - {OPERATE}
"""The scopes for a user's own data."""

TENANT_PREFIX = "tenant:"
"""The prefix of owner keys of tenants; user ids must not start with it."""

SERVICE_METHOD = "service_token"
"""The `method` of services; every other method identifies a user."""

_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Forbidden(CopilotError):
    """The caller is authenticated, but lacks the permission."""

    code = "FORBIDDEN"
    status_code = 403
    visibility = "banner"
    severity = "warning"


@dataclass(frozen=True, kw_only=True)  # no slots, for `copy_with`
class Identity:
    """The identity behind a credential. An `authenticate` hook may return one instead of a user id.

    `user` is unique within its `tenant`. `roles` are names of the setting `access.roles`; if empty,
    those of `access.default_roles` apply. `scopes` restrict the credential; None means no
    restriction beyond the roles.
    """

    user: str | None = None
    tenant: str = ""
    roles: Sequence[str] = ()
    scopes: Collection[str] | None = None
    method: str = ""
    """The authentication method: `api_key`, `jwt`, `proxy`, `service_token`, or `hook`; for a
    service that acts for a user over gRPC, the method of the service."""
    key: str = ""
    """The id of the API key, if one was used."""
    actor: str = ""
    """The service that acts for the user, if any."""
    permissions: frozenset[str] = USER_SCOPES
    """The effective scopes of roles and credential; set by the server."""
    address: str = ""
    """The client's address; set by the server."""
    expires_at: float | None = None
    """Expiry of the credential, in Unix seconds; open connections are closed then."""

    @property
    def owner(self) -> str | None:
        """The owner key of threads, plans and files; None for anonymous callers."""
        if not self.tenant:
            return self.user
        return f"{TENANT_PREFIX}{self.tenant}/{self.user or ''}"

    @property
    def is_service(self) -> bool:
        """Whether this is a service that acts for itself, not for a user."""
        return self.method == SERVICE_METHOD and not self.actor

    def allows(self, scope: str) -> bool:
        """Return whether a scope is granted."""
        return scope in self.permissions

    def require(self, scope: str) -> None:
        """Raise `Forbidden` unless a scope is granted."""
        if scope not in self.permissions:
            raise Forbidden(
                f"You may not do this: it needs the scope {scope!r}.",
                hint="access.roles says what a role allows, `copilot-runtime operate keys list` "
                "to which scopes a key is limited.",
            )


ANONYMOUS = Identity()
"""The identity of unauthenticated callers."""


_CURRENT: ContextVar[Identity] = ContextVar("CURRENT_IDENTITY", default=ANONYMOUS)


def set_current_identity(identity: Identity) -> None:
    """Set the identity of the current task and its child tasks."""
    _CURRENT.set(identity)


def get_current_identity() -> Identity:
    """Return the identity of the current task's request, even if the transport does not pass it."""
    return _CURRENT.get()


def is_tenant(name: str) -> bool:
    """Return whether a text is a valid tenant name."""
    return _TENANT.fullmatch(name) is not None


def split_owner(owner: str | None) -> tuple[str, str | None]:
    """Split an owner key (`Identity.owner`) into tenant and user."""
    if owner is None or not owner.startswith(TENANT_PREFIX):
        return "", owner
    tenant, _, user = owner.removeprefix(TENANT_PREFIX).partition("/")
    return tenant, user or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of a request: `user` owns the created data, `identity` has the permissions.

    The other fields are those of `RunInput`.
    """

    user: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    url: str | None = None
    parent: SpanContext | None = field(default=None, repr=False, compare=False)
    identity: Identity = field(default=ANONYMOUS, compare=False)

    def merge_properties(self, properties: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Return the operator's properties, overridden by those of a request."""
        return {**self.properties, **(properties or {})}


SelectNames = Callable[[Sequence[str], str | None], Awaitable[Sequence[str]]]
"""Returns the subset of some names that a user may use; the user is None if anonymous."""
