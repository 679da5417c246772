"""Select the part of a memory that fits a budget of tokens."""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key
from typing import NamedTuple

from copilot_runtime.base.errors import Misuse, UnknownName
from copilot_runtime.extensions.knowledge.identifiers import Identifier

TOOL = "tool.ToolFunction"
RESULT = "tool.ToolCallMessage"
MESSAGE = "common.Message"
CONVERSATION = "common.Conversation"

_LEAST = 16
"""Minimum number of tokens of a trimmed older item; else it is omitted."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Which share of a budget each part of a window gets, from 0 to 1."""

    tools: float = 0.1
    context: float = 0.4
    conversation: float = 0.5


class Parts(NamedTuple):
    """The identifiers of tools, context and conversation, each in the order of the memory."""

    tools: Sequence[Identifier] = ()
    context: Sequence[Identifier] = ()
    conversation: Sequence[Identifier] = ()


@dataclass(frozen=True, slots=True)
class Window:
    """The selected identifiers of a memory; trimmed ones have their remaining tokens."""

    tools: tuple[Identifier, ...] = ()
    context: tuple[Identifier, ...] = ()
    """The best first; those without a score behind them, the oldest first."""
    conversation: tuple[Identifier, ...] = ()
    """The oldest first."""
    trimmed: frozenset[str] = frozenset()
    """The URIs of trimmed items."""
    left_out: tuple[Identifier, ...] = ()
    """Omitted items; of the conversation only those newer than the start of the window."""

    @property
    def tokens(self) -> int:
        """Total number of tokens."""
        return sum(map(_tokens, (*self.tools, *self.context, *self.conversation)))


class WindowRules(ABC):
    """Rules that select the identifiers of a window."""

    @abstractmethod
    def split(self, identifiers: Iterable[Identifier]) -> Parts:
        """Split identifiers into tools, context and conversation."""

    @abstractmethod
    def select(
        self, identifiers: Iterable[Identifier], budget: int, allocation: Allocation
    ) -> Window:
        """Return the window within a budget. Raises `Misuse`, also for items without tokens."""


class NewestRules(WindowRules):
    """Selects the newest items of a conversation; items that are too large are trimmed or skipped.

    * Each part gets its share; what a part leaves over, the next one gets: tools, context,
      conversation.
    * A call and its results are one: both are in the window, or none is.
    * An item that is larger than half of its part, and than what is left of it, is trimmed to half
      of that. The newest message and its results are always there, trimmed if necessary.
    * Everything in a conversation belongs to it, except uploads, which are context.
    * A tool is there as a whole, or not at all.
    """

    def split(self, identifiers: Iterable[Identifier]) -> Parts:
        tools: list[Identifier] = []
        context: list[Identifier] = []
        conversation: list[Identifier] = []
        by_parent: dict[str, list[Identifier]] = {}
        for identifier in identifiers:
            parent = identifier.parent
            part = by_parent.get(parent)
            if part is None:
                is_talk = is_in_conversation(parent) and "/file." not in parent
                part = by_parent[parent] = conversation if is_talk else context
            if identifier.type == TOOL:
                part = tools
            elif identifier.type.startswith("file."):
                part = context
            part.append(identifier)
        return Parts(tools, context, conversation)

    def select(
        self, identifiers: Iterable[Identifier], budget: int, allocation: Allocation
    ) -> Window:
        _check_shares(allocation)
        parts = self.split(identifiers)
        room = _share(budget, allocation.tools)
        tools = _take([[it] for it in parts.tools], room)
        room += _share(budget, allocation.context) - tools.tokens
        context = _take([[it] for it in _by_score(parts.context)], room, can_trim=True)
        room += _share(budget, allocation.conversation) - context.tokens
        exchanges = _group_exchanges(parts.conversation)
        room = min(room, budget - tools.tokens - context.tokens)  # shares are rounded
        conversation = _take(exchanges, room, can_trim=True, is_history=True)
        if tools.left_out:
            names = ", ".join(it.name for it in tools.left_out)
            logger.warning("There is no room for these tools in a memory window: %s.", names)
        return Window(
            tuple(tools.items),
            tuple(_in_order(context.items, parts.context)),
            tuple(reversed(conversation.items)),
            frozenset((*context.trimmed, *conversation.trimmed)),
            (*tools.left_out, *context.left_out, *conversation.left_out),
        )


class SharesRules(WindowRules):
    """The rules of Copilot-LD in November 2025: each part up to its first item that does not fit.

    Items are sorted by score, best first, or by age without scores, oldest first. Resources below a
    conversation that are not messages belong to no part.
    """

    def split(self, identifiers: Iterable[Identifier]) -> Parts:
        tools: list[Identifier] = []
        context: list[Identifier] = []
        conversation: list[Identifier] = []
        for identifier in identifiers:
            if identifier.type.startswith(TOOL):
                tools.append(identifier)
            elif not is_in_conversation(identifier.parent):
                context.append(identifier)
            elif identifier.type.startswith(MESSAGE):
                conversation.append(identifier)
        return Parts(tools, context, conversation)

    def select(
        self, identifiers: Iterable[Identifier], budget: int, allocation: Allocation
    ) -> Window:
        shares = (allocation.tools, allocation.context, allocation.conversation)
        if not budget or not all(shares):
            raise Misuse("Budget allocation is required: tools, context, conversation")
        parts = zip(self.split(identifiers), shares, strict=True)
        tools, context, conversation = (
            tuple(self.fit(part, _share(budget, share))) for part, share in parts
        )
        return Window(tools, context, conversation)

    def fit(self, identifiers: Iterable[Identifier], budget: int) -> list[Identifier]:
        """Return the identifiers that fit, those with the highest scores first."""
        by_score = sorted(identifiers, key=cmp_to_key(_compare_scores))
        return [*_take_while(by_score, budget)] if budget > 0 else []


