"""The locations of a server's stores, derived from its settings."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.extensions.access.api_keys.store import choose_address
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
from copilot_runtime.extensions.operations.database import Place
from copilot_runtime.extensions.settings import Settings, narrow_settings
from copilot_runtime.threads import STORES
from copilot_runtime.threads.url import build_store

if TYPE_CHECKING:
    from copilot_runtime.app.app import CopilotRuntime
    from copilot_runtime.extensions.knowledge import Knowledge

WORKERS_EVENTS, WORKERS_TRACES = ".copilot/events.db", ".copilot/traces.db"
"""Files that several workers share instead of stores in memory."""


def name_stores(runtime: "CopilotRuntime") -> Settings:
    """Return the settings of a runtime, with the addresses of stores that its program constructed.

    A store that no other process can open is given as `memory`.
    """
    settings, store = narrow_settings(runtime.settings), runtime.threads
    changes: dict[str, object] = {}
    address = settings.threads
    if store.shared_file is not None:
        address = f"sqlite:{store.shared_file}"
    elif store.shared_url:
        address = store.shared_url
    elif address.partition(":")[0] in STORES:
        address = "memory"
    if _find_place(address) != _find_place(settings.threads):
        keys = settings.api_keys.model_copy(update={"store": choose_address(settings)})
        changes = {"threads": address, "api_keys": keys}  # keys are where the settings say
    knowledge = runtime.find(Knowledge)
    if knowledge is not None and knowledge.settings is not settings.knowledge:
        changes["knowledge"] = _name_storage(knowledge)
    return settings.model_copy(update=changes) if changes else settings


def _find_place(address: str) -> tuple[str, str]:
    """Normalise the address of a thread store for comparison."""
    kind = address.partition(":")[0]
    if kind == "sqlite":
        return kind, str(build_store(address).shared_file)
    return kind, address


def _name_storage(knowledge: "Knowledge") -> KnowledgeSettings:
    """Return the knowledge settings, with the storage address that the program passed."""
    address = knowledge.address if ":" in knowledge.address else "memory"
    return knowledge.settings.model_copy(update={"storage": address})


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


def find_event_file(settings: Settings) -> Path | None:
    """Return the file of events, or `None` if they are in memory or disabled."""
    kind, _, path = settings.events.store.partition(":")
    if kind == "sqlite":
        return Path(path)
    return Path(WORKERS_EVENTS) if kind != "none" and _is_shared(settings, WORKERS_EVENTS) else None


def find_trace_place(settings: Settings) -> tuple[str, Path]:
    """Return the kind of the trace store (`sqlite`, `jsonl` or other), and its path."""
    kind, _, path = settings.telemetry.store.partition(":")
    if kind == "memory" and _is_shared(settings, WORKERS_TRACES):
        return "sqlite", Path(WORKERS_TRACES)
    return kind, Path(path)


def _is_shared(settings: Settings, path: str) -> bool:
    """Return `True` if workers share a file instead of memory.

    The number of workers may be on the command line only, so an existing file counts as well.
    """
    return settings.workers > 1 or Path(path).exists()


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
