"""Selects the parts of a backup by the settings."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.operations.backup.databases import KeySource, TableSource
from copilot_runtime.extensions.operations.backup.files import (
    AuditSource,
    ObjectSource,
    build_day_source,
)
from copilot_runtime.extensions.operations.backup.plans import PlanSource
from copilot_runtime.extensions.operations.backup.source import BackupSource
from copilot_runtime.extensions.operations.backup.threads import ThreadSource
from copilot_runtime.extensions.operations.schemas import Schema, find_schema
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.extensions.tracing.extension import find_trace_place

PLACES = {
    "threads": "threads",
    "plans": "planner.store",
    "keys": "api_keys.store",
    "events": "events.store",
    "audit": "audit.file",
    "traces": "telemetry.store",
    "knowledge": "knowledge.storage",
}
"""The settings with the locations of the parts."""

NAMES = (*PLACES,)
"""All parts of a backup, in the order of the archive."""


def select_sources(settings: Settings, without: Sequence[str] = ()) -> Sequence[BackupSource]:
    """Return the parts of a backup for these settings, except those in `without`.

    Raises `ConfigurationFailed` for an unknown name and for threads in a store of a plugin.
    """
    for name in without:
        if name not in NAMES:
            raise ConfigurationFailed(
                f"There is no part {name!r} of a backup.", hint=f"There are: {', '.join(NAMES)}."
            )
    found = [_build_source(name, settings) for name in NAMES if name not in without]
    return [source for source in found if source is not None]


def _build_source(name: str, settings: Settings) -> BackupSource | None:
    """Return a part, or `None` if it is nowhere but in the memory of a server."""
    if name == "audit":
        return AuditSource(Path(settings.audit.file)) if settings.audit.file else None
    if name == "knowledge":
        address = settings.knowledge.address
        return None if address in ("", "memory") else ObjectSource(address)
    if (schema := find_schema(name, settings)) is not None:
        return _MAKERS[name](schema)
    kind, path = find_trace_place(settings)
    return build_day_source(path) if (name, kind) == ("traces", "jsonl") else None


_MAKERS: Mapping[str, Callable[[Schema], BackupSource]] = {
    "threads": ThreadSource,
    "plans": PlanSource,
    "keys": KeySource,
    "events": partial(TableSource, tables=("events", "log", "sqlite_sequence")),
    "traces": partial(TableSource, tables=("traces", "records", "labels")),
}
