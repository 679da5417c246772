"""Chooses and builds the store of API keys and nonces: a SQLite file or PostgreSQL."""

from pathlib import PurePath

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.access.api_keys.key import KeyStore
from copilot_runtime.extensions.settings import Settings

DEFAULT = "sqlite:.copilot/access.db"


def choose_address(settings: Settings) -> str:
    """Return the address of the key store, by default beside the threads."""
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
