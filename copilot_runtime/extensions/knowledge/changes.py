"""Tells the other server processes when knowledge has changed in this one."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Any

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.cluster import Peers
from copilot_runtime.threads.store import ThreadStore

CHANGED = "knowledge_changed"
"""What a process tells the others: their indexes are older than what is stored."""

logger = logging.getLogger(__name__)


class KnowledgeChanges:
    """Lets searches of other processes find at once what was taken in here.

    What is lost on its way costs seconds: each process looks by itself, too. `expire` is called
    when another process tells that its knowledge has changed.
    """

    def __init__(self, store: ThreadStore, expire: Callable[[], None]) -> None:
        self.peers: Peers | None = None
        self._store = store
        self._expire = expire
        self._is_due = False
        self._telling: asyncio.Task[None] | None = None

    def tell(self) -> None:
        """Tell all others. What changes while that is done is told together."""
        if self.peers is None or not self.peers.address:
            return
        self._is_due = True
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(
                self._tell(self.peers), name="tell of knowledge", context=Context()
            )

    def take_notice(self, sender: str, values: Mapping[str, Any]) -> None:
        """Take what another process tells."""
        del sender, values
        self._expire()

    async def _tell(self, peers: Peers) -> None:
        while self._is_due:
            self._is_due = False
            try:
                servers = await self._store.list_other_servers()
            except CopilotError as error:
                logger.info("Others are not told of new knowledge: %s", error.message)
                return
            for server in servers:
                peers.tell(server, CHANGED)
