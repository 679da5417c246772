"""Conversations to keep: runs as they are begun, and the events that are written of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from copilot_runtime.api import RunInput
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Event,
    RunFinished,
    RunStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.threads.store import Segment

_AROUND_TEXT = 4
_PER_CALL = 4
_WORDS = "so many words "


@dataclass(frozen=True, slots=True)
class Conversation:
    """One run and its log. Without its last event the run goes on."""

    run: RunInput
    events: Sequence[Event]

    def segment(self) -> Segment:
        """Return what is written of it when it is written at once."""
        ended = isinstance(self.events[-1], RunFinished)
        whole = self.events if ended else None
        return Segment(log_id=self.run.log_id, events=self.events, whole=whole)


def spoken(thread: str, run: str, events: int) -> Conversation:
    """Return a run of `events` events that says one text, word by word."""
    message = f"m-{run}"
    words = events - _AROUND_TEXT
    return _conversation(
        thread,
        run,
        [
            TextMessageStart(message_id=message),
            *[TextMessageContent(message_id=message, content=_WORDS) for _ in range(words)],
            TextMessageEnd(message_id=message),
        ],
    )


def called(thread: str, run: str, events: int) -> Conversation:
    """Return a run of `events` events that makes many small calls: nothing can be shortened."""
    calls = (events - 2) // _PER_CALL
    return _conversation(
        thread, run, [event for number in range(calls) for event in _call(f"{run}-{number}")]
    )


def unended(conversation: Conversation) -> Conversation:
    """Return a conversation that still goes on."""
    return Conversation(conversation.run, conversation.events[:-1])


def _call(call: str) -> Iterator[Event]:
    yield ActionExecutionStart(call_id=call, name="look_up")
    yield ActionExecutionArgs(call_id=call, delta='{"name":"a name"}')
    yield ActionExecutionEnd(call_id=call)
    yield ActionExecutionResult(call_id=call, name="look_up", result="what was found")


def _conversation(thread: str, run: str, said: Sequence[Event]) -> Conversation:
    question = TextMessage(id=f"u-{run}", role="user", content="What do you say?")
    request = RunInput(
        thread_id=thread, run_id=run, log_id=run, messages=[question], persist=True, detached=True
    )
    started = RunStarted(run_id=run, thread_id=thread, messages=[question])
    return Conversation(request, [started, *said, RunFinished()])
