"""The settings sections of API keys, JWTs, service tokens, the audit log and limits."""

import re
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    model_validator,
)

from copilot_runtime.config.checks import check_key, check_secrets, check_store_url
from copilot_runtime.config.section import SecondsOrNone, Section, Words
from copilot_runtime.config.sections import Header

_STORE = r"(sqlite:.|postgres(ql)?://.)"


_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "HS256", "HS384", "HS512"),
)


def _check_algorithms(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in _ALGORITHMS:
            raise ValueError(f"{name!r} is not accepted: there are {', '.join(_ALGORITHMS)}")
    return names


class ApiKeySettings(Section):
    """API keys for programs, created by `copilot-runtime operate keys create`."""

    store: Annotated[
        str,
        Field(pattern=f"^({_STORE}.*)?$"),
        AfterValidator(check_store_url),
    ] = Field(
        default="",
        description="Store of keys and used service tokens: sqlite:PATH or postgresql://... "
        "Empty: access.db beside the threads, or their database.",
        repr=False,  # it may hold a password
    )
    header: Header = Field(
        default="x-api-key", description="Header for a key, besides authorization."
    )


class JwtSettings(Section):
    """Signed tokens of an identity provider (OpenID Connect), or of the operator's application."""

    issuer: str = Field(
        default="",
        description="Required claim iss. Keys are found by OpenID Connect discovery.",
    )
    jwks: str = Field(
        default="",
        description="URL or file of the keys (JWKS). Empty: the URL that the issuer publishes.",
    )
    audience: Words = Field(
        default=(),
        description="Accepted values of the claim aud; a token needs one.",
    )
    algorithms: Annotated[Words, AfterValidator(_check_algorithms)] = Field(
        default=("RS256", "ES256", "EdDSA"), description="Accepted algorithms."
    )
    secret: Annotated[str, AfterValidator(check_key)] = Field(
        default="",
        description="Shared key of an HMAC algorithm, which algorithms must name, such as HS256.",
        repr=False,
    )
    leeway: SecondsOrNone = Field(default=30, description="Tolerated clock difference, in seconds.")
    keys_ttl: SecondsOrNone = Field(
        default=3600, description="Seconds after which keys are fetched again."
    )
    user_claim: str = Field(default="sub", min_length=1, description="Claim with the user's id.")
    tenant_claim: str = Field(default="", description="Claim with the tenant, such as org_id.")
    roles_claim: str = Field(
        default="roles", description="Claim with the roles; a dotted path selects a nested value."
    )
    scopes_claim: str = Field(default="", description="Claim with the scopes that limit a token.")

    @model_validator(mode="after")
    def _fit(self) -> "JwtSettings":
        shared = [name for name in self.algorithms if name.startswith("HS")]
        if shared and not self.secret:
            raise ValueError(f"{shared[0]} needs jwt.secret")
        if self.secret and not shared:
            raise ValueError("jwt.secret is set: name HS256 in jwt.algorithms")
        return self


class ServiceTokenSettings(Section):
    """Tokens with which the operator's services authenticate to each other."""

    secrets: Annotated[Words, AfterValidator(check_secrets)] = Field(
        default=(),
        description="Secrets of 32 characters or more; the first one signs, all are accepted.",
        repr=False,
    )
    form: Literal["bound", "simple"] = Field(
        default="bound",
        description="Whether a token is good once, for one method and body (bound), or for all "
        "requests (simple), as in Copilot-LD.",
    )
    lifetime: Annotated[float, Field(gt=0, le=3600)] = Field(
        default=60, description="Seconds a token is good."
    )
    roles: Words = Field(default=("user",), description="Roles of services.")


class AuditSettings(Section):
    """The audit log."""

    file: str = Field(
        default="",
        description="File of the log, such as .copilot/audit.jsonl. Empty: none.",
    )
    reads: bool = Field(default=False, description="Whether reads are recorded.")
    content: bool = Field(
        default=False, description="Whether questions are recorded with their text."
    )
    key: Annotated[str, AfterValidator(check_key)] = Field(
        default="",
        description="HMAC key of the audit log, 32 bytes or more. Without it, whoever may "
        "write can forge the log.",
        repr=False,
    )
    max_bytes: Annotated[int, Field(ge=4096)] = Field(
        default=50 * 1024 * 1024, description="Size at which the file is rotated."
    )
    max_files: Annotated[int, Field(ge=1)] = Field(
        default=20, description="Most files; the oldest are deleted."
    )


_RATE = re.compile(
    r"(?P<amount>\d{1,15}(\.\d{1,6})?)\s*(/|per\s)\s*(?P<count>\d{1,6}\s*)?"
    r"(?P<unit>second|minute|hour|day|week|month)s?"
)
_SECONDS = {
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86_400,
    "week": 604_800,
    "month": 2_592_000,
}


def parse_rate(text: str) -> tuple[float, int]:
    """Parse a rate such as `100/minute` or `5 per 2 hours` into an amount and seconds.

    Raises `ValueError`.
    """
    found = _RATE.fullmatch(text.strip().lower())
    amount = float(found["amount"]) if found else 0.0
    seconds = int(found["count"] or 1) * _SECONDS[found["unit"]] if found else 0
    if not amount or not seconds:
        raise ValueError(
            f"{text!r} is no rate: write 100/minute, 5000/day or 2/10 seconds; there are "
            f"{', '.join(_SECONDS)}"
        )
    return amount, seconds


def _check_rates(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        parse_rate(text)
    return texts


def _check_counts(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        if not parse_rate(text)[0].is_integer():
            raise ValueError(f"{text!r} has a fraction: only whole ones are counted")
    return texts


Rates = Annotated[Words, AfterValidator(_check_rates)]
Counts = Annotated[Words, AfterValidator(_check_rates), AfterValidator(_check_counts)]
AtOnce = Annotated[int, Field(ge=0)]


class LimitSettings(Section):
    """Limits per user, tenant and key. Anonymous callers are counted by their address."""

    store: Annotated[
        str,
        Field(pattern=r"^(memory|(async\+)?rediss?(\+\w+)?://.+|unix://.+)$"),
        AfterValidator(check_store_url),
    ] = Field(
        default="memory",
        description="Store of the counters: memory (per process), or redis://... (shared).",
        repr=False,  # it may hold a password
    )
    requests_per_user: Counts = Field(
        default=(), description="Requests per user, such as 120/minute, 5000/day."
    )
    requests_per_tenant: Counts = Field(default=(), description="Requests per tenant.")
    requests_per_key: Counts = Field(default=(), description="Requests per API key.")
    runs_per_user: Counts = Field(
        default=(),
        description="Runs per user, such as 5/minute. Continuations after a browser action or an "
        "approval are not counted.",
    )
    runs_per_tenant: Counts = Field(default=(), description="Runs per tenant.")
    runs_per_key: Counts = Field(default=(), description="Runs per API key.")
    runs_at_once_per_user: AtOnce = Field(
        default=0, description="Concurrent runs per user; 0 for no limit."
    )
    runs_at_once_per_tenant: AtOnce = Field(
        default=0, description="Concurrent runs per tenant; 0 for no limit."
    )
    runs_at_once_per_key: AtOnce = Field(
        default=0, description="Concurrent runs per API key; 0 for no limit."
    )
    storage_per_user: AtOnce = Field(
        default=0,
        description="Bytes a user may store: conversations, files and saved data. Callers "
        "without a sign-in are one user. 0 for no limit.",
    )
    storage_per_tenant: AtOnce = Field(
        default=0, description="Bytes of a tenant's users together; 0 for no limit."
    )
    thread_streams_per_user: AtOnce = Field(
        default=20,
        description="Concurrent thread subscriptions per user and process; 0 for no limit.",
    )
    tokens_per_user: Counts = Field(
        default=(), description="Model tokens per user, such as 200000/day."
    )
    tokens_per_tenant: Counts = Field(default=(), description="Model tokens per tenant.")
    tokens_per_key: Counts = Field(default=(), description="Model tokens per API key.")
    dollars_per_user: Rates = Field(
        default=(), description="Model cost per user in US dollars, such as 2.50/day."
    )
    dollars_per_tenant: Rates = Field(
        default=(), description="Model cost per tenant in US dollars."
    )
    dollars_per_key: Rates = Field(default=(), description="Model cost per API key in US dollars.")

    def find_longest(self) -> int:
        """Return the longest window of all limits in seconds, or 0 without limits."""
        rates = [value for _, value in self if isinstance(value, tuple)]
        return max((parse_rate(text)[1] for texts in rates for text in texts), default=0)
