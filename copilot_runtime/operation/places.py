"""Where a server with some settings keeps what it keeps."""

from collections.abc import Callable, Sequence
from pathlib import Path

from copilot_runtime.config.settings import Settings
from copilot_runtime.errors import ConfigurationFailed, CopilotError
from copilot_runtime.operation.database import Place
from copilot_runtime.threads.url import build_store

WORKERS_EVENTS, WORKERS_TRACES = ".copilot/events.db", ".copilot/traces.db"
"""Files that several workers share in place of their memory."""


def find_threads(settings: Settings) -> Place | None:
    """Return where threads are; None in memory. Raises `ConfigurationFailed` for other stores."""
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
    """Return where plans are; None in memory."""
    kind, _, rest = settings.planner.store.partition(":")
    if kind == "memory":
        return None
    if kind == "sqlite":
        return Place("plans", Path(rest))
    return Place("plans", url=rest if kind == "dbos" else settings.planner.store)


def find_keys(settings: Settings) -> Place | None:
    """Return where API keys are; None if nobody signs in by one, and there is no file of them."""
    from copilot_runtime.security.api_keys.sqlite import SqliteKeys
    from copilot_runtime.security.api_keys.store import build_key_store, choose_address

    address = choose_address(settings)
    store = build_key_store(address)
    if isinstance(store, SqliteKeys):
        return Place("keys", store.path)
    if settings.api_keys.store or "api_keys" in settings.access.authenticate:
        return Place("keys", url=address)
    return None


def find_event_file(settings: Settings) -> Path | None:
    """Return the file of events, if they are in one."""
    kind, _, path = settings.events.store.partition(":")
    if kind == "sqlite":
        return Path(path)
    return Path(WORKERS_EVENTS) if settings.workers > 1 and kind != "none" else None


def find_trace_place(settings: Settings) -> tuple[str, Path]:
    """Return how traces are kept (`sqlite`, `jsonl` or neither), and where."""
    kind, _, path = settings.telemetry.store.partition(":")
    if kind == "memory" and settings.workers > 1:
        return "sqlite", Path(WORKERS_TRACES)
    return kind, Path(path)


def list_paths(settings: Settings) -> Sequence[Path]:
    """Return the files and folders of this machine into which a server writes."""
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
    """Return a place; None for one that cannot be understood, which others say."""
    try:
        return find(settings)
    except CopilotError:
        return None
