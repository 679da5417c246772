"""Fits the requests of an assistant into its token budget.

A request consists of the assistant's instructions, its tasks, the available tools and context, and
the conversation, in this order. The first three are complete; the conversation is trimmed to the
remaining budget.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar, assert_never

from copilot_runtime.adapters.attachments import IMAGE_TOKENS, estimate_tokens
from copilot_runtime.adapters.media.results import replace_text, split_results
from copilot_runtime.adapters.tools import select_tools
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ActivityMessage,
    AgentStateMessage,
    ImageMessage,
    MediaPart,
    Message,
    ReasoningMessage,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.memory.window import (
    CONVERSATION,
    MESSAGE,
    RESULT,
    Allocation,
    NewestRules,
    WindowRules,
    find_rules,
)
from copilot_runtime.extensions.knowledge.tokens import count_json_tokens, count_tokens, cut_text

T = TypeVar("T")

_CURRENT = NewestRules()
_ALL = Allocation(tools=0, context=0, conversation=1)
_CONVERSATION = f"{CONVERSATION}.c"
_LEAST = 50
"""Minimum number of tokens of a truncated result; a shorter start would be useless."""

_NO_FILES = "[Its files are left out: they do not fit into the budget.]"

_LEAST_HISTORY = 16
"""Minimum number of tokens for older messages; a message of a few words would be useless."""

_LONGEST_TOKEN = 8
"""Upper bound of characters per token, except in texts that are mostly whitespace."""


def calculate_budget(
    tokens: int, assistant: int, tools: Iterable[int] = (), tasks: Iterable[int] = ()
) -> int:
    """Return the tokens left beside an assistant, its tools and its tasks: at least 0."""
    return max(0, tokens - assistant - sum(tools) - sum(tasks))


def share_results(budget: int, share: float, calls: int) -> int:
    """Return the token limit for each of several call results, as a share of a budget."""
    return math.floor(budget * share + 0.5) // max(1, calls)


def order_messages(
    assistant: Sequence[T],
    tasks: Sequence[T] = (),
    tools: Sequence[T] = (),
    context: Sequence[T] = (),
    conversation: Sequence[T] = (),
) -> list[T]:
    """Return the parts of a request in the order in which models read them."""
    return [*assistant, *tasks, *tools, *context, *conversation]


class BudgetWindow:
    """Fits requests into a token budget. One instance serves one run, and caches token counts.

    Instructions, tools and the maximum answer are subtracted first. The question and all later
    messages stay, with long call results truncated. Older messages are selected by the rules. The
    results of one turn share a part of the budget.

    Args:
        budget: Tokens of a request and its answer.
        rules: How older messages are selected: a name of `RULES`.
        allocation: Its share for context is that of a turn's results.
        name: The assistant, for error messages.
    """

    def __init__(
        self,
        budget: int,
        *,
        rules: str | WindowRules = "newest",
        allocation: Allocation | None = None,
        name: str = "",
    ) -> None:
        self.budget = budget
        self.allocation = allocation or Allocation()
        self.name = name
        self._is_newest = rules == "newest"
        self._rules = find_rules(rules) if isinstance(rules, str) else rules
        self._counts: dict[str, int] = {}

    def fit(self, request: ChatRequest) -> ChatRequest:
        """Return a request that fits: the same one if it already does.

        Raises `LimitExceeded` if instructions and tools alone leave no room for a question.
        """
        request = _split_results(request)
        system = [one for one in request.messages if _instructs(one)]
        talk = [one for one in request.messages if not _instructs(one)]
        room = self._find_room(request, system)
        cut = self._cut_results(talk, room)
        if sum(map(self._count, cut)) <= room:
            if all(one is other for one, other in zip(cut, talk, strict=True)):
                return request
            return replace(request, messages=order_messages(system, conversation=cut))
        start = _find_question(cut)
        current = self._select(cut[start:], room, _CURRENT, _ALL, is_one=True)
        if not current:  # fewer tokens than messages: keep the newest
            question = self._cut(cut[start], room // 2)
            rest = room - self._count(question)
            current = [question, *self._select(cut[start + 1 :], rest, _CURRENT, _ALL)]
        left = room - sum(map(self._count, current))
        allocation = _ALL if self._is_newest else self.allocation
        earlier = self._select(cut[:start], left, self._rules, allocation)
        return replace(request, messages=order_messages(system, conversation=[*earlier, *current]))

    def _find_room(self, request: ChatRequest, system: Sequence[Message]) -> int:
        """Return the number of tokens available for the conversation."""
        answer = min(request.parameters.max_tokens or 0, self.budget // 2)
        assistant = sum(map(self._count, system))
        tools = [count_json_tokens(tool) for tool in select_tools(request.actions)]
        room = calculate_budget(self.budget - answer, assistant, tools)
        if not room:
            raise LimitExceeded(
                f"The budget of the assistant {self.name!r} is {self.budget} tokens. Its "
                f"instructions have {assistant}, its tools {sum(tools)}, and its answer may have "
                f"{answer}: there is no room for the conversation.",
                hint="Raise 'budget' in its file, or give it fewer tools.",
            )
        return room

    def _cut_results(self, talk: Sequence[Message], room: int) -> list[Message]:
        """Return a conversation in which each turn's results keep to their share."""
        cut = [*talk]
        for turn in _group_turns(talk):
            results = [at for at in turn if isinstance(talk[at], ResultMessage)]
            limit = max(_LEAST, share_results(room, self.allocation.context, len(results)))
            for at in results:
                cut[at] = self._cut(talk[at], limit)
        return cut

    def _select(
        self,
        messages: Sequence[Message],
        room: int,
        rules: WindowRules,
        allocation: Allocation,
        *,
        is_one: bool = False,
    ) -> list[Message]:
        """Return the messages that the rules select for so many tokens."""
        if room < (1 if is_one else _LEAST_HISTORY) or not messages:
            return []
        turns = [range(len(messages))] if is_one else _group_turns(messages)
        identifiers = [
            Identifier(
                MESSAGE if place == 0 else RESULT,
                str(at),
                _CONVERSATION,
                tokens=self._count(messages[at]),
            )
            for turn in turns
            for place, at in enumerate(turn)
        ]
        window = rules.select(identifiers, room, allocation)
        return [self._cut(messages[int(it.name)], it.tokens or 0) for it in window.conversation]

    def _count(self, message: Message) -> int:
        match message:
            case TextMessage(content=text):
                media = (part for part in message.parts if isinstance(part, MediaPart))
                return self._count_text(text) + sum(map(estimate_tokens, media))
            case ActionExecutionMessage():
                return self._count_text(message.name) + self._count_text(message.arguments)
            case ResultMessage():
                files = (part for part in message.parts if isinstance(part, MediaPart))
                return self._count_text(message.result) + sum(map(estimate_tokens, files))
            case ImageMessage():
                return IMAGE_TOKENS
            case ReasoningMessage(content=text):
                return self._count_text(text)
            case AgentStateMessage() | ActivityMessage():
                return 0  # not sent to models
            case _:
                assert_never(message)

    def _count_text(self, text: str) -> int:
        if (count := self._counts.get(text)) is None:
            count = self._counts[text] = count_tokens(text)
        return count

    def _cut(self, message: Message, tokens: int) -> Message:
        """Return a message with its text truncated to so many tokens."""
        if self._count(message) <= tokens:
            return message
        match message:
            case TextMessage(content=text):
                return replace(message, content=_cut_text(text, tokens))
            case ResultMessage():
                return self._cut_result(message, tokens)
            case ActionExecutionMessage(arguments=text):
                tokens = max(1, tokens - self._count_text(message.name))
                return replace(message, arguments=_cut_text(text, tokens))
            case ImageMessage() | ReasoningMessage() | AgentStateMessage() | ActivityMessage():
                return message
            case _:
                assert_never(message)

    def _cut_result(self, result: ResultMessage, tokens: int) -> ResultMessage:
        """Return a result with its text truncated, and with its files if they fit."""
        left = tokens - (self._count(result) - self._count_text(result.result))
        if left >= (_LEAST if result.result else 0):
            return replace_text(result, _cut_text(result.result, left))
        text = f"{_NO_FILES}\n{result.result}" if left < tokens else result.result
        return replace(result, result=_cut_text(text, tokens), parts=())


