"""The schema of threads in PostgreSQL, with its migrations. Times are microseconds since 1970."""

from hashlib import sha256
from secrets import token_hex
from typing import Any

from copilot_runtime.database.postgres.tables import migrate
from copilot_runtime.threads.store import ThreadKey

LOCKS = 0x436F7054
"""First key of all advisory locks; the second is 0 for the schema, else a server's number."""

LEASE = 15
"""Duration of a server's lease, in seconds; each heartbeat renews it."""

_MIGRATIONS = (
    """
    CREATE TABLE copilot_threads (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        digest bytea NOT NULL UNIQUE,
        owner text NOT NULL,
        thread text NOT NULL,
        agent text NOT NULL,
        name text,
        archived boolean NOT NULL DEFAULT false,
        created bigint NOT NULL,
        updated bigint NOT NULL,
        last_run bigint,
        running bigint,
        server integer
    );
    CREATE INDEX copilot_threads_latest ON copilot_threads (owner, updated, id);
    CREATE INDEX copilot_threads_running ON copilot_threads (server) WHERE running IS NOT NULL;
    CREATE TABLE copilot_runs (
        thread bigint NOT NULL REFERENCES copilot_threads ON DELETE CASCADE,
        id bigint NOT NULL,
        key text NOT NULL,
        run_id text NOT NULL,
        agent text NOT NULL,
        began bigint NOT NULL,
        ended bigint,
        log bytea NOT NULL,
        PRIMARY KEY (thread, id)
    );
    CREATE TABLE copilot_events (
        thread bigint NOT NULL REFERENCES copilot_threads ON DELETE CASCADE,
        run bigint NOT NULL,
        number bigint NOT NULL,
        data bytea NOT NULL,
        PRIMARY KEY (thread, run, number)
    );
    CREATE TABLE copilot_known (
        thread bigint NOT NULL REFERENCES copilot_threads ON DELETE CASCADE,
        name text NOT NULL,
        PRIMARY KEY (thread, name)
    );
    """,
    "CREATE TABLE copilot_secret (value text NOT NULL)",
    "CREATE TABLE copilot_servers (id integer PRIMARY KEY, until bigint NOT NULL)",
    """
    CREATE TABLE copilot_checkpoints (
        digest bytea PRIMARY KEY,
        thread bigint REFERENCES copilot_threads ON DELETE CASCADE,
        saved bigint NOT NULL,
        data bytea NOT NULL
    );
    CREATE INDEX copilot_checkpoints_thread ON copilot_checkpoints (thread, saved);
    """,
    """
    CREATE TABLE copilot_deleted_runs (digest bytea PRIMARY KEY, deleted bigint NOT NULL);
    CREATE INDEX copilot_deleted_runs_deleted ON copilot_deleted_runs (deleted);
    """,
    """
    CREATE TABLE copilot_outbox (
        id text PRIMARY KEY, due double precision NOT NULL, data bytea NOT NULL
    )
    """,
    """
    ALTER TABLE copilot_outbox ADD COLUMN owner text NOT NULL DEFAULT '';
    CREATE INDEX copilot_outbox_owner ON copilot_outbox (owner, due);
    """,
)
"""Each migrates the tables to the next version. They are used like those of SQLite.

The lease of a server ends at `until`; a heartbeat postpones that. For a server that was declared
dead, the time is negative.
"""

SCHEMA_VERSION = len(_MIGRATIONS)
"""The version that this program reads and writes."""

_SECRET_SINCE = 2
"""The version that introduced the secret for deriving the thread ids of remote agents."""


def hash_key(key: ThreadKey) -> bytes:
    """Return the hash of a thread's key, whose ids may be too long for an index."""
    return sha256(f"{key.owner}\0{key.id}".encode()).digest()


async def prepare(connection: Any) -> None:
    """Create or migrate the tables; an advisory lock admits one server at a time."""
    async with connection.transaction():
        version = await migrate(
            connection, _MIGRATIONS, versions="copilot_schema", lock=LOCKS, content="threads"
        )
        if version < _SECRET_SINCE:  # agents know existing threads by ids without it
            await connection.execute(
                "INSERT INTO copilot_secret"
                " SELECT $1 WHERE NOT EXISTS (SELECT 1 FROM copilot_threads)",
                token_hex(32),
            )
