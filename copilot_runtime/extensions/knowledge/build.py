"""Build knowledge from the settings, and connect it to a runtime."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any

from copilot_runtime.agents.titles_and_summaries import summarize
from copilot_runtime.api.adapter import Adapter
from copilot_runtime.api.identity import SelectNames
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.runtime.peers import Peers
from copilot_runtime.telemetry.telemetry import Telemetry
from copilot_runtime.threads.store import ThreadStore

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge import Knowledge


CHANGED = "knowledge_changed"
"""The message that makes other processes reload their indexes."""

logger = logging.getLogger(__name__)


class KnowledgeChanges:
    """Makes changes of this process searchable in other processes at once.

    A lost notification only delays others by seconds, since each process also polls the storage.
    `invalidate_cache` is called on a notification of another process.
    """

    def __init__(self, store: ThreadStore, invalidate_cache: Callable[[], None]) -> None:
        self.peers: Peers | None = None
        self._store = store
        self._invalidate_cache = invalidate_cache
        self._is_due = False
        self._telling: asyncio.Task[None] | None = None

    def broadcast(self) -> None:
        """Notify all other processes. Changes during a broadcast are combined in the next one."""
        if self.peers is None or not self.peers.address:
            return
        self._is_due = True
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(
                self._broadcast(self.peers), name="broadcast of knowledge", context=Context()
            )

    def take_notice(self, sender: str, values: Mapping[str, Any]) -> None:
        """Handle a notification of another process."""
        del sender, values
        self._invalidate_cache()

    async def _broadcast(self, peers: Peers) -> None:
        while self._is_due:
            self._is_due = False
            try:
                servers = await self._store.list_other_servers()
            except CopilotError as error:
                logger.info("Others are not told of new knowledge: %s", error.message)
                return
            for server in servers:
                peers.tell(server, CHANGED)


def build_knowledge(settings: Settings) -> "Knowledge | None":
    """Return the knowledge of the settings, or `None` if they name no storage and no sources."""
    if not settings.knowledge.address:
        return None
    from copilot_runtime.extensions.knowledge import Knowledge

    return Knowledge(settings=settings.knowledge)


def connect_knowledge(
    knowledge: "Knowledge", threads: ThreadStore, telemetry: Telemetry, adapter: Adapter
) -> KnowledgeChanges:
    """Connect knowledge to shared services; return the notifier of the other processes."""
    changes = KnowledgeChanges(threads, knowledge.invalidate_cache)
    knowledge.on_change = changes.broadcast
    knowledge.threads, knowledge.telemetry = threads, telemetry
    knowledge.summarize = knowledge.summarize or partial(summarize, adapter)
    return changes


def select_by_policy(knowledge: "Knowledge | None", type: str) -> SelectNames | None:
    """Return a filter for names of resources of a type that a user may read, or `None`."""
    return None if knowledge is None else partial(knowledge.select_names, type)
