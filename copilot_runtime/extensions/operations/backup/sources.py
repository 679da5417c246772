"""Selects the parts of a backup by the settings."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.events.extension import find_event_file
from copilot_runtime.extensions.operations.backup.source import BackupSource
from copilot_runtime.extensions.operations.places import (
    find_keys,
    find_plans,
    find_threads,
)
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

    Raises `ConfigurationFailed` for an unknown name and for threads in a store of a plugin, and
    `MissingPackage`.
    """
    for name in without:
        if name not in NAMES:
            raise ConfigurationFailed(
                f"There is no part {name!r} of a backup.", hint=f"There are: {', '.join(NAMES)}."
            )
    makers = {
        "threads": _build_thread_source,
        "plans": _build_plan_source,
        "keys": _build_key_source,
        "events": _build_event_source,
        "audit": _build_audit_source,
        "traces": _build_trace_source,
        "knowledge": _build_object_source,
    }
    found = [makers[name](settings) for name in NAMES if name not in without]
    return [source for source in found if source is not None]


def _build_thread_source(settings: Settings) -> BackupSource | None:
    if (place := find_threads(settings)) is None:
        return None
    from copilot_runtime.extensions.operations.backup.threads import ThreadSource

    return ThreadSource(place)


def _build_plan_source(settings: Settings) -> BackupSource | None:
    if (place := find_plans(settings)) is None:
        return None
    from copilot_runtime.extensions.operations.backup.plans import PlanSource

    return PlanSource(place)


def _build_key_source(settings: Settings) -> BackupSource:
    from copilot_runtime.extensions.operations.backup.keys import KeySource

    return KeySource(find_keys(settings))


def _build_event_source(settings: Settings) -> BackupSource | None:
    if (path := find_event_file(settings)) is None:
        return None
    from copilot_runtime.extensions.knowledge.events.sqlite import open_event_file
    from copilot_runtime.extensions.operations.backup.tables import TableSource

    tables = ("events", "log", "sqlite_sequence")
    return TableSource("events", path, tables, partial(open_event_file, durability="NORMAL"))


def _build_audit_source(settings: Settings) -> BackupSource | None:
    if not settings.audit.file:
        return None
    from copilot_runtime.extensions.operations.backup.files import AuditSource

    return AuditSource(Path(settings.audit.file))


def _build_trace_source(settings: Settings) -> BackupSource | None:
    kind, path = find_trace_place(settings)
    if kind == "jsonl":
        from copilot_runtime.extensions.operations.backup.files import build_day_source

        return build_day_source(path)
    if kind != "sqlite":
        return None
    from copilot_runtime.extensions.operations.backup.tables import TableSource
    from copilot_runtime.extensions.tracing.store.sqlite import open_trace_file

    return TableSource("traces", path, ("traces", "records", "labels"), open_trace_file)


def _build_object_source(settings: Settings) -> BackupSource | None:
    if settings.knowledge.address in ("", "memory"):
        return None
    from copilot_runtime.extensions.operations.backup.objects import ObjectSource

    return ObjectSource(settings.knowledge.address)
