"""Schema versions of all stores: inspection and migration.

A server migrates a store when it opens it. The command `migrate` does so in advance, or only shows
the versions.
"""

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.extensions.events.extension import find_event_file
from copilot_runtime.extensions.operations.database import (
    Place,
    explain_errors,
    open_snapshot,
    open_transaction,
)
from copilot_runtime.extensions.operations.places import (
    find_keys,
    find_plans,
    find_threads,
)
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.extensions.tracing.extension import find_trace_place
from copilot_runtime.threads.transactions import Transaction

State = Literal["current", "new", "old", "later", "unusable"]
"""`new` has no tables yet; `later` has the schema of a later version of this program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaStatus:
    """The schema version of one store, and whether it can be used."""

    name: str
    address: str
    version: int | None
    """The version, or `None` if there are no tables or it cannot be read."""
    newest: int
    state: State
    problem: str = ""
    """The reason why the store cannot be used."""
    way_out: str = ""

    @property
    def is_usable(self) -> bool:
        return self.state in ("current", "new", "old")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The schema of one store: `read` returns its version, and `migrate` upgrades it.

    Versions before `oldest` are refused.
    """

    place: Place
    newest: int
    oldest: int = 1
    migrate: Callable[[], Awaitable[None]]
    read: Callable[[Transaction], Awaitable[int | None]]

    async def inspect(self) -> SchemaStatus:
        """Return the status without any change."""
        if not self.place.is_there():
            return self._report(None, "new")
        try:
            async with open_snapshot(self.place) as db:
                version = await self.read(db)
        except CopilotError as error:
            return self._report(None, "unusable", error.message, error.hint or "")
        if version is None:
            return self._report(None, "new")
        if version > self.newest:
            problem = f"{self.place.describe()} was written by a later version."
            return self._report(version, "later", problem, _LATER)
        if version < self.oldest:
            problem = f"{self.place.describe()} has tables of an earlier version than can be read."
            return self._report(version, "unusable", problem, _EARLIER)
        return self._report(version, "current" if version == self.newest else "old")

    async def bring_up_to_date(self) -> SchemaStatus:
        """Migrate existing tables, and return the status; no tables are created. Does not raise."""
        status = await self.inspect()
        if status.state != "old":
            return status
        try:
            await self.migrate()
        except CopilotError as error:
            return self._report(status.version, "unusable", error.message, error.hint or "")
        return await self.inspect()

    def _report(
        self, version: int | None, state: State, problem: str = "", way_out: str = ""
    ) -> SchemaStatus:
        return SchemaStatus(
            name=self.place.content,
            address=self.place.describe(),
            version=version,
            newest=self.newest,
            state=state,
            problem=problem,
            way_out=way_out,
        )


_LATER = "Install the later version of copilot-runtime."
_EARLIER = "Name another file, or move this one away."


def list_schemas(settings: Settings) -> Sequence[Schema]:
    """Return the schemas of all stores in the settings. Raises `ConfigurationFailed`."""
    makers = (_find_threads, _find_plans, _find_keys, _find_events, _find_traces)
    return [schema for make in makers if (schema := make(settings)) is not None]


def _find_threads(settings: Settings) -> Schema | None:
    if (place := find_threads(settings)) is None:
        return None
    if place.path is None:
        from copilot_runtime.threads.postgres.schema import SCHEMA_VERSION, prepare

        return _build_postgres_schema(place, SCHEMA_VERSION, prepare, "copilot_schema")
    from copilot_runtime.database.sqlite.file import APPLICATION, SCHEMA_VERSION, open_database

    make = partial(open_database, durability="NORMAL")
    return _build_file_schema("threads", place.path, SCHEMA_VERSION, make, APPLICATION)


def _find_plans(settings: Settings) -> Schema | None:
    if (place := find_plans(settings)) is None:
        return None
    if place.path is None:
        from copilot_runtime.extensions.planner.postgres.schema import SCHEMA_VERSION, prepare

        return _build_postgres_schema(place, SCHEMA_VERSION, prepare, "copilot_plan_schema")
    from copilot_runtime.extensions.planner.sqlite import (
        APPLICATION,
        OLDEST_VERSION,
        SCHEMA_VERSION,
        open_plan_file,
    )

    make = partial(open_plan_file, durability="NORMAL")
    return _build_file_schema(
        "plans", place.path, SCHEMA_VERSION, make, APPLICATION, oldest=OLDEST_VERSION
    )


def _find_keys(settings: Settings) -> Schema:
    place = find_keys(settings)
    if place.path is None:
        from copilot_runtime.extensions.access.api_keys.postgres import SCHEMA_VERSION, prepare

        return _build_postgres_schema(place, SCHEMA_VERSION, prepare, "copilot_api_key_schema")
    from copilot_runtime.extensions.access.api_keys.sqlite import SCHEMA_VERSION, open_key_file

    return _build_file_schema("keys", place.path, SCHEMA_VERSION, open_key_file, None)


def _find_events(settings: Settings) -> Schema | None:
    if (path := find_event_file(settings)) is None:
        return None
    from copilot_runtime.extensions.knowledge.events.sqlite import (
        APPLICATION,
        SCHEMA_VERSION,
        open_event_file,
    )

    make = partial(open_event_file, durability="NORMAL")
    return _build_file_schema("events", path, SCHEMA_VERSION, make, APPLICATION)


def _find_traces(settings: Settings) -> Schema | None:
    kind, path = find_trace_place(settings)
    if kind != "sqlite":
        return None
    from copilot_runtime.extensions.tracing.store.sqlite import (
        APPLICATION,
        SCHEMA_VERSION,
        open_trace_file,
    )

    return _build_file_schema(
        "traces", path, SCHEMA_VERSION, open_trace_file, APPLICATION, oldest=SCHEMA_VERSION
    )


def _build_file_schema(
    name: str,
    path: Path,
    newest: int,
    make_file: Callable[[Path], sqlite3.Connection],
    application: int | None,
    *,
    oldest: int = 1,
) -> Schema:
    place = Place(name, path)

    async def migrate() -> None:
        async with explain_errors(place):
            make_file(path).close()

    async def read(db: Transaction) -> int | None:
        [(tables,)] = await db.fetch("SELECT count(*) FROM sqlite_master")
        [(found,)] = await db.fetch("SELECT application_id FROM pragma_application_id")
        if not tables and not found:
            return None
        if application is not None and found != application:
            raise _build_foreign_error(place)
        if await db.fetch("SELECT 1 FROM sqlite_master WHERE name = 'schema_version'"):
            rows = await db.fetch("SELECT max(version) FROM schema_version")
        else:
            rows = await db.fetch("SELECT user_version FROM pragma_user_version")
        return int(rows[0][0])

    return Schema(place=place, newest=newest, oldest=oldest, migrate=migrate, read=read)


def _build_postgres_schema(
    place: Place, newest: int, prepare: Callable[[Any], Awaitable[None]], table: str
) -> Schema:
    async def migrate() -> None:
        async with open_transaction(place, prepare):
            pass

    async def read(db: Transaction) -> int | None:
        [(found,)] = await db.fetch("SELECT to_regclass(?)::text", table)
        if found is None:
            return None
        rows = await db.fetch(f"SELECT max(version) FROM {table}")  # noqa: S608  # ours
        return rows[0][0]

    return Schema(place=place, newest=newest, migrate=migrate, read=read)


def _build_foreign_error(place: Place) -> CopilotError:
    """Return the error for a file of another program."""
    return ConfigurationFailed(
        f"{str(place.path)!r} is a database of another program.", hint="Name another file."
    )
