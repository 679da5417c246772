"""API keys, and the interface of their stores.

A key consists of `cpk_`, its id, and 32 random bytes, of which only a hash is stored. The secret
has enough entropy that brute force is infeasible with a fast hash, so wrong keys cost little time.
"""

import hmac
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from secrets import token_bytes, token_hex, token_urlsafe
from typing import Any

PREFIX = "cpk_"

COLUMNS = (
    *("id", "name", "user_id", "tenant", "roles", "scopes"),
    *("created_at", "expires_at", "revoked_at", "used_at", "salt", "hash"),
)

_SECRET = ("id", "salt", "hash")

_KEY = re.compile(r"cpk_(?P<id>[0-9a-f]{16})_(?P<secret>[A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A stored key. Times are seconds since 1970; `None` means never.

    `scopes` of `None` do not restrict it. `user` is the owner of everything created with the key.
    """

    id: str
    name: str
    user: str
    tenant: str = ""
    roles: Sequence[str] = ()
    scopes: Sequence[str] | None = None
    created_at: float = 0.0
    expires_at: float | None = None
    revoked_at: float | None = None
    used_at: float | None = None
    salt: bytes = field(default=b"", repr=False)
    hash: bytes = field(default=b"", repr=False)

    @property
    def prefix(self) -> str:
        """The public part of the key."""
        return f"{PREFIX}{self.id}"

    def describe_state(self, now: float) -> str:
        """Return `active`, `revoked` or `expired`."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and self.expires_at <= now:
            return "expired"
        return "active"

    def describe(self, now: float) -> dict[str, Any]:
        """Return the JSON of the key, without its hash."""
        fields = {name: value for name, value in asdict(self).items() if name not in _SECRET}
        return {"prefix": self.prefix, **fields, "state": self.describe_state(now)}

    def matches(self, secret: str) -> bool:
        """Return `True` if a secret belongs to this key."""
        return hmac.compare_digest(hash_secret(secret, self.salt), self.hash)


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A new key with its secret, which is shown once."""

    id: str
    secret: str = field(repr=False)
    salt: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """The complete key."""
        return f"{PREFIX}{self.id}_{self.secret}"

    @property
    def hash(self) -> bytes:
        """The hash of the secret."""
        return hash_secret(self.secret, self.salt)


class KeyStore:
    """A store of keys shared by all processes: a revocation takes effect within two seconds.

    All methods raise `StoreFailed`.
    """

    async def find(self, id: str) -> ApiKey | None:
        """Return a key by its id, at most two seconds out of date, or `None`."""
        raise NotImplementedError

    async def list_keys(self) -> Sequence[ApiKey]:
        """Return all keys, oldest first."""
        raise NotImplementedError

    async def add(self, key: ApiKey) -> None:
        """Add a new key."""
        raise NotImplementedError

    async def revoke(self, id: str, now: float) -> ApiKey | None:
        """Revoke a key if it is not revoked yet; return it, or `None` if it does not exist."""
        raise NotImplementedError

    async def touch(self, id: str, now: float) -> None:
        """Set the time of a key's last use."""
        raise NotImplementedError

    async def add_nonce(self, nonce: str, expires_at: float, now: float) -> bool:
        """Store a nonce of a service token until it expires; return `True` if it is new."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close the store."""


def generate_key() -> SecretKey:
    """Return a new key."""
    return SecretKey(token_hex(8), token_urlsafe(32), token_bytes(16))


def split_key(text: str) -> tuple[str, str] | None:
    """Return the id and the secret of a key, or `None` if the text is not a key."""
    found = _KEY.fullmatch(text)
    return None if found is None else (found["id"], found["secret"])


def hash_secret(secret: str, salt: bytes) -> bytes:
    """Return the hash of a secret."""
    return blake2b(secret.encode(), key=salt, digest_size=32, person=b"copilot-key-1").digest()


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
