"""Context windows: what belongs to a conversation, and the same within a budget of tokens.

To optimise a window, equal items become one, large ones are trimmed, and the oldest are summarised,
each step only as far as the budget needs it. The memory and its resources stay as they are.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace

from copilot_runtime.base.errors import Misuse, NotFound
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.knowledge.access import FULL_ACCESS, Access, require
from copilot_runtime.extensions.knowledge.identifiers import (
    Identifier,
    hash_values,
    strip_namespace,
)
from copilot_runtime.extensions.knowledge.memory.memories import (
    SUMMARY,
    WINDOW,
    Memories,
    WindowOptimization,
    count_tool_tokens,
    cut_resource,
    load_optimization,
    save_optimization,
)
from copilot_runtime.extensions.knowledge.memory.window import (
    RESULT,
    TOOL,
    is_in_conversation,
    trim_group,
)
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex, VersionConflict
from copilot_runtime.extensions.knowledge.tokens import count_tokens, cut_text

Summarize = Callable[[str, int], Awaitable[str]]
"""Summarises a text to about the given number of tokens. May raise any exception."""

_SHARE = 4
"""An item or a summary gets at most one fourth of a budget that is exceeded."""

_MOST_SUMMARY = 1_000
_LEAST_SUMMARY = 8
"""Minimum number of tokens of a summary."""
_MOST_INPUT = 60_000
"""Maximum number of input tokens of a summary, shared equally by the items."""
_ATTEMPTS = 5

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """The resources of a window, the oldest first, trimmed where necessary."""

    id: str
    """The URI of the conversation."""
    resources: tuple[Resource, ...]

    @property
    def tokens(self) -> int:
        """Total number of tokens."""
        return sum(map(_count, self.resources))


@dataclass(frozen=True, slots=True)
class OptimizationResult:
    """The result of an optimisation."""

    successful: bool
    """Whether the window is within its budget now."""
    optimized: bool
    """Whether anything has changed."""


@dataclass(slots=True, eq=False)
class ContextWindows:
    """Reads and optimises context windows.

    Args:
        memories: The memories of conversations.
        budget: Default maximum number of tokens of an optimised window.
        summarize: Summarises the items that do not fit. Without it, or if it fails, a sentence
            lists the omitted items with their first words.
        timeout: Timeout of a summary, in seconds.
    """

    memories: Memories
    _: KW_ONLY
    budget: int = 8_000
    summarize: Summarize | None = None
    timeout: float = 60.0

    async def get(self, id: Identifier | str, *, access: Access = FULL_ACCESS) -> ContextWindow:
        """Return the readable part of the window of a conversation.

        That is its memory; of a conversation without one, the resources below it. Raises
        `NotFound` if there is neither, `AccessDenied`, and `Misuse` for a malformed URI.
        """
        uri = strip_namespace(str(id))
        identifiers = await self._list(uri, access)
        optimization = await load_optimization(self._resources, uri)
        return await self._read(uri, optimization.apply(identifiers), optimization, access)

    async def optimize(
        self,
        window: ContextWindow | Identifier | str,
        budget: int | None = None,
        *,
        access: Access = FULL_ACCESS,
        write: Access = FULL_ACCESS,
    ) -> OptimizationResult:
        """Optimise a window to fit a budget of tokens.

        Of a `ContextWindow`, only its own items are changed, not those added meanwhile. The newest
        item always stays. `access` restricts the items that are read and summarised, and `write`
        must allow writing the conversation. The operation is idempotent. Raises the errors of
        `get`, and `VersionConflict` after repeated concurrent changes.
        """
        budget = self.budget if budget is None else budget
        if budget <= 0:
            raise Misuse(f"The budget of a window is {budget}: it is a number of tokens above 0.")
        uri = strip_namespace(str(window.id if isinstance(window, ContextWindow) else window))
        own = {it.uri for it in window.resources} if isinstance(window, ContextWindow) else None
        await require(write, [uri])
        for _ in range(_ATTEMPTS - 1):
            with suppress(VersionConflict):
                return await self._optimize(uri, budget, own, access)
        return await self._optimize(uri, budget, own, access)

    @property
    def _resources(self) -> ResourceIndex:
        return self.memories.resources

    async def _list(self, uri: str, access: Access) -> list[Identifier]:
        """Return the identifiers of a memory, or else the descendants of a resource."""
        if identifiers := await self.memories.read(uri, access=access):
            return identifiers
        found = await self._resources.find_by_prefix(uri, access=access)
        if not found:
            raise report_missing()
        return [it for it in found if str(it) != uri and it.type not in (WINDOW, SUMMARY)]

    async def _read(
        self,
        uri: str,
        identifiers: Sequence[Identifier],
        optimization: WindowOptimization,
        access: Access,
    ) -> ContextWindow:
        found = await self._resources.get_visible(identifiers, access)
        trimmed = optimization.trimmed
        resources = (
            cut_resource(it, trimmed[it.uri])
            if it.uri in trimmed and _count(it) > trimmed[it.uri]
            else it
            for it in found
        )
        return ContextWindow(uri, tuple(resources))

    async def _optimize(
        self, uri: str, budget: int, own: set[str] | None, access: Access
    ) -> OptimizationResult:
        identifiers = await self._list(uri, access)
        before = await load_optimization(self._resources, uri)
        window = await self._read(uri, before.apply(identifiers), before, access)
        work = _Work(before, window.resources, budget, own)
        work.merge_equal()
        work.trim_large()
        if group := work.choose_oldest():
            await self._summarize(uri, work, group)
        work.trim_newest()
        after = work.result
        if after == before:
            return OptimizationResult(work.fits, optimized=False)
        await save_optimization(self._resources, uri, after)
        for summary in before.summaries.keys() - after.summaries.keys():
            await self._resources.delete(summary)
        return OptimizationResult(work.fits, optimized=True)

    async def _summarize(self, uri: str, work: "_Work", items: Sequence[Resource]) -> None:
        """Replace items, and the items that they stand for, with one summary."""
        covered = [name for it in items for name in work.expand(it.uri)]
        limit = work.summary_limit
        text = await self._write_summary(items, len(covered), limit)
        name = hash_values(*covered, text)
        summary = Resource(
            Identifier(SUMMARY, name, uri, tokens=min(limit, count_tokens(text))),
            text,
            role="system",
            fields={"items": len(covered)},
        )
        await self._resources.put(summary)
        work.replace_by_summary(summary, items, covered)

    async def _write_summary(self, items: Sequence[Resource], count: int, limit: int) -> str:
        """Return the model's summary, or a fixed sentence if the model fails."""
        if self.summarize is not None:
            share = max(1, _MOST_INPUT // len(items))
            texts = (f"{it.role or it.id.type}: {cut_text(it.content, share)}" for it in items)
            try:
                async with asyncio.timeout(self.timeout):
                    if text := (await self.summarize("\n\n".join(texts), limit)).strip():
                        return cut_text(text, limit)
                logger.warning("The model wrote no summary: a sentence stands in its place.")
            except Exception as error:  # models raise anything, and nothing is lost by it
                logger.warning("Nothing is summarised: %s", error or type(error).__name__)
        return _describe_gap(items, count, limit)


def report_missing() -> NotFound:
    """Return the error of a conversation that does not exist, or is hidden."""
    return NotFound("There is no such conversation.")


class _Work:
    """The state of one optimisation: its decisions, and the resulting window."""

    def __init__(
        self,
        before: WindowOptimization,
        resources: Iterable[Resource],
        budget: int,
        own: set[str] | None,
    ) -> None:
        self.result = before
        self._items = {it.uri: it for it in resources}
        self._tokens = {uri: _count(it) for uri, it in self._items.items()}
        self._excess = sum(self._tokens.values()) - budget
        """Number of tokens above the budget."""
        self._budget = budget
        self._newest = _find_newest([*self._items.values()])
        self._own = self._items.keys() if own is None else own

    @property
    def fits(self) -> bool:
        """Whether the window is within its budget."""
        return self._excess <= 0

    @property
    def summary_limit(self) -> int:
        return max(1, min(self._budget // _SHARE, _MOST_SUMMARY))

    def expand(self, uri: str) -> list[str]:
        """Return the URIs that an item stands for; its own if it is not a summary."""
        return self.result.find_sources(uri) if uri in self.result.summaries else [uri]

    def merge_equal(self) -> None:
        """Replace equal items with the first of them.

        Equal messages of a conversation are kept, unless they directly follow each other.
        """
        first: dict[bytes, str] = {}
        previous = b""
        for uri, item in [*self._items.items()]:
            if uri in self.result.trimmed:  # its beginning is not all of it
                continue
            key = _build_key(item)
            is_talk = is_in_conversation(item.id.parent)
            is_again = key in first and (not is_talk or key == previous)
            previous = key if is_talk else previous
            if is_again and self._may_change(uri) and item.id.type != RESULT and item.content:
                replaced = {**self.result.replaced, uri: first[key]}
                self.result = replace(self.result, replaced=replaced)
                self._remove(uri)
            else:
                first.setdefault(key, uri)

    def trim_large(self) -> None:
        """Trim items above their share, the oldest first, until the window fits."""
        limit = max(self._budget // _SHARE, 1)
        for uri, item in self._items.items():
            if self.fits:
                return
            if self._tokens[uri] > limit and self._may_change(uri) and item.id.type != TOOL:
                self._trim(uri, limit)

    def choose_oldest(self) -> list[Resource]:
        """Return the oldest items, calls with their results, that a summary must replace."""
        chosen: list[Resource] = []
        gain = -self.summary_limit
        for group in _group_results(self._items.values()):
            if self.fits or gain >= self._excess:
                break
            if all(self._may_change(it.uri) and it.id.type != TOOL for it in group):
                chosen += group
                gain += sum(self._tokens[it.uri] for it in group)
        is_worth_it = gain > 0 and self.summary_limit >= _LEAST_SUMMARY
        return chosen if is_worth_it else []

    def replace_by_summary(
        self, summary: Resource, items: Sequence[Resource], covered: Iterable[str]
    ) -> None:
        """Replace items, and the items that they stand for, with a summary."""
        uris = {*covered}
        pairs = {uri: by for uri, by in self.result.replaced.items() if by in uris}
        summaries = {
            uri: tokens
            for uri, tokens in self.result.summaries.items()
            if uri not in {it.uri for it in items}
        }
        self.result = replace(
            self.result,
            replaced={**self.result.replaced, **dict.fromkeys([*uris, *pairs], summary.uri)},
            trimmed={uri: it for uri, it in self.result.trimmed.items() if uri not in uris},
            summaries={**summaries, summary.uri: _count(summary)},
        )
        for item in items:
            self._remove(item.uri)
        self._excess += _count(summary) - self._tokens.get(summary.uri, 0)
        self._tokens[summary.uri] = _count(summary)

    def trim_newest(self) -> None:
        """Trim the newest item and its results to the remaining budget."""
        group = [it for it in self._items.values() if it.uri in self._newest]
        size = sum(self._tokens[it.uri] for it in group)
        room = size - self._excess
        if self.fits or room <= 0 or any(it.id.type == TOOL for it in group):
            return
        sized = [replace(it.id, tokens=self._tokens[it.uri]) for it in group]
        for identifier in trim_group(sized, room) or ():
            if (tokens := identifier.tokens or 0) < self._tokens[str(identifier)]:
                self._trim(str(identifier), tokens)

    def _may_change(self, uri: str) -> bool:
        return uri in self._own and uri not in self._newest

    def _trim(self, uri: str, tokens: int) -> None:
        self.result = replace(self.result, trimmed={**self.result.trimmed, uri: tokens})
        self._excess += tokens - self._tokens[uri]
        self._tokens[uri] = tokens

    def _remove(self, uri: str) -> None:
        self._excess -= self._tokens.pop(uri)
        del self._items[uri]


def _count(resource: Resource) -> int:
    tokens = resource.id.tokens or 0
    return tokens or count_tool_tokens(resource) if resource.id.type == TOOL else tokens


def _build_key(resource: Resource) -> bytes:
    """Return a key that is equal for equal resources."""
    fields: Mapping[str, object] = resource.fields
    return dumps([resource.id.type, resource.role, resource.format, resource.content, {**fields}])


def _group_results(resources: Iterable[Resource]) -> list[list[Resource]]:
    """Group each item with the results that follow it."""
    groups: list[list[Resource]] = []
    for resource in resources:
        if groups and resource.id.type == RESULT:
            groups[-1].append(resource)
        else:
            groups.append([resource])
    return groups


def _find_newest(resources: Sequence[Resource]) -> set[str]:
    """Return the URIs of the conversation's newest item and its results, or of the last item."""
    talk = [it for it in resources if is_in_conversation(it.id.parent) and it.id.type != TOOL]
    groups = _group_results(talk or resources)
    return {it.uri for it in groups[-1]} if groups else set()


def _describe_gap(items: Sequence[Resource], count: int, limit: int) -> str:
    """Return a sentence about omitted items, with the first words of as many as fit."""
    tokens = sum(map(_count, items))
    head = f"{count} older items ({tokens} tokens) are left out here, and still stored."
    begins = (f"- {it.role or it.id.type}: {cut_text(it.content, 12)}" for it in items)
    return cut_text("\n".join([head, *begins]), limit)
