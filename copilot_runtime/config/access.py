"""The sections of the settings for authentication, roles, and proxies."""

from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from typing import Annotated, Any, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
)

from copilot_runtime.api.identity import SCOPES
from copilot_runtime.config.section import Section, Words, read_object

ROLES: Mapping[str, Sequence[str]] = {
    "operator": ("*",),
    "user": ("runs:start", "threads:read", "threads:write", "data:read", "data:write"),
    "reader": ("threads:read", "data:read"),
}
"""The built-in roles; `*` is every scope."""


def _check_roles(roles: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return roles with their scopes as lists. Raises `ValueError` for an unknown scope."""
    found: dict[str, Sequence[str]] = {}
    for name, value in roles.items():
        scopes = value.split(",") if isinstance(value, str) else value
        if not isinstance(scopes, list | tuple):
            raise ValueError(f"the role {name!r} is no list of scopes, such as [threads:read]")
        found[name] = check_scopes([str(scope).strip() for scope in cast("list[Any]", scopes)])
    return found


def check_scopes(scopes: Sequence[str]) -> Sequence[str]:
    """Return the scopes. Raises `ValueError` for an unknown one."""
    for scope in scopes:
        if scope != "*" and scope not in SCOPES:
            raise ValueError(f"{scope!r} is no scope: there are {', '.join(SCOPES)}, and *")
    return tuple(scopes)


def _check_networks(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        if text != "unix":
            try:
                ip_network(text)
            except ValueError as error:
                raise ValueError(
                    f"{error}: write an address or a network, such as 10.0.0.0/8, or unix"
                ) from None
    return texts


def _lower(text: str) -> str:
    return text.strip().lower()


Header = Annotated[str, AfterValidator(_lower)]


class AccessSettings(Section):
    """Authentication schemes, and the scopes of roles."""

    authenticate: Words = Field(
        default=(),
        description="How people and programs sign in: api_keys, jwt, proxy, service_tokens, or "
        "names of plugins. Empty: nobody has to.",
    )
    anonymous: bool = Field(
        default=False,
        description="Whether requests without a credential are answered: they are nobody's.",
    )
    roles: Annotated[
        Mapping[str, Any], BeforeValidator(read_object), AfterValidator(_check_roles)
    ] = Field(
        default={},
        description="Roles and their scopes, beside operator, user and reader; as JSON in the "
        "environment.",
    )
    default_roles: Words = Field(
        default=("user",), description="Roles of those whose credential names none."
    )

    @field_validator("default_roles")
    @classmethod
    def _check_default_roles(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if "roles" in info.data:  # else they are wrong themselves, which is said instead
            every = {**ROLES, **info.data["roles"]}
            if unknown := [name for name in names if name not in every]:
                raise ValueError(f"{unknown[0]!r} is no role: there are {', '.join(every)}")
        return names

    def find_scopes(self, roles: Sequence[str]) -> frozenset[str]:
        """Return the scopes of roles; an unknown role has none."""
        every = {**ROLES, **self.roles}
        scopes = {scope for role in roles for scope in every.get(role, ())}
        return frozenset(SCOPES) if "*" in scopes else frozenset(scopes)

    def list_unknown(self, roles: Sequence[str]) -> Sequence[str]:
        """Return the roles that are neither built in nor in the settings."""
        return [role for role in roles if role not in ROLES and role not in self.roles]


class ProxySettings(Section):
    """Reverse proxies, and those of them that authenticate users by headers."""

    addresses: Annotated[Words, AfterValidator(_check_networks)] = Field(
        default=(),
        description="Addresses and networks of proxies whose X-Forwarded-For is believed, such as "
        "10.0.0.0/8; unix for a socket.",
    )
    sign_in_addresses: Annotated[Words, AfterValidator(_check_networks)] = Field(
        default=(),
        description="Those of proxies that sign people in, and set the headers below themselves. "
        "Nobody else's count.",
    )
    user_header: Header = Field(
        default="x-forwarded-user", min_length=1, description="Header with the user's id."
    )
    tenant_header: Header = Field(default="", description="Header with the tenant. Empty: none.")
    roles_header: Header = Field(
        default="", description="Header with the roles, separated by commas. Empty: none."
    )

    @property
    def forwarders(self) -> tuple[str, ...]:
        """The addresses of all proxies that are trusted about the client's address."""
        return (*self.addresses, *self.sign_in_addresses)
