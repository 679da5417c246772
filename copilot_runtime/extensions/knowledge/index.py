"""The interface of all indexes, the filter of a search, and an index of identifiers."""

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import JsonObject, JsonValue, to_text
from copilot_runtime.extensions.knowledge.access import FULL_ACCESS, Access, select
from copilot_runtime.extensions.knowledge.identifiers import (
    Identifier,
    check_uri,
    contains,
    decode_identifier,
    encode_identifier,
    find_thing,
    strip_namespace,
)
from copilot_runtime.storage import Storage
from copilot_runtime.storage.jsonlines import JsonLines, encode_lines, salvage_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions of a search, applied in order: access, type, prefix, threshold, limit, tokens."""

    access: Access = FULL_ACCESS
    type: str = ""
    """`common.Message`, or nothing for all types."""
    prefix: str = ""
    """The URI or URN of a resource, which includes the resources below it."""
    distinct: bool = False
    """Whether the vectors of a thing in several files are one result, the best of them."""
    threshold: float | None = None
    """Minimum score, for indexes with scores."""
    limit: int = 0
    """Maximum number of results; unlimited if zero or less."""
    max_tokens: int = 0
    """Maximum total of tokens: the first result that exceeds it ends the list; 0 is unlimited."""

    def __post_init__(self) -> None:
        if self.prefix:
            uri = strip_namespace(self.prefix).removesuffix("/")
            object.__setattr__(self, "prefix", check_uri(uri))

    def matches(self, identifier: Identifier) -> bool:
        """Return whether a resource matches type and prefix, without checking access."""
        if self.type and identifier.type != self.type:
            return False
        return not self.prefix or contains(self.prefix, str(identifier))

    def get_key(self, uri: str) -> str:
        """Return a key by which results are grouped: only the best of each group is returned."""
        return (self.distinct and find_thing(uri)) or uri

    def choose_questions(self, uris: Sequence[str]) -> Sequence[str]:
        """Return the URIs to judge; without any the prefix, so that a guess of it takes as long."""
        return uris or [self.prefix] if self.prefix else uris

    async def select(self, found: Iterable[Identifier]) -> list[Identifier]:
        """Return the identifiers that match access, type and prefix, limited as by `cut`."""
        return self.cut(await select(self.access, filter(self.matches, found)))

    def cut(self, found: Iterable[Identifier]) -> list[Identifier]:
        """Return the first identifiers within the limits of count and tokens.

        Raises `Misuse` if tokens are counted and one has none.
        """
        results: list[Identifier] = []
        left = self.max_tokens
        for identifier in found:
            if self.limit > 0 and len(results) >= self.limit:
                break
            if self.max_tokens > 0:
                if identifier.tokens is None:
                    fields = to_text(encode_identifier(identifier))
                    raise Misuse(f"Identifier missing tokens field: {fields}")
                left -= identifier.tokens
                if left < 0:
                    break
            results.append(identifier)
        return results


logger = logging.getLogger(__name__)

ItemT = TypeVar("ItemT", contravariant=True)
QueryT = TypeVar("QueryT", contravariant=True)

EVERYTHING = Filter()


@dataclass(frozen=True, slots=True)
class Item:
    """The record of one resource in an index."""

    identifier: Identifier
    fields: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])


class Index(ABC, Generic[ItemT, QueryT]):
    """Base class of indexes, each with its own type of query."""

    @abstractmethod
    async def add(self, *items: ItemT) -> None:
        """Add items. An item with an existing identifier replaces the old one."""

    @abstractmethod
    async def get(self, ids: "Iterable[Identifier | str] | None") -> list[Identifier]:
        """Return the identifiers that exist, in the order of `ids`; an empty list for `None`."""

    @abstractmethod
    async def has(self, id: "Identifier | str") -> bool:
        """Return whether the index contains an identifier."""

    @abstractmethod
    async def query(self, query: QueryT, filter: Filter = EVERYTHING) -> list[Identifier]:
        """Return the identifiers that match query and filter, best or oldest first."""

    async def aclose(self) -> None:
        """Write pending items, and release the resources of the index."""


class IndexBase(Index[Item, None]):
    """Items in the order in which they were first added, in memory and in one JSON Lines object.

    Each line is `{"id": <uri>, "identifier": {…}, …fields}`; a later line of an id replaces the
    earlier one, at its place.
    """

    def __init__(self, storage: Storage, key: str = "index.jsonl") -> None:
        self._lines = JsonLines(storage, key)
        self._items: dict[str, Item] | None = None
        self._reading = asyncio.Lock()
        self._writing = asyncio.Lock()

    async def add(self, *items: Item) -> None:
        items_by_uri = await self.load()
        async with self._writing:
            await self._lines.append(encode_lines(map(encode_item, items)))
            items_by_uri.update((str(item.identifier), item) for item in items)

    async def get(self, ids: Iterable[Identifier | str] | None) -> list[Identifier]:
        items = await self.load()
        return [items[uri].identifier for uri in check_ids(ids) if uri in items]

    async def has(self, id: Identifier | str) -> bool:
        return str(id) in await self.load()

    async def query(self, query: None = None, filter: Filter = EVERYTHING) -> list[Identifier]:  # noqa: ARG002
        items = await self.load()
        return await filter.select([item.identifier for item in items.values()])

    async def load(self) -> dict[str, Item]:
        """Return all items by URI; they are read from the storage once."""
        if self._items is None:
            async with self._reading:
                if self._items is None:
                    lines = salvage_lines((await self._lines.read_new()).data)
                    self._items = {str(item.identifier): item for item in self._decode(lines)}
        return self._items

    def _decode(self, lines: Iterable[JsonObject]) -> Iterator[Item]:
        """Yield the items of lines; malformed lines are skipped and logged."""
        for line in lines:
            try:
                yield decode_item(line)
            except Misuse as error:
                logger.warning("%s has a line without an item: %s", self._lines.key, error.message)


class BufferedIndex(IndexBase):
    """Writes its items together: after `flush_interval` seconds, or once there are `max_items`.

    Items are there for queries at once. What could not be written stays in the buffer, and is
    tried again after as many seconds.
    """

    def __init__(
        self,
        storage: Storage,
        key: str = "index.jsonl",
        *,
        flush_interval: float = 5.0,
        max_items: int = 1000,
    ) -> None:
        super().__init__(storage, key)
        self._interval = flush_interval
        self._max_items = max_items
        self._buffer: list[Item] = []
        self._timer: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def add(self, *items: Item) -> None:
        items_by_uri = await self.load()
        items_by_uri.update((str(item.identifier), item) for item in items)
        self._buffer += items
        if self._buffer and self._timer is None:
            self._timer = asyncio.create_task(self._flush_later())
        if len(self._buffer) >= self._max_items:
            await self.flush()

    async def flush(self) -> int:
        """Write the buffered items, and return their number.

        Raises what the storage raises; then all of them are still in the buffer.
        """
        async with self._writing:
            batch = [*self._buffer]
            await self._lines.append(encode_lines(map(encode_item, batch)))
            del self._buffer[: len(batch)]
        return len(batch)

    async def aclose(self) -> None:
        """Write the buffered items. Raises the errors of the storage."""
        self._closing.set()
        if self._timer is not None:
            await self._timer
        self._closing.clear()
        await self.flush()

    async def _flush_later(self) -> None:
        """Write the buffer after the flush interval, and retry until it is empty."""
        while self._buffer and not self._closing.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self._interval)
                break
            try:
                await self.flush()
            except Exception:
                logger.exception(
                    "%d items of %s could not be written. They are tried again in %g s.",
                    len(self._buffer),
                    self._lines.key,
                    self._interval,
                )
        self._timer = None


def encode_item(item: Item) -> JsonObject:
    """Return an item as the JSON object of its line."""
    identifier = encode_identifier(item.identifier)
    return {"id": str(item.identifier), "identifier": identifier, **item.fields}


def decode_item(line: JsonObject) -> Item:
    """Decode the item of a line. Raises `Misuse` if the line is malformed."""
    fields = {name: value for name, value in line.items() if name not in ("id", "identifier")}
    return Item(decode_identifier(line.get("identifier")), fields)


def check_ids(ids: object) -> list[str]:
    """Return identifiers as a list of URIs. Raises `Misuse` if `ids` is not iterable."""
    if ids is None:
        return []
    if isinstance(ids, str | bytes | Identifier | Mapping) or not isinstance(ids, Iterable):
        raise Misuse("ids must be an array or null")
    return [str(id) for id in ids]


Progress: TypeAlias = Callable[[int, int], None]
"""Callback with the number of processed resources and their total."""

_SKIPPED = re.compile(
    r"(?:.*/)?(?:common\.(?:Conversation|Agent|Assistant)|tool\.ToolFunction)\.", re.DOTALL
)
_UPLOAD = re.compile(r"(?:.*/)?file\.Upload\.", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport:
    """The result of an index update."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    """The reason of each failure, by URI."""
    seconds: float = 0.0


def is_indexed(uri: str) -> bool:
    """Return whether a resource belongs in the indexes.

    Conversations, agents, assistants and tools are not searched, nor the resources below them,
    except files that a user has attached to a chat.
    """
    return _SKIPPED.match(uri) is None or _UPLOAD.match(uri) is not None
