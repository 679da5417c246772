"""A conversation as turns of user and model, for providers that want them to alternate.

- Instructions stand apart, wherever they were given; only those after the last word of the model
  become the last word of the user.
- Calls that the model made at once stand in one turn, and their results together in the next.
- The first and the last turn are the user's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from copilot_runtime.messages import (
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
    """What one of them says before the other speaks."""

    speaker: Speaker
    blocks: list[Block] = field(default_factory=list[Block])


class Turns:
    """Add to it in order, then take `instructions` and `turns` once it is `finish`ed.

    A block is what the provider takes; `{"text": ...}` is one with a text.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self.instructions: list[Block] = []
        self.turns: list[Turn] = []
        self._answers = group_calls(messages)
        self._closing: list[Block] = []  # instructions that may be the last words
        self._results: list[Block] = []  # of the calls in the turn that is open
        self._answer: str | None = None

    def instruct(self, blocks: Sequence[Block]) -> None:
        """Add instructions."""
        self._closing.extend(blocks)

    def say(self, speaker: Speaker, blocks: Sequence[Block]) -> None:
        """Add what one of them says."""
        self._settle()
        self._add(speaker, blocks)

    def call(self, id: str, call: Block, result: Block) -> bool:
        """Add a call and its result. Returns whether it is the first of its answer."""
        answer = self._answers.get(id, id)
        first = not self._results or answer != self._answer
        if first:
            self._settle()
        self._answer = answer
        self._add("model", [call])
        self._results.append(result)
        return first

    def finish(self) -> None:
        """Let the user have the first and the last word."""
        self._settle()
        closing, self._closing = self._closing, []
        if self.turns and self.turns[-1].speaker == "model":
            self._add("user", closing or [{"text": GO_ON}])
        else:
            self.instructions += closing
        if not self.turns:
            self._add("user", [{"text": GO_ON}])
        elif self.turns[0].speaker == "model":
            self.turns.insert(0, Turn("user", [{"text": BEGIN}]))

    def _settle(self) -> None:
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
    """Return call → the answer it is a part of: its parent, or the calls that stand next to it.

    Calls with the same value were made at once.
    """
    answers: dict[str, str] = {}
    number = 0
    for message in messages:
        if isinstance(message, ActionExecutionMessage):
            answers[message.id] = message.parent_id or f"#{number}"
        elif isinstance(message, ResultMessage | TextMessage | ImageMessage):
            number += 1
    return answers
