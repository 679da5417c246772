"""The sections of the settings for API keys, tokens of identity providers, and services."""

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
    """API keys for programs, created by `copilot-runtime keys create`."""

    store: Annotated[
        str,
        Field(pattern=f"^({_STORE}.*)?$"),
        AfterValidator(check_store_url),
    ] = Field(
        default="",
        description="Where keys, and used tokens of services, are: sqlite:PATH or postgresql://... "
        "Empty: access.db beside the threads, or their database.",
        repr=False,  # it may hold a password
    )
    header: Header = Field(
        default="x-api-key", description="Header that may have a key, beside authorization."
    )


class JwtSettings(Section):
    """Signed tokens of an identity provider (OpenID Connect), or of an application of yours."""

    issuer: str = Field(
        default="",
        description="The claim iss of tokens; their keys are found below it by OpenID Connect.",
    )
    jwks: str = Field(
        default="",
        description="URL or file of the keys (JWKS), relative to the working directory. Empty: "
        "what the issuer says.",
    )
    audience: Words = Field(
        default=(), description="Values of the claim aud that are accepted: at least one of them."
    )
    algorithms: Annotated[Words, AfterValidator(_check_algorithms)] = Field(
        default=("RS256", "ES256", "EdDSA"), description="Algorithms that are accepted."
    )
    secret: Annotated[str, AfterValidator(check_key)] = Field(
        default="",
        description="Key of tokens with HS256, which is then all that has to be in algorithms.",
        repr=False,
    )
    leeway: SecondsOrNone = Field(
        default=30, description="Seconds by which clocks may differ for exp, nbf and iat."
    )
    keys_ttl: SecondsOrNone = Field(
        default=3600, description="Seconds after which keys of a URL are read again."
    )
    user_claim: str = Field(default="sub", min_length=1, description="Claim with the user's id.")
    tenant_claim: str = Field(
        default="", description="Claim with the tenant, such as org_id. Empty: there are none."
    )
    roles_claim: str = Field(
        default="roles", description="Claim with the roles; dots lead into objects."
    )
    scopes_claim: str = Field(
        default="", description="Claim that limits the token to scopes of ours. Empty: none does."
    )

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
        description="Whether a token is for one method and one body, once; simple: for all, as in "
        "Copilot-LD.",
    )
    lifetime: Annotated[float, Field(gt=0, le=3600)] = Field(
        default=60, description="Seconds for which a token is good."
    )
    roles: Words = Field(default=("user",), description="Roles of services.")


class AuditSettings(Section):
    """The audit log."""

    file: str = Field(
        default="",
        description="File of the audit log, such as .copilot/audit.jsonl. Empty: none is written.",
    )
    reads: bool = Field(default=False, description="Whether read requests are recorded as well.")
    content: bool = Field(
        default=False, description="Whether questions are written down with their text."
    )
    key: Annotated[str, AfterValidator(check_key)] = Field(
        default="",
        description="Key of the hashes that chain the lines, 32 bytes or more: without it, whoever "
        "may write the file may write it anew.",
        repr=False,
    )
    max_bytes: Annotated[int, Field(ge=4096)] = Field(
        default=50 * 1024 * 1024, description="Size at which the next file is begun."
    )
    max_files: Annotated[int, Field(ge=1)] = Field(
        default=20, description="Files that are kept; the oldest one is deleted."
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
    """Limits of users, tenants and keys. Anonymous callers are counted by their address."""

    store: Annotated[
        str,
        Field(pattern=r"^(memory|(async\+)?rediss?(\+\w+)?://.+|unix://.+)$"),
        AfterValidator(check_store_url),
    ] = Field(
        default="memory",
        description="Where is counted: memory, of each process; redis://... for all together.",
        repr=False,  # it may hold a password
    )
    requests_per_user: Counts = Field(
        default=(), description="Requests of a user, such as 120/minute, 5000/day."
    )
    requests_per_tenant: Counts = Field(default=(), description="Requests of all of a tenant.")
    requests_per_key: Counts = Field(default=(), description="Requests with one API key.")
    runs_per_user: Counts = Field(
        default=(),
        description="Questions of a user, such as 5/minute: runs, but not what goes on "
        "with one after a browser action or an approval.",
    )
    runs_per_tenant: Counts = Field(default=(), description="Questions of all of a tenant.")
    runs_per_key: Counts = Field(default=(), description="Questions with one API key.")
    runs_at_once_per_user: AtOnce = Field(
        default=0, description="Runs of a user at one time; 0 for any number."
    )
    runs_at_once_per_tenant: AtOnce = Field(
        default=0, description="Runs of all of a tenant at one time."
    )
    runs_at_once_per_key: AtOnce = Field(
        default=0, description="Runs with one API key at one time."
    )
    thread_streams_per_user: AtOnce = Field(
        default=20,
        description="Pages of a user that follow changes of threads at one time, in each "
        "process; 0 for any number.",
    )
    tokens_per_user: Counts = Field(
        default=(), description="Tokens of models for a user, such as 200000/day."
    )
    tokens_per_tenant: Counts = Field(default=(), description="Tokens for all of a tenant.")
    tokens_per_key: Counts = Field(default=(), description="Tokens with one API key.")
    dollars_per_user: Rates = Field(
        default=(), description="US dollars for models for a user, such as 2.50/day."
    )
    dollars_per_tenant: Rates = Field(default=(), description="US dollars for all of a tenant.")
    dollars_per_key: Rates = Field(default=(), description="US dollars with one API key.")

    def find_longest(self) -> int:
        """Return the longest window of all limits in seconds, or 0 without limits."""
        rates = [value for _, value in self if isinstance(value, tuple)]
        return max((parse_rate(text)[1] for texts in rates for text in texts), default=0)
