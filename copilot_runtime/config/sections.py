"""The settings sections of the core: access, proxies, models, speech; and origins."""

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from typing import Annotated, Any, Literal, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
)

from copilot_runtime.api.identity import SCOPES
from copilot_runtime.config.section import Section, Words, read_object, split_words

_ORIGIN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(:(?P<port>\d{1,5}))?/?"
)
_HOST = re.compile(r"\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")
_USUAL_PORTS = {("http", "80"), ("https", "443")}


def _normalize_origin(text: str) -> str:
    """Return an origin as browsers send it. Raises `ValueError` if it is malformed."""
    if text in ("*", "auto"):
        return text
    found = _ORIGIN.fullmatch(text.lower())
    if found is None:
        raise ValueError(
            f"{text!r} is not an origin: write scheme://host or scheme://host:port, without a path "
            "or a pattern, as in https://app.example.com, http://localhost:3000; "
            "or * for every origin; or auto"
        )
    scheme, host, port = found["scheme"], found["host"], found["port"]
    is_usual = port is None or (scheme, port) in _USUAL_PORTS
    return f"{scheme}://{host}" if is_usual else f"{scheme}://{host}:{port}"


def normalize_host(text: str) -> str:
    """Return a host as in a `Host` header without port. Raises `ValueError` if it is malformed."""
    if _HOST.fullmatch(text.lower()) is None:
        raise ValueError(
            f"{text!r} is not a host: write a name without scheme, port and path, as in "
            "app.example.com, *.example.com; or * for every host"
        )
    return text.lower()


def _normalize_hosts(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(normalize_host, texts))


def _normalize_origins(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_normalize_origin, texts))


Origins = Annotated[Words, AfterValidator(_normalize_origins)]
Hosts = Annotated[Words, AfterValidator(_normalize_hosts)]


ROLES: Mapping[str, Sequence[str]] = {
    "operator": ("*",),
    "user": ("runs:start", "threads:read", "threads:write", "data:read", "data:write"),
    "reader": ("threads:read", "data:read"),
}
"""The built-in roles; `*` is every scope."""


def _check_roles(roles: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return roles with lists of scopes. Raises `ValueError` for an unknown scope."""
    found: dict[str, Sequence[str]] = {}
    for name, value in roles.items():
        scopes = value.split(",") if isinstance(value, str) else value
        if not isinstance(scopes, list | tuple):
            raise ValueError(f"the role {name!r} is not a list of scopes such as [threads:read]")
        found[name] = check_scopes([str(scope).strip() for scope in cast("list[Any]", scopes)])
    return found


def check_scopes(scopes: Sequence[str]) -> Sequence[str]:
    """Return the scopes. Raises `ValueError` if one is unknown."""
    for scope in scopes:
        if scope != "*" and scope not in SCOPES:
            raise ValueError(f"{scope!r} is not a scope; known scopes: {', '.join(SCOPES)}, *")
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
        description="Ways to sign in: api_keys, jwt, proxy, service_tokens, or plugins. Empty: "
        "no authentication.",
    )
    anonymous: bool = Field(
        default=False,
        description="Whether requests without a credential are accepted.",
    )
    roles: Annotated[
        Mapping[str, Any], BeforeValidator(read_object), AfterValidator(_check_roles)
    ] = Field(
        default={},
        description="Roles and their scopes, besides operator, user and reader.",
    )
    default_roles: Words = Field(
        default=("user",), description="Roles of callers whose credential has none."
    )

    @field_validator("default_roles")
    @classmethod
    def _check_default_roles(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if "roles" in info.data:  # else the roles are invalid, which is reported instead
            every = {**ROLES, **info.data["roles"]}
            if unknown := [name for name in names if name not in every]:
                raise ValueError(f"{unknown[0]!r} is not a role; known roles: {', '.join(every)}")
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
    """Reverse proxies, and the headers by which some of them authenticate users."""

    addresses: Annotated[Words, AfterValidator(_check_networks)] = Field(
        default=(),
        description="Proxies whose X-Forwarded-For is trusted: addresses, networks such as "
        "10.0.0.0/8, or unix for a socket.",
    )
    sign_in_addresses: Annotated[Words, AfterValidator(_check_networks)] = Field(
        default=(),
        description="Proxies that sign users in by the headers below, which are ignored from "
        "others.",
    )
    user_header: Header = Field(
        default="x-forwarded-user", min_length=1, description="Header with the user's id."
    )
    tenant_header: Header = Field(default="", description="Header with the tenant.")
    roles_header: Header = Field(
        default="", description="Header with the roles, separated by commas."
    )

    @property
    def forwarders(self) -> tuple[str, ...]:
        """The addresses of all proxies whose `X-Forwarded-For` is trusted."""
        return (*self.addresses, *self.sign_in_addresses)


class AdapterSettings(Section):
    """The model of `copilot-runtime serve` without a target module."""

    name: str = Field(
        default="",
        description="Name of the adapter. Empty: openai if it has a key, else demo.",
    )
    options: Annotated[Mapping[str, Any], BeforeValidator(read_object)] = Field(
        default={},
        description="Its arguments, such as model.",
        repr=False,  # it may hold a key
    )


class ParameterSettings(Section):
    """Default parameters of the model, which a page may override. Null means the adapter's default.

    `tool_choice` cannot require a call: the model would then call a tool again after each result.
    """

    model: str | None = Field(
        default=None, min_length=1, description="Model, if not the adapter's default."
    )
    temperature: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="Sampling temperature."
    )
    max_tokens: int | None = Field(default=None, gt=0, description="Longest answer, in tokens.")
    stop: tuple[str, ...] | None = Field(default=None, description="Stop sequences.")
    tool_choice: Literal["auto", "none"] | None = Field(
        default=None, description="Whether the model may call tools."
    )
    parallel_tool_calls: bool | None = Field(
        default=None, description="Whether the model may call several tools at once."
    )
    top_p: float | None = Field(default=None, ge=0, le=1, description="Nucleus sampling threshold.")
    seed: int | None = Field(default=None, description="Seed for reproducible answers.")
    frequency_penalty: float | None = Field(
        default=None, allow_inf_nan=False, description="Penalty for frequent tokens."
    )
    presence_penalty: float | None = Field(
        default=None, allow_inf_nan=False, description="Penalty for tokens already used."
    )
    reasoning_effort: Literal["minimal", "low", "medium", "high"] | None = Field(
        default=None, description="Reasoning effort of the model."
    )
    response_schema: Mapping[str, Any] | None = Field(
        default=None, description="JSON schema of every answer."
    )
    response_name: str | None = Field(
        default=None, min_length=1, description="Name of the response schema."
    )

    @field_validator("stop", mode="before")
    @classmethod
    def _list_of_texts(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else split_words(value)

    @field_validator("response_schema", mode="before")
    @classmethod
    def _json_object(cls, value: Any) -> Any:
        return read_object(value)


class TranscriptionSettings(Section):
    """Speech-to-text; the key and the default URL are those of OpenAI's variables."""

    model: str = Field(
        default="",
        description="Speech-to-text model, or none. Empty: whisper-1 if there is an OpenAI key.",
    )
    base_url: str | None = Field(
        default=None, description="URL of its server, if not OPENAI_BASE_URL."
    )
    language: str | None = Field(
        default=None, description="Language of all recordings, as ISO 639-1 code."
    )
