"""Resources with their policies and indexes, and the files of chats."""

import logging
from collections.abc import Mapping
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from copilot_runtime.actions.sources import as_sources
from copilot_runtime.api.argument_checks import describe
from copilot_runtime.api.registry import Parts
from copilot_runtime.api.retrieval import FileReader, FileStore, Retriever
from copilot_runtime.api.user_memories import UserMemories
from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.settings import CoreSettings
from copilot_runtime.extensions.knowledge.build import CHANGED, build_knowledge, connect_knowledge
from copilot_runtime.extensions.settings import narrow_settings
from copilot_runtime.threads.store import ThreadKey, ThreadStore
from copilot_runtime.transports.auth import Authenticator
from copilot_runtime.transports.transport import Services

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge import Knowledge

logger = logging.getLogger(__name__)


class KnowledgeExtension(Extension):
    """Builds the knowledge of the settings, or takes that of the program."""

    name = "knowledge"
    options = ("knowledge",)

    def build(self, core: Core) -> Contribution:
        argument = core.options.get("knowledge")
        check_knowledge(argument)
        self._settings = narrow_settings(core.settings)
        self._knowledge: Knowledge | None = argument or build_knowledge(
            narrow_settings(core.settings)
        )
        knowledge = self._knowledge
        if knowledge is None:
            return Contribution(parts={KnowledgeExtension: self})
        self._changes = connect_knowledge(knowledge, core.threads, core.telemetry, core.adapter)
        from copilot_runtime.extensions.knowledge import knowledge as engine

        files = knowledge.files()
        return Contribution(
            parts={
                KnowledgeExtension: self,
                engine.Knowledge: knowledge,
                Retriever: knowledge.retriever(),
                FileReader: files,
                FileStore: files,
                UserMemories: knowledge.user_memories,
            },
            sources=as_sources(knowledge.tools()),
            endpoints=[_make_endpoint],
            page="/knowledge",
            schema="copilot_runtime.extensions.knowledge.graphql",
        )

    @property
    def knowledge(self) -> "Knowledge | None":
        """The knowledge of the runtime, for extensions that must not import it without need."""
        return self._knowledge

    def connect(self, core: Core, services: Services, authenticator: Authenticator) -> None:  # noqa: ARG002
        peers = core.conversations.peers
        if self._knowledge is not None and peers is not None:
            self._changes.peers = peers
            peers.add_notice(CHANGED, self._changes.take_notice)

    def place(self, path: str) -> None:
        if self._knowledge is not None:
            self._knowledge.path = path
            self._knowledge.origin = self._settings.knowledge.link

    async def open(self) -> None:
        if self._knowledge is not None:
            self._knowledge.start()
            analyst = self._settings.analyst
            texts = [it for it in analyst.data if analyst.name and isinstance(it, str)]
            found = await self._knowledge.find_secrets(it.rpartition("=")[2] for it in texts)
            if found:
                names = ", ".join(found[:5])
                logger.warning("The policy hides %s; to analyst.data it does not apply.", names)

    async def aclose(self) -> None:
        if self._knowledge is not None:
            await self._knowledge.aclose()

    def describe_health(self) -> Mapping[str, Any]:
        if self._knowledge is None:
            return {}
        return {"knowledge": {"state": self._knowledge.status().state}}

    async def forget_thread(self, thread: ThreadKey) -> None:
        if self._knowledge is not None:
            await self._knowledge.forget_thread(thread.owner, thread.id)

    async def count_bytes(self, owner: str, *, is_prefix: bool = False) -> Mapping[str, int]:
        if self._knowledge is None:
            return {}
        return {"files": await self._knowledge.uploads.count_bytes(owner, is_prefix=is_prefix)}

    async def expire(self, before: float) -> None:
        if self._knowledge is not None:
            await self._knowledge.forget_old_files(before)

    def name_stores(self, settings: CoreSettings, threads: str) -> Mapping[str, Any]:  # noqa: ARG002
        knowledge = self._knowledge
        if knowledge is None or knowledge.settings is narrow_settings(settings).knowledge:
            return {}
        address = knowledge.address if ":" in knowledge.address else "memory"
        return {"knowledge": knowledge.settings.model_copy(update={"storage": address})}

    async def expire_files(
        self, settings: CoreSettings, threads: ThreadStore, before: datetime
    ) -> int:
        chosen = narrow_settings(settings)
        if not chosen.knowledge.address:
            return 0
        from copilot_runtime.extensions.knowledge import Knowledge
        from copilot_runtime.extensions.knowledge.cli import keep_events

        section = chosen.knowledge.model_copy(update={"sources": ()})
        async with aclosing(Knowledge(settings=section)) as knowledge:
            knowledge.threads = threads
            keep_events(knowledge, chosen)
            return await knowledge.forget_old_files(before.timestamp())


def find_knowledge(parts: Parts) -> "Knowledge | None":
    """Return the knowledge of a runtime, or `None`; a runtime without it imports nothing of it."""
    extension = parts.find(KnowledgeExtension)
    return None if extension is None else extension.knowledge


def check_knowledge(knowledge: object) -> None:
    """Raise `ConfigurationFailed` unless the argument is a `Knowledge` object or `None`."""
    if knowledge is None or (hasattr(knowledge, "search") and not isinstance(knowledge, type)):
        return
    if isinstance(knowledge, str | Path):
        raise ConfigurationFailed(
            "knowledge is a path, and not a Knowledge object.",
            hint=f"Write knowledge=Knowledge(sources=[{str(knowledge)!r}]).",
        )
    raise ConfigurationFailed(
        f"knowledge is {describe(knowledge)}, and not a Knowledge object.",
        hint="Write knowledge=Knowledge(sources=['pages']), of copilot_runtime.knowledge.",
    )


def _make_endpoint(services: Services) -> object:
    from copilot_runtime.extensions.knowledge.http import KnowledgeEndpoint

    return KnowledgeEndpoint(services)
