"""Build the thread store and the event bus."""

from copilot_runtime.api.bus import Bus
from copilot_runtime.api.duck_typing import complete
from copilot_runtime.api.registry import Registry
from copilot_runtime.config.settings import CoreSettings
from copilot_runtime.threads import BUSES
from copilot_runtime.threads.store import ThreadStore
from copilot_runtime.threads.url import build_store


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
