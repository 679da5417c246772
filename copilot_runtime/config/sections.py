"""The sections of the settings that the core has: access, proxies, models, speech; and origins."""

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
    """Return an origin as browsers send it. Raises `ValueError` for what none ever sends."""
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


def _normalize_host(text: str) -> str:
    """Return a host as a `Host` header has it, without a port. Raises `ValueError`."""
    if _HOST.fullmatch(text.lower()) is None:
        raise ValueError(
            f"{text!r} is not a host: write a name without scheme, port and path, as in "
            "app.example.com, *.example.com; or * for every host"
        )
    return text.lower()


def _normalize_hosts(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_normalize_host, texts))


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


class AdapterSettings(Section):
    """The model `copilot-runtime serve` talks to when it is not given a module."""

    name: str = Field(
        default="",
        description="Name in the table of adapters. Empty: openai if it has a key, else demo.",
    )
    options: Annotated[Mapping[str, Any], BeforeValidator(read_object)] = Field(
        default={},
        description="Arguments of the adapter, such as model; as JSON in the environment.",
        repr=False,  # it may hold a key
    )


class ParameterSettings(Section):
    """Parameters of the model, where a page asks for no others. Null means the adapter's own.

    There is no `tool_choice` that demands a call: with each result, it would demand the next.
    """

    model: str | None = Field(
        default=None, min_length=1, description="The model, if not the adapter's own."
    )
    temperature: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="How much chance is in an answer."
    )
    max_tokens: int | None = Field(
        default=None, gt=0, description="Longest answer, in the model's tokens."
    )
    stop: tuple[str, ...] | None = Field(default=None, description="Texts at which an answer ends.")
    tool_choice: Literal["auto", "none"] | None = Field(
        default=None, description="Whether the model may call tools."
    )
    parallel_tool_calls: bool | None = Field(
        default=None, description="Whether the model may call several tools at once."
    )
    top_p: float | None = Field(
        default=None, ge=0, le=1, description="Share of the likeliest tokens that count."
    )
    seed: int | None = Field(default=None, description="Seed for answers that can be repeated.")
    frequency_penalty: float | None = Field(
        default=None, allow_inf_nan=False, description="How much repeated tokens are avoided."
    )
    presence_penalty: float | None = Field(
        default=None, allow_inf_nan=False, description="How much known subjects are avoided."
    )
    reasoning_effort: Literal["minimal", "low", "medium", "high"] | None = Field(
        default=None, description="How long the model thinks."
    )
    response_schema: Mapping[str, Any] | None = Field(
        default=None, description="JSON schema of every answer; as JSON in the environment."
    )
    response_name: str | None = Field(
        default=None, min_length=1, description="The name of what the schema describes."
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
    """What turns speech into text, with the key and address of OpenAI's variables."""

    model: str = Field(
        default="",
        description="Its model. Empty: whisper-1 if there is a key for OpenAI. Or: none.",
    )
    base_url: str | None = Field(
        default=None, description="Its address, if it is not OPENAI_BASE_URL."
    )
    language: str | None = Field(
        default=None, description="ISO 639-1 code, if all recordings are in one language."
    )
