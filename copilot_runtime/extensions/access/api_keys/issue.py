"""Make keys of what an operator writes, and find those that are meant."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, Field

from copilot_runtime.api.identity import TENANT_PREFIX, Identity, is_tenant
from copilot_runtime.base.errors import ConfigurationFailed, Misuse, NotFound
from copilot_runtime.config.sections import ROLES, check_scopes
from copilot_runtime.extensions.access.api_keys.key import ApiKey, generate_key
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.threads.validation import check_id, check_owner

_SPAN = re.compile(r"(?P<count>[1-9]\d{0,4})(?P<unit>[hdwy])")
_UNITS = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0, "y": 31_536_000.0}
_LONGEST_NAME = 100
_LATEST = datetime.max.replace(tzinfo=UTC).timestamp() - 1
"""The latest date that `list` can show."""


class NewKey(BaseModel):
    """A key to make. Without a user, it is a user of its own."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: str = Field(examples=["ci"])
    user: str | None = Field(None, examples=["ann"])
    tenant: str = Field("", examples=["acme"])
    roles: list[str] = Field([], description="By default, access.default_roles.")
    scopes: list[str] | None = Field(None, description="All that it may do, whatever its roles.")
    expires: str | None = Field(None, description="12h, 90d, 8w, 1y, or a date.")


def make_key(settings: Settings, new: NewKey, now: float) -> tuple[ApiKey, str]:
    """Return a new key and its text, which is shown once. Raises `ConfigurationFailed`."""
    _check(new, settings)
    secret = generate_key()
    key = ApiKey(
        id=secret.id,
        name=new.name,
        user=new.user or f"key:{secret.id}",
        tenant=new.tenant,
        roles=tuple(dict.fromkeys(new.roles or settings.access.default_roles)),
        scopes=tuple(dict.fromkeys(new.scopes)) if new.scopes else None,
        created_at=now,
        expires_at=None if new.expires is None else _read_end(new.expires, now),
        salt=secret.salt,
        hash=secret.hash,
    )
    return key, secret.text


def describe_rights(key: ApiKey) -> str:
    """Return the owner, roles and scopes of a key in a line for the audit log."""
    tenant = f", tenant {key.tenant}" if key.tenant else ""
    scopes = "all" if key.scopes is None else ",".join(key.scopes)
    moment = None if key.expires_at is None else datetime.fromtimestamp(key.expires_at, UTC)
    end = "never" if moment is None else f"{moment:%Y-%m-%d %H:%M:%SZ}"
    return (
        f"{key.prefix} ({key.name}) of {key.user}{tenant}, roles {','.join(key.roles) or 'none'}, "
        f"scopes {scopes}, expires {end}"
    )


def find_key(keys: Sequence[ApiKey], text: str) -> ApiKey:
    """Return the key with a prefix or name. Raises `NotFound`, also if a name is ambiguous."""
    prefix = "_".join(text.split("_")[:2])  # `text` may be a whole key
    found = [key for key in keys if prefix in (key.prefix, key.id)]
    found = found or [key for key in keys if key.name == text and key.revoked_at is None]
    if not found:
        name = prefix if text.startswith("cpk_") else text
        raise NotFound(
            f"There is no key {name[:100]!r}: `copilot-runtime operate keys list --all` shows all."
        )
    if len(found) > 1:
        raise NotFound(
            f"{len(found)} keys are called {text!r}. Write which: "
            f"{', '.join(key.prefix for key in found)}."
        )
    return found[0]


def _check(new: NewKey, settings: Settings) -> None:
    """Raise `ConfigurationFailed` for values of a key that could not be used."""
    name, user, tenant = new.name, new.user, new.tenant
    if not name.strip() or len(name) > _LONGEST_NAME or name.startswith("cpk_"):
        raise ConfigurationFailed(
            f"{name[:60]!r} cannot be the name of a key.",
            hint=f"Write what it is for, such as ci: at most {_LONGEST_NAME} characters.",
        )
    every = {**ROLES, **settings.access.roles}
    if missing := [role for role in new.roles if role not in every]:
        raise ConfigurationFailed(
            f"There is no role {missing[0]!r}.", hint=f"There are {', '.join(every)}."
        )
    if tenant and not is_tenant(tenant):
        raise ConfigurationFailed(
            f"{tenant[:60]!r} cannot be a tenant.", hint="It has letters, digits and . _ -"
        )
    try:
        check_scopes(new.scopes or ())
        check_id("name", name)
        check_owner("user", Identity(user=user or "-", tenant=tenant).owner or "")
    except (Misuse, ValueError) as error:
        reason = str(error).rstrip(".")
        raise ConfigurationFailed(f"The key was not made: {reason}.") from None
    if user == "" or (user or "").startswith((TENANT_PREFIX, "service:", "key:")):
        raise ConfigurationFailed(
            f"{user!r} cannot be a user.", hint="Leave the user out for a key that is its own user."
        )


def _read_end(text: str, now: float) -> float:
    """Parse an expiry into seconds since 1970. Raises `ConfigurationFailed`."""
    if found := _SPAN.fullmatch(text):
        end = now + int(found["count"]) * _UNITS[found["unit"]]
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ConfigurationFailed(
                f"{text!r} is no end.",
                hint="Write 12h, 90d, 8w, 1y, or a date such as 2027-01-31.",
            ) from None
        end = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if end <= now:
        raise ConfigurationFailed(f"{text!r} is over.", hint="Write an end that is to come.")
    if end > _LATEST:
        raise ConfigurationFailed(
            f"{text!r} is later than any date.", hint="Leave the expiry out for a key without end."
        )
    return end
