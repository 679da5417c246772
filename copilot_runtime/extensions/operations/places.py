"""The locations of a server's stores, derived from its settings."""

from collections.abc import Callable, Sequence
from pathlib import Path

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.extensions.access.api_keys.store import choose_address
from copilot_runtime.extensions.events.extension import find_event_file
from copilot_runtime.extensions.operations.database import Place
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.extensions.tracing.extension import find_trace_place
from copilot_runtime.threads.url import build_store


def find_threads(settings: Settings) -> Place | None:
    """Return the location of threads, or `None` in memory.

    Raises `ConfigurationFailed` for a store of a plugin.
    """
    if settings.threads.partition(":")[0] == "memory":
        return None
    store = build_store(settings.threads)
    if store.shared_file is not None:
        return Place("threads", store.shared_file)
    if store.shared_url:
        return Place("threads", url=store.shared_url)
    raise ConfigurationFailed(
        f"No backup has threads of {settings.threads.partition(':')[0]!r}, a store of a plugin.",
        hint="Leave them out by --without threads, and take them along by "
        "`copilot-runtime threads export`.",
    )


def find_plans(settings: Settings) -> Place | None:
    """Return the location of plans, or `None` in memory."""
    kind, _, rest = settings.planner.store.partition(":")
    if kind == "memory":
        return None
    if kind == "sqlite":
        return Place("plans", Path(rest))
    return Place("plans", url=rest if kind == "dbos" else settings.planner.store)


def find_keys(settings: Settings) -> Place:
    """Return the location of API keys and nonces, which may exist before servers use them."""
    from copilot_runtime.extensions.access.api_keys.sqlite import SqliteKeys
    from copilot_runtime.extensions.access.api_keys.store import build_key_store

    address = choose_address(settings)
    store = build_key_store(address)
    if isinstance(store, SqliteKeys):
        return Place("keys", store.path)
    return Place("keys", url=address)


def list_memory(settings: Settings) -> Sequence[str]:
    """Return the parts of a backup that exist only in the memory of a server."""
    has_events = settings.events.store == "memory" or (
        not settings.events.store and bool(settings.knowledge.address or settings.planner.name)
    )
    are_in_memory = {
        "threads": settings.threads.partition(":")[0] == "memory",
        "plans": settings.planner.name != "" and settings.planner.store == "memory",
        "events": has_events and find_event_file(settings) is None,
        "traces": find_trace_place(settings)[0] == "memory",
        "knowledge": settings.knowledge.address == "memory",
    }
    return [name for name, is_in_memory in are_in_memory.items() if is_in_memory]


def list_paths(settings: Settings) -> Sequence[Path]:
    """Return the local files and folders that a server writes to."""
    places = (_try_find(find, settings) for find in (find_threads, find_plans, find_keys))
    kind, traces = find_trace_place(settings)
    local, _, folder = settings.knowledge.address.partition("?")[0].partition(":")
    events = find_event_file(settings)
    return [
        *(place.path for place in places if place is not None and place.path is not None),
        *([traces] if kind in ("sqlite", "jsonl") else []),
        *([events] if events else []),
        *([Path(settings.audit.file)] if settings.audit.file else []),
        *([Path(folder)] if local == "local" else []),
    ]


def _try_find(find: Callable[[Settings], Place | None], settings: Settings) -> Place | None:
    """Return a location, or `None` if the setting is invalid, which other checks report."""
    try:
        return find(settings)
    except CopilotError:
        return None
