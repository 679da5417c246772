"""Keep resources equal to what another part of the server has, such as its assistants."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextvars import Context

from copilot_runtime.base.concurrency import retrieve_exception
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import JsonObject, get_text
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex

logger = logging.getLogger(__name__)

ReadFields = Callable[[], Mapping[str, JsonObject]]

_RETRY = 5.0
"""Seconds until failed writes are retried."""

_ORIGIN = "origin"
"""The field that names the owner of a mirrored resource; other resources are not touched."""


class ResourceMirror:
    """Writes new and changed resources, and removes missing ones, in the background.

    Args:
        find_resources: Returns the index of the resources.
        type: Their type.
        origin: What they are kept for, such as `assistants`: those of another one stay.
        read: Returns them as they are now, by name: their fields, with the `content`.
    """

    def __init__(
        self,
        find_resources: Callable[[], ResourceIndex],
        type: str,
        origin: str,
        read: ReadFields,
    ) -> None:
        self._find_resources = find_resources
        self._type = type
        self._origin = origin
        self._read = read
        self._is_current = True
        self._writer: asyncio.Task[None] | None = None

    def update(self) -> None:
        """Start writing changes. Must be called on the event loop."""
        self._is_current = False
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(
                self._write_all(), name=f"resources: {self._origin}", context=Context()
            )
            self._writer.add_done_callback(retrieve_exception)

    async def flush(self) -> None:
        """Wait until all changes are written."""
        if self._writer is not None:
            await asyncio.wait((self._writer,))

    async def aclose(self) -> None:
        """Stop writing. The next start of the server writes the remaining changes."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.cancel()
            await asyncio.wait((writer,))

    async def _write_all(self) -> None:
        is_failing = False
        while not self._is_current:
            self._is_current = True
            try:
                await self._write()
            except CopilotError as error:
                self._is_current = False
                if not is_failing:
                    logger.warning("The %s are no resources for now: %s", self._origin, error)
                is_failing = True
                await asyncio.sleep(_RETRY)

    async def _write(self) -> None:
        resources = self._find_resources()
        current = {
            one.uri: one
            for one in (self._build(name, fields) for name, fields in self._read().items())
        }
        found = await resources.get(await resources.find_by_type(self._type))
        own = [one.uri for one in found if one.fields.get(_ORIGIN) == self._origin]
        await resources.delete_many(uri for uri in own if uri not in current)
        await resources.put_many(current.values())

    def _build(self, name: str, fields: JsonObject) -> Resource:
        others = {key: value for key, value in fields.items() if key != "content"}
        content = get_text(fields, "content")
        identifier = Identifier(self._type, name)
        return Resource(identifier, content, fields={**others, _ORIGIN: self._origin})