def _split_results(request: ChatRequest) -> ChatRequest:
    """Return a request whose results have their files as parts, not as base64 in their texts."""
    messages = split_results(request.messages)
    if all(one is other for one, other in zip(messages, request.messages, strict=True)):
        return request
    return replace(request, messages=messages)


def _cut_text(text: str, tokens: int) -> str:
    """Return the start of a text; for a huge one, only a part is counted."""
    head = text[: tokens * _LONGEST_TOKEN + 1]
    cut = cut_text(head, tokens)
    return cut if len(head) == len(text) or cut is not head else f"{cut}…"


def _instructs(message: Message) -> bool:
    return isinstance(message, TextMessage) and message.role in ("system", "developer")


def _find_question(talk: Sequence[Message]) -> int:
    """Return the index of the last user message, or of the last turn without one."""
    for at in reversed(range(len(talk))):
        message = talk[at]
        if isinstance(message, TextMessage | ImageMessage) and message.role == "user":
            return at
    turns = _group_turns(talk)
    return turns[-1][0] if turns else 0


def _group_turns(messages: Sequence[Message]) -> list[list[int]]:
    """Return the indexes of messages, with calls and their results grouped."""
    turns: list[list[int]] = []
    previous: Message | None = None
    for at, message in enumerate(messages):
        match message:
            case TextMessage() | ImageMessage():
                begins = not isinstance(previous, ReasoningMessage) or message.role == "user"
            case ActionExecutionMessage() | ReasoningMessage():
                begins = isinstance(previous, ResultMessage | None) or (
                    isinstance(previous, TextMessage | ImageMessage) and previous.role == "user"
                )
            case ResultMessage() | AgentStateMessage() | ActivityMessage():
                begins = previous is None
            case _:
                assert_never(message)
        if begins:
            turns.append([])
        turns[-1].append(at)
        previous = message
    return turns
