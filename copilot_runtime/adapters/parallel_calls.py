"""Which calls the model made at once."""

from collections.abc import Mapping, Sequence

from copilot_runtime.messages import (
    ActionExecutionMessage,
    ImageMessage,
    Message,
    ResultMessage,
    TextMessage,
)


def answers_of(messages: Sequence[Message]) -> Mapping[str, str]:
    """Return call → the answer it is a part of: its parent, or who stands next to it."""
    answers: dict[str, str] = {}
    number = 0
    for message in messages:
        if isinstance(message, ActionExecutionMessage):
            answers[message.id] = message.parent_id or f"#{number}"
        elif isinstance(message, ResultMessage | TextMessage | ImageMessage):
            number += 1
    return answers