class HistoryRules(WindowRules):
    """The rules of Copilot-LD in January 2026: all is history, the newest that fits without a gap.

    Call results at the start of the history are dropped, as their calls are missing.
    """

    def split(self, identifiers: Iterable[Identifier]) -> Parts:
        return Parts(conversation=[*identifiers])

    def select(
        self,
        identifiers: Iterable[Identifier],
        budget: int,
        allocation: Allocation,  # noqa: ARG002
    ) -> Window:
        history = self.split(identifiers).conversation
        newest = [*_take_while(reversed(history), budget)][::-1]
        start = next((at for at, it in enumerate(newest) if it.type != RESULT), len(newest))
        return Window(conversation=tuple(newest[start:]))


RULES: Mapping[str, WindowRules] = {
    "newest": NewestRules(),
    "copilot-ld-2025-11": SharesRules(),
    "copilot-ld-2026-01": HistoryRules(),
}
"""The rules of windows, by name."""


def find_rules(name: str) -> WindowRules:
    """Return rules by their name. Raises `UnknownName`."""
    try:
        return RULES[name]
    except KeyError:
        raise UnknownName("memory rules", name, RULES) from None


def is_in_conversation(parent: str) -> bool:
    """Return whether a resource with this parent is part of a conversation."""
    return any(part.startswith(f"{CONVERSATION}.") for part in parent.split("/"))


class _Selection(NamedTuple):
    """The selected items of one part of a window."""

    items: list[Identifier]
    trimmed: list[str]
    left_out: list[Identifier]
    tokens: int


def _take(
    groups: Iterable[list[Identifier]],
    budget: int,
    *,
    can_trim: bool = False,
    is_history: bool = False,
) -> _Selection:
    """Select whole groups, the most important one first.

    A group that does not fit is trimmed if it is large, else omitted; a history ends with it, so
    that it has no gap.
    """
    selection = _Selection([], [], [], 0)
    items, trimmed, left_out = selection[:3]
    left = max(0, budget)
    for group in groups:
        size = sum(map(_tokens, group))
        if size <= left:
            items += group
            left -= size
            continue
        is_newest = is_history and not items
        is_large = size > budget // 2
        cut = None
        if can_trim and (is_large or is_newest):
            cut = trim_group(group, left if is_newest else left // 2, 1 if is_newest else _LEAST)
        if cut is not None:
            items += cut
            left -= sum(map(_tokens, cut))
            trimmed += [
                str(it) for it, whole in zip(cut, group, strict=True) if it.tokens != whole.tokens
            ]
        elif is_newest or (is_history and not is_large):
            break
        else:
            left_out += group
    return selection._replace(tokens=sum(map(_tokens, items)))


def trim_group(group: Sequence[Identifier], budget: int, least: int = 1) -> list[Identifier] | None:
    """Trim the largest items of a group; `None` if one would fall below `least` tokens."""
    left = budget
    sizes = sorted(map(_tokens, group))
    for at, size in enumerate(sizes):
        limit = left // (len(sizes) - at)  # of this one, and of all that are larger
        if size > limit:
            if limit < least:
                return None
            return [it if _tokens(it) <= limit else replace(it, tokens=limit) for it in group]
        left -= size
    return [*group]


def _group_exchanges(conversation: Sequence[Identifier]) -> Iterator[list[Identifier]]:
    """Yield each item together with the results that follow it: newest group and item first."""
    group: list[Identifier] = []
    for identifier in reversed(conversation):
        group.append(identifier)
        if identifier.type != RESULT:
            yield group
            group = []
    # results at the very beginning have no call: no model accepts them


def _by_score(context: Sequence[Identifier]) -> list[Identifier]:
    """Sort by score, the best first; items without a score come last, the newest first."""
    return sorted(context, key=lambda it: -math.inf if it.score is None else it.score)[::-1]


def _in_order(items: Sequence[Identifier], context: Sequence[Identifier]) -> Iterator[Identifier]:
    """Yield the best first, then those that have no score, the oldest first."""
    yield from (it for it in items if it.score is not None)
    places = {str(it): at for at, it in enumerate(context)}
    without = [it for it in items if it.score is None]
    yield from sorted(without, key=lambda it: places[str(it)])


def _take_while(identifiers: Iterable[Identifier], budget: int) -> Iterator[Identifier]:
    left = budget
    for identifier in identifiers:
        left -= _tokens(identifier)
        if left < 0:
            return
        yield identifier


def _compare_scores(one: Identifier, other: Identifier) -> int:
    if one.score is None or other.score is None or one.score == other.score:
        return 0
    return -1 if one.score > other.score else 1


def _share(budget: int, share: float) -> int:
    return math.floor(budget * share + 0.5)  # as JavaScript rounds


def _tokens(identifier: Identifier) -> int:
    if identifier.tokens is None:
        raise Misuse(f"Identifier missing tokens field: {identifier}")
    return identifier.tokens


def _check_shares(allocation: Allocation) -> None:
    shares = (allocation.tools, allocation.context, allocation.conversation)
    if not all(0 <= share <= 1 for share in shares) or sum(shares) > 1 + 1e-9:
        raise Misuse(
            f"A budget cannot be shared as {allocation}.",
            hint="Each share is between 0 and 1, and together they are 1 at most.",
        )
