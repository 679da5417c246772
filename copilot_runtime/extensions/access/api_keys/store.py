"""Where API keys, and nonces of service tokens, are kept: a file of SQLite, or PostgreSQL."""

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.settings import Settings
from copilot_runtime.extensions.access.api_keys.key import ApiKey

DEFAULT = "sqlite:.copilot/access.db"

COLUMNS = (
    *("id", "name", "user_id", "tenant", "roles", "scopes"),
    *("created_at", "expires_at", "revoked_at", "used_at", "salt", "hash"),
)


class KeyStore:
    """Keeps keys for all processes: what one revokes, none accepts two seconds later.

    All methods raise `StoreFailed`.
    """

    async def find(self, id: str) -> ApiKey | None:
        """Return a key by its id, as it is now or was at most two seconds ago."""
        raise NotImplementedError

    async def list_keys(self) -> Sequence[ApiKey]:
        """Return all keys, the oldest first."""
        raise NotImplementedError

    async def add(self, key: ApiKey) -> None:
        """Keep a new key."""
        raise NotImplementedError

    async def revoke(self, id: str, now: float) -> ApiKey | None:
        """Revoke a key, and return it; None if there is none. Revoked twice is revoked once."""
        raise NotImplementedError

    async def touch(self, id: str, now: float) -> None:
        """Note that a key was used."""
        raise NotImplementedError

    async def add_nonce(self, nonce: str, expires_at: float, now: float) -> bool:
        """Remember a nonce of a service token until a time. Returns whether it is new."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close the store."""


def choose_address(settings: Settings) -> str:
    """Return where the keys of a server are."""
    if settings.api_keys.store:
        return settings.api_keys.store
    kind, _, path = settings.threads.partition(":")
    if kind in ("postgres", "postgresql"):
        return settings.threads
    if kind != "sqlite" or not path:
        return DEFAULT
    path = path[3:] if path.startswith("///") else path
    return f"sqlite:{PurePath(path).parent / 'access.db'}"


def build_key_store(address: str) -> KeyStore:
    """Return the store at an address, without opening it. Raises `ConfigurationFailed`."""
    kind, _, path = address.partition(":")
    if kind in ("postgres", "postgresql"):
        from copilot_runtime.extensions.access.api_keys.postgres import (
            PostgresKeys,  # needs asyncpg
        )

        return PostgresKeys(address)
    path = path[3:] if path.startswith("///") else path
    if kind != "sqlite" or not path:
        raise ConfigurationFailed(
            f"API keys cannot be kept at {address[:60]!r}.",
            hint="Write sqlite:access.db for a file, or postgresql://...",
        )
    from copilot_runtime.extensions.access.api_keys.sqlite import SqliteKeys

    return SqliteKeys(path)


def encode_key(key: ApiKey) -> tuple[Any, ...]:
    """Return a key as a row of `COLUMNS`."""
    return (
        *(key.id, key.name, key.user, key.tenant, json.dumps([*key.roles])),
        None if key.scopes is None else json.dumps([*key.scopes]),
        *(key.created_at, key.expires_at, key.revoked_at, key.used_at, key.salt, key.hash),
    )


def decode_key(row: Mapping[str, Any] | Sequence[Any]) -> ApiKey:
    """Return the key of a row."""
    values = dict(zip(COLUMNS, row.values() if isinstance(row, Mapping) else row, strict=True))
    scopes = values.pop("scopes")
    return ApiKey(
        user=values.pop("user_id"),
        roles=tuple(json.loads(values.pop("roles"))),
        scopes=None if scopes is None else tuple(json.loads(scopes)),
        salt=bytes(values.pop("salt")),
        hash=bytes(values.pop("hash")),
        **values,
    )
