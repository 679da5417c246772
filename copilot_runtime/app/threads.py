"""Builds where threads and logs are, and the way to the processes that share them."""

import socket

from copilot_runtime.api.bus import Bus
from copilot_runtime.api.carrier import Carrier
from copilot_runtime.api.duck_typing import complete
from copilot_runtime.api.registry import Registry
from copilot_runtime.config.settings import Settings
from copilot_runtime.extensions.cluster import Peers, TakeNotice
from copilot_runtime.extensions.cluster.carriers.unix import UnixCarrier
from copilot_runtime.extensions.knowledge.changes import CHANGED, KnowledgeChanges
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.runtime.thread_changes import ThreadChanges
from copilot_runtime.runtime.thread_changes.changes import CHANGE_NOTICE, WATCH
from copilot_runtime.threads import BUSES
from copilot_runtime.threads.store import ThreadStore
from copilot_runtime.threads.url import build_store


def build_thread_store(threads: ThreadStore | str | None, settings: Settings) -> ThreadStore:
    """Return the store of an argument: itself, or an address; else that of the settings."""
    if threads is None or isinstance(threads, str):
        threads = build_store(settings.threads if threads is None else threads)
    return complete(ThreadStore, threads)


def build_bus(settings: Settings) -> Bus:
    """Return the bus of the settings, with their limits."""
    make = Registry("copilot_runtime.bus", BUSES, noun="bus")[settings.bus]
    return make(
        max_events=settings.max_events_per_run,
        max_bytes=settings.max_bytes_per_run,
        ttl=settings.log_ttl,
    )


def build_carrier(settings: Settings, threads: ThreadStore) -> Carrier | None:
    """Return the way to the other processes that share a store; None if nobody can share it."""
    if settings.carrier == "none":
        return None
    if settings.carrier != "auto":
        from copilot_runtime.extensions.cluster.carriers.redis import RedisCarrier

        return RedisCarrier(settings.carrier)
    if threads.shared_file is not None and hasattr(socket, "AF_UNIX"):
        return UnixCarrier(threads.shared_file)
    if threads.shared_url:
        from copilot_runtime.extensions.cluster.carriers.postgres import PostgresCarrier

        return PostgresCarrier(threads.shared_url)
    return None


def build_peers(
    settings: Settings,
    threads: ThreadStore,
    conversations: Conversations,
    changes: ThreadChanges,
    knowledge_changes: KnowledgeChanges | None,
) -> Peers | None:
    """Return what asks the other processes that share a store, and answers them.

    None if nobody can share it.
    """
    carrier = build_carrier(settings, threads)
    if carrier is None:
        return None
    notices: dict[str, TakeNotice] = {CHANGE_NOTICE: changes.take_notice}
    if knowledge_changes is not None:
        notices[CHANGED] = knowledge_changes.take_notice
    return Peers(
        carrier,
        threads,
        conversations.runtime.open_log,
        {
            "stop": conversations.answer_stop,
            "stop new": conversations.answer_stop_new,
            "clear": conversations.answer_clear,
            "end": conversations.answer_end,
            "find": conversations.answer_find,
            "stop log": conversations.answer_stop_log,
            WATCH: changes.answer_watch,
        },
        notices,
    )
