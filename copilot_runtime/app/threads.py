"""Build the thread store and the event bus, and name the stores of a program."""

from typing import TYPE_CHECKING, Any

from copilot_runtime.api.argument_checks import complete
from copilot_runtime.api.bus import Bus
from copilot_runtime.api.registry import Registry
from copilot_runtime.config.settings import CoreSettings
from copilot_runtime.threads import BUSES, STORES
from copilot_runtime.threads.store import ThreadStore
from copilot_runtime.threads.url import build_store

if TYPE_CHECKING:
    from copilot_runtime.app.app import CopilotRuntime


def build_thread_store(threads: ThreadStore | str | None, settings: CoreSettings) -> ThreadStore:
    """Return the given store, or the store at the given address or at the one of the settings."""
    if threads is None or isinstance(threads, str):
        threads = build_store(settings.threads if threads is None else threads)
    return complete(ThreadStore, threads)


def build_bus(settings: CoreSettings) -> Bus:
    """Return the event bus of the settings, with their limits."""
    make = Registry("copilot_runtime.bus", BUSES, noun="bus")[settings.bus]
    return make(
        max_events=settings.max_events_per_run,
        max_bytes=settings.max_bytes_per_run,
        ttl=settings.log_ttl,
    )


def name_stores(runtime: "CopilotRuntime") -> CoreSettings:
    """Return the settings of a runtime, with the addresses of stores that its program constructed.

    A store that no other process can open is named `memory`.
    """
    settings = runtime.settings
    threads = _name_thread_store(runtime.threads, settings.threads)
    changes: dict[str, Any] = {} if threads == settings.threads else {"threads": threads}
    for extension in runtime.extensions:
        changes |= extension.name_stores(settings, threads)
    return settings.model_copy(update=changes) if changes else settings


def _name_thread_store(store: ThreadStore, configured: str) -> str:
    """Return the address of a store: the configured one, if it names the same store."""
    address = configured
    if store.shared_file is not None:
        address = f"sqlite:{store.shared_file}"
    elif store.shared_url:
        address = store.shared_url
    elif configured.partition(":")[0] in STORES:
        address = "memory"
    return configured if _normalise(address) == _normalise(configured) else address


def _normalise(address: str) -> str:
    is_file = address.partition(":")[0] == "sqlite"
    return f"sqlite:{build_store(address).shared_file}" if is_file else address
