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
from copilot_runtime.database.sqlite import file as thread_file
from copilot_runtime.extensions.access.api_keys import postgres as key_tables
from copilot_runtime.extensions.access.api_keys import sqlite as key_file
from copilot_runtime.extensions.events.extension import find_event_file
from copilot_runtime.extensions.knowledge.events import sqlite as event_file
from copilot_runtime.extensions.operations.places import (
    Place,
    explain_errors,
    find_keys,
    find_plans,
    find_threads,
    open_snapshot,
    open_transaction,
)
from copilot_runtime.extensions.planner import sqlite as plan_file
from copilot_runtime.extensions.planner.postgres import schema as plan_tables
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.extensions.tracing.extension import find_trace_place
from copilot_runtime.extensions.tracing.store import sqlite as trace_file
from copilot_runtime.threads.postgres import schema as thread_tables
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
    """The schema of one store: `make_file` or `prepare` creates its tables, or migrates them.

    Versions before `oldest` are refused.
    """

    place: Place
    newest: int
    oldest: int = 1
    application: int | None = None
    """The identifier of a SQLite file of this store, or `None` if it has none."""
    make_file: Callable[[Path], sqlite3.Connection]
    prepare: Callable[[Any], Awaitable[None]] | None = None
    """For PostgreSQL, where `table` has the version."""
    table: str = ""

    async def make_tables(self) -> None:
        """Create or migrate the tables. Raises `CopilotError`, also if they are not ours."""
        if self.place.path is None:
            async with open_transaction(self.place, self.prepare):
                pass
        else:
            async with explain_errors(self.place):
                self.make_file(self.place.path).close()

    async def inspect(self) -> SchemaStatus:
        """Return the status without any change."""
        if not self.place.is_there():
            return self._report(None, "new")
        try:
            async with open_snapshot(self.place) as db:
                version = await self._read_version(db)
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
            await self.make_tables()
        except CopilotError as error:
            return self._report(status.version, "unusable", error.message, error.hint or "")
        return await self.inspect()

    async def _read_version(self, db: Transaction) -> int | None:
        """Return the version of the tables, or `None` if there are none."""
        if self.place.path is None:
            [(found,)] = await db.fetch("SELECT to_regclass(?)::text", self.table)
            if found is None:
                return None
            rows = await db.fetch(f"SELECT max(version) FROM {self.table}")  # noqa: S608  # ours
            return rows[0][0]
        [(tables,)] = await db.fetch("SELECT count(*) FROM sqlite_master")
        [(found,)] = await db.fetch("SELECT application_id FROM pragma_application_id")
        if not tables and not found:
            return None
        if self.application is not None and found != self.application:
            raise ConfigurationFailed(
                f"{str(self.place.path)!r} is a database of another program.",
                hint="Name another file.",
            )
        if await db.fetch("SELECT 1 FROM sqlite_master WHERE name = 'schema_version'"):
            rows = await db.fetch("SELECT max(version) FROM schema_version")
        else:
            rows = await db.fetch("SELECT user_version FROM pragma_user_version")
        return int(rows[0][0])

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
    found = (
        find_schema(name, settings) for name in ("threads", "plans", "keys", "events", "traces")
    )
    return [schema for schema in found if schema is not None]


def find_schema(name: str, settings: Settings) -> Schema | None:
    """Return the schema of a store, or `None` if it is not in a database."""
    place = _find_place(name, settings)
    return None if place is None else _describe_schema(name, place)


def _find_place(name: str, settings: Settings) -> Place | None:
    match name:
        case "threads":
            return find_threads(settings)
        case "plans":
            return find_plans(settings)
        case "keys":
            return find_keys(settings)
        case "events":
            path = find_event_file(settings)
            return None if path is None else Place(name, path)
        case _:
            kind, path = find_trace_place(settings)
            return Place(name, path) if kind == "sqlite" else None


def _describe_schema(name: str, place: Place) -> Schema:
    is_file = place.is_sqlite
    match name:
        case "threads":
            return Schema(
                place=place,
                newest=thread_file.SCHEMA_VERSION if is_file else thread_tables.SCHEMA_VERSION,
                application=thread_file.APPLICATION,
                make_file=partial(thread_file.open_database, durability="NORMAL"),
                prepare=thread_tables.prepare,
                table="copilot_schema",
            )
        case "plans":
            return Schema(
                place=place,
                newest=plan_file.SCHEMA_VERSION if is_file else plan_tables.SCHEMA_VERSION,
                oldest=plan_file.SCHEMA_VERSION if is_file else 1,
                application=plan_file.APPLICATION,
                make_file=plan_file.open_plan_file,
                prepare=plan_tables.prepare,
                table="copilot_plan_schema",
            )
        case "keys":
            return Schema(
                place=place,
                newest=key_file.SCHEMA_VERSION if is_file else key_tables.SCHEMA_VERSION,
                application=key_file.APPLICATION,
                make_file=key_file.open_key_file,
                prepare=key_tables.prepare,
                table="copilot_api_key_schema",
            )
        case "events":
            return Schema(
                place=place,
                newest=event_file.SCHEMA_VERSION,
                application=event_file.APPLICATION,
                make_file=event_file.open_event_file,
            )
        case _:
            return Schema(
                place=place,
                newest=trace_file.SCHEMA_VERSION,
                oldest=trace_file.SCHEMA_VERSION,
                application=trace_file.APPLICATION,
                make_file=trace_file.open_trace_file,
            )
