"""The PostgreSQL tables of plans and their migrations. Times are seconds since 1970."""

from typing import Any

from copilot_runtime.base.errors import ConfigurationFailed

LOCKS = 0x436F7050
"""First key of our advisory locks; the second is 0 for the schema, or else a server's id."""

_MIGRATIONS = (
    """
    CREATE TABLE copilot_plans (
        id text PRIMARY KEY,
        owner text,
        thread text NOT NULL,
        title text NOT NULL,
        created float8 NOT NULL,
        updated float8 NOT NULL,
        status text NOT NULL,
        is_over boolean NOT NULL DEFAULT false,
        number bigint NOT NULL,
        server integer NOT NULL,
        epoch bigint NOT NULL DEFAULT 1
    );
    CREATE INDEX copilot_plans_of_owner ON copilot_plans (owner, created, id);
    CREATE INDEX copilot_plans_of_thread ON copilot_plans (thread, created);
    CREATE INDEX copilot_plans_by_time ON copilot_plans (created, id);
    CREATE INDEX copilot_plans_open ON copilot_plans (server) WHERE NOT is_over;
    CREATE TABLE copilot_plan_events (
        plan text NOT NULL REFERENCES copilot_plans ON DELETE CASCADE,
        number bigint NOT NULL,
        time float8 NOT NULL,
        data bytea NOT NULL,
        PRIMARY KEY (plan, number)
    );
    CREATE TABLE copilot_plan_commands (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        plan text NOT NULL REFERENCES copilot_plans ON DELETE CASCADE,
        data bytea NOT NULL
    );
    CREATE TABLE copilot_plan_servers (
        id integer PRIMARY KEY,
        until timestamptz NOT NULL,
        instance timestamptz NOT NULL
    );
    """,
)
"""Migrations: each upgrades the tables by one version.

`number` is the number of a plan's last event. `until` is the expiry of a server's heartbeat, and
`instance` the start time of the PostgreSQL that has its advisory lock: a restart loses all locks.
"""

SCHEMA_VERSION = len(_MIGRATIONS)
"""The schema version that this program reads and writes."""


async def prepare(connection: Any) -> None:
    """Create or migrate the tables, one server at a time."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1, 0)", LOCKS)
        await connection.execute("CREATE TABLE IF NOT EXISTS copilot_plan_schema (version integer)")
        version = await connection.fetchval("SELECT max(version) FROM copilot_plan_schema") or 0
        if version > SCHEMA_VERSION:
            raise ConfigurationFailed(
                "The plans were written by a later version of copilot-runtime.",
                hint="Install that version, or name another database.",
            )
        for number, migration in enumerate(_MIGRATIONS[version:], version + 1):
            await connection.execute(migration)
            await connection.execute("INSERT INTO copilot_plan_schema VALUES ($1)", number)
        await connection.execute(
            "DELETE FROM copilot_plan_servers WHERE until < now() - interval '1 day'"
        )
