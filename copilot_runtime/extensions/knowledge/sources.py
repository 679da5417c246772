"""The source files of knowledge that an actor may list."""

from typing import TYPE_CHECKING

from copilot_runtime.extensions.knowledge.access import Access, judge
from copilot_runtime.extensions.knowledge.identifiers import hash_values

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge.ingestion import Ingestion, SourceStatus


class Sources:
    """The source files of an ingestion, restricted by an access."""

    def __init__(self, ingestion: "Ingestion", access: Access) -> None:
        self._ingestion = ingestion
        self._access = access

    async def list(self) -> "list[SourceStatus]":
        """Return the status of each source file at its last ingestion."""
        statuses = await self._ingestion.list_sources()
        allowed = await self._judge([it.name for it in statuses])
        return [it for it, may in zip(statuses, allowed, strict=True) if may]

    async def find(self, uri: str) -> "list[str]":
        """Return the names of the source files of a resource."""
        names = [it.source for it in await self._ingestion.provenance(uri)]
        allowed = await self._judge(names)
        return [name for name, may in zip(names, allowed, strict=True) if may]

    async def _judge(self, names: "list[str]") -> "list[bool]":
        """Return, for each file, whether its document may be listed."""
        uris = [f"common.Document.{hash_values(name)}" for name in names]
        return await judge(self._access, uris)
