"""Who somebody is, what they may do, and under which name what is theirs is kept."""

import re
from collections.abc import Collection, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from copilot_runtime.base.errors import CopilotError

SCOPES = {
    "runs:start": "start runs, answer their questions, and stop them",
    "threads:read": "list and read their threads",
    "threads:write": "rename, archive and delete their threads",
    "data:read": "read knowledge, data, plans and events that are theirs",
    "data:write": "change knowledge, data, plans and events that are theirs",
    "operate": "read the traces, plans, limits and keys of everybody",
}
"""What may be allowed, and what it allows."""

OPERATE = "operate"
"""The only scope that reaches what belongs to others."""

USER_SCOPES = frozenset(SCOPES) - {OPERATE}
"""What somebody may do with what is theirs."""

TENANT_PREFIX = "tenant:"
"""How the owner of what belongs to a tenant begins; the id of no user may."""

SERVICE_METHOD = "service_token"
"""The only `method` of services. Whoever has another is a person, or a program of one."""

_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Forbidden(CopilotError):
    """Somebody is known, and may not do what they ask."""

    code = "FORBIDDEN"
    status_code = 403
    visibility = "banner"
    severity = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a credential belongs to. An `authenticate` hook may return one in place of an id.

    `user` is the id within the `tenant`: the same one in two tenants is two people. `roles` are
    names of the setting `access.roles`; without any, it is those of `access.default_roles`.
    `scopes` are what the credential is limited to; None is no limit but that of the roles.
    """

    user: str | None = None
    tenant: str = ""
    roles: Sequence[str] = ()
    scopes: Collection[str] | None = None
    method: str = ""
    """How they were recognised: `api_key`, `jwt`, `proxy`, `service_token`, or `hook`; where a
    service asks for them over gRPC, how that was."""
    key: str = ""
    """The id of their API key."""
    actor: str = ""
    """Who asks for them, if another does."""
    permissions: frozenset[str] = USER_SCOPES
    """What roles and scopes allow together: the server sets it."""
    address: str = ""
    """Where the request came from: the server sets it."""
    expires_at: float | None = None
    """When their credential expires, in seconds since 1970: what is open then is closed."""

    @property
    def owner(self) -> str | None:
        """To whom threads, plans, files and all else belong; None for nobody."""
        if not self.tenant:
            return self.user
        return f"{TENANT_PREFIX}{self.tenant}/{self.user or ''}"

    @property
    def is_service(self) -> bool:
        """Whether this is a service that has signed its request, and asks for itself."""
        return self.method == SERVICE_METHOD and not self.actor

    def allows(self, scope: str) -> bool:
        """Return whether they may do something, by its name in `SCOPES`."""
        return scope in self.permissions

    def require(self, scope: str) -> None:
        """Raise `Forbidden` unless they may do something."""
        if scope not in self.permissions:
            raise Forbidden(
                f"You may not do this: it needs the scope {scope!r}.",
                hint="access.roles says what a role allows, `copilot-runtime keys list` to which "
                "scopes a key is limited.",
            )


NOBODY = Identity()
"""Whoever has not signed in."""


_CURRENT: ContextVar[Identity] = ContextVar("CURRENT_IDENTITY", default=NOBODY)


def set_current_identity(identity: Identity) -> None:
    """Say who sends the request that is answered in this task, and in those that it begins."""
    _CURRENT.set(identity)


def get_current_identity() -> Identity:
    """Return who sends the request: a transport that forgets to say it changes nothing."""
    return _CURRENT.get()


def is_tenant(name: str) -> bool:
    """Return whether a text can be the name of a tenant."""
    return _TENANT.fullmatch(name) is not None


def split_owner(owner: str | None) -> tuple[str, str | None]:
    """Return the tenant and the user of an owner, as `Identity.owner` has put them together."""
    if owner is None or not owner.startswith(TENANT_PREFIX):
        return "", owner
    tenant, _, user = owner.removeprefix(TENANT_PREFIX).partition("/")
    return tenant, user or None
