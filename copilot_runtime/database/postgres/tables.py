"""Migration of the PostgreSQL tables of a store."""

from collections.abc import Sequence
from typing import Any

from copilot_runtime.base.errors import ConfigurationFailed


async def migrate(
    connection: Any, migrations: Sequence[str], *, versions: str, lock: int, content: str
) -> int:
    """Create or migrate tables within a transaction, and return their version before.

    Each migration leads to the next version, which is a row of the table `versions`. The advisory
    lock `lock` admits one server at a time. Raises `ConfigurationFailed` for a later version;
    `content` is the noun for the stored data.
    """
    await connection.execute("SELECT pg_advisory_xact_lock($1, 0)", lock)
    await connection.execute(f"CREATE TABLE IF NOT EXISTS {versions} (version integer)")
    version = await connection.fetchval(f"SELECT max(version) FROM {versions}") or 0  # noqa: S608  # ours
    if version > len(migrations):
        raise ConfigurationFailed(
            f"The {content} were written by a later version of copilot-runtime.",
            hint="Install that version, or name another database.",
        )
    for number, migration in enumerate(migrations[version:], version + 1):
        await connection.execute(migration)
        await connection.execute(f"INSERT INTO {versions} VALUES ($1)", number)  # noqa: S608  # ours
    return version
