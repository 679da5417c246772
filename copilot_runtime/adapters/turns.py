"""Arrange a conversation as alternating turns of user and model, as some providers require.

- Instructions are separated from the turns; only those after the model's last turn become the last
  turn of the user.
- Parallel calls of the model are in one turn, and their results together in the next one.
- The first and the last turn are the user's.
- Reasoning comes before the text or calls that it led to; other reasoning is omitted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, assert_never

from copilot_runtime.adapters.attachments import text_parts
from copilot_runtime.adapters.history import HistoryItem, Thought, ToolExchange, find_last_turn
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ImageMessage,
    Message,
    ResultMessage,
    TextMessage,
)

Block = dict[str, Any]
Speaker = Literal["user", "model"]

BEGIN = "(The conversation begins.)"
GO_ON = "Please go on."


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn: the content blocks of one speaker before the other one speaks."""

    speaker: Speaker
    blocks: list[Block] = field(default_factory=list[Block])


class MessageEncoder(Protocol):
    """Returns the blocks of a message; `new` is `True` for one that the user has just sent."""

    def __call__(self, message: TextMessage | ImageMessage, *, new: bool) -> list[Block]: ...


class ExchangeEncoder(Protocol):
    """Returns the block of a call and that of its result.

    `first` is `True` for the first of parallel calls.
    """

    def __call__(self, exchange: ToolExchange, *, first: bool) -> tuple[Block, Block]: ...


def build_turns(
    messages: Sequence[Message],
    items: Sequence[HistoryItem],
    *,
    encode_message: MessageEncoder,
    encode_exchange: ExchangeEncoder,
    encode_thought: Callable[[Thought], Block | None],
    model_images: bool = False,
) -> "Turns":
    """Return the turns of a prepared conversation; `messages` are the original ones.

    The encoders return blocks in the provider's format; a block `{"text": ...}` is a text.
    Without `model_images`, images of the model are in turns of the user.
    """
    turns = Turns(messages)
    new = find_last_turn(items)
    for at, item in enumerate(items):
        match item:
            case TextMessage(role="system" | "developer"):
                turns.instruct(text_parts(item.content))
            case TextMessage() | ImageMessage():
                is_text = isinstance(item, TextMessage) or model_images
                speaker = "model" if is_text and item.role != "user" else "user"
                turns.say(speaker, encode_message(item, new=at >= new))
            case Thought():
                if block := encode_thought(item):
                    turns.think(block)
            case ToolExchange():
                turns.call(item, encode_exchange)
            case _:
                assert_never(item)
    turns.finish()
    return turns


class Turns:
    """A builder: add items in order, call `finish`, then read `instructions` and `turns`."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.instructions: list[Block] = []
        self.turns: list[Turn] = []
        self.stable: Turn | None = None
        """After `finish`: the last turn that the next request will contain, too."""
        self._answers = group_calls(messages)
        self._closing: list[Block] = []  # instructions that may become the last turn
        self._thoughts: list[Block] = []  # reasoning before the model's next text or call
        self._results: list[Block] = []  # results of the calls in the current turn
        self._answer: str | None = None

    def instruct(self, blocks: Sequence[Block]) -> None:
        """Add instructions."""
        self._closing.extend(blocks)

    def think(self, block: Block) -> None:
        """Add reasoning, which is placed before the model's next text or call."""
        self._thoughts.append(block)

    def say(self, speaker: Speaker, blocks: Sequence[Block]) -> None:
        """Add blocks of one speaker."""
        self._add_results()
        thoughts, self._thoughts = self._thoughts, []
        self._add(speaker, [*thoughts, *blocks] if speaker == "model" else blocks)

    def call(self, exchange: ToolExchange, encode: ExchangeEncoder) -> None:
        """Add a call and its result."""
        id = exchange.call.id
        answer = self._answers.get(id, id)
        first = not self._results or answer != self._answer
        if first:
            self._add_results()
        self._answer = answer
        call, result = encode(exchange, first=first)
        self._add("model", [*self._thoughts, call])
        self._thoughts = []
        self._results.append(result)

    def finish(self) -> None:
        """Complete the turns, so that the first and the last one are the user's."""
        self._add_results()
        self.stable = self.turns[-1] if self.turns else None
        closing, self._closing = self._closing, []
        if self.turns and self.turns[-1].speaker == "model":
            self._add("user", closing or [{"text": GO_ON}])
        else:
            self.instructions += closing
        if not self.turns:
            self._add("user", [{"text": GO_ON}])
        elif self.turns[0].speaker == "model":
            self.turns.insert(0, Turn("user", [{"text": BEGIN}]))

    def resumes_without_thought(
        self, is_result: Callable[[Block], bool], is_thought: Callable[[Block], bool]
    ) -> bool:
        """Return whether the model continues after calls that no reasoning precedes."""
        at = len(self.turns)
        while at and is_result(self.turns[at - 1].blocks[0]):
            at -= 2
        return 0 <= at < len(self.turns) - 1 and not is_thought(self.turns[at].blocks[0])

    def _add_results(self) -> None:
        if self._results:
            results, self._results = self._results, []
            self._add("user", results)

    def _add(self, speaker: Speaker, blocks: Sequence[Block]) -> None:
        if not blocks:
            return
        self.instructions += self._closing
        self._closing = []
        if not self.turns or self.turns[-1].speaker != speaker:
            self.turns.append(Turn(speaker))
        self.turns[-1].blocks.extend(blocks)


def group_calls(messages: Sequence[Message]) -> Mapping[str, str]:
    """Return a mapping from call id to answer: the parent, or a number for adjacent calls.

    Calls with the same answer were made in parallel.
    """
    answers: dict[str, str] = {}
    number = 0
    for message in messages:
        if isinstance(message, ActionExecutionMessage):
            answers[message.id] = message.parent_id or f"#{number}"
        elif isinstance(message, ResultMessage | TextMessage | ImageMessage):
            number += 1
    return answers
