"""About what a request to a model used whose provider has not said it: it was stopped, or failed.

Providers count with the last event of an answer. Who leaves before that has used tokens all the
same: a token for each `CHARACTERS_PER_TOKEN` of what was sent, and of what was streamed.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

from copilot_runtime.adapters.context_window import count_characters
from copilot_runtime.adapters.history import CHARACTERS_PER_TOKEN
from copilot_runtime.adapters.media import IMAGE_TOKENS, estimate_tokens
from copilot_runtime.adapters.profiles import find_profile
from copilot_runtime.adapters.streaming import encode_body
from copilot_runtime.adapters.tools import select_tools
from copilot_runtime.adapters.windowed import WindowedAdapter
from copilot_runtime.api.adapter import Adapter, ChatRequest
from copilot_runtime.api.current_run import CURRENT_RUN
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionStart,
    Event,
    ReasoningContent,
    TextMessageContent,
    Usage,
)
from copilot_runtime.api.messages import ImageMessage, MediaPart, Message, TextMessage
from copilot_runtime.base.errors import CopilotError

CountUsage = Callable[[Usage], None]


def count_estimate(
    adapter: Adapter,
    request: ChatRequest,
    events: Sequence[Event],
    usage: Usage | None,
    *,
    is_left: bool,
    count: CountUsage | None = None,
) -> None:
    """Count an estimate for a request that has ended without the counts of its provider.

    A request that fails, or ends, before the model says anything has used nothing. With `is_left`,
    nobody waited for its end: what was sent counts in any case.

    Args:
        adapter: The adapter that was asked.
        request: What was sent.
        events: What was streamed.
        usage: What the provider counted, if it did.
        is_left: Whether the answer was stopped, or its reader has left.
        count: Takes the estimate; None: whoever counts for the current run, if somebody does.
    """
    if count is None:
        slot = CURRENT_RUN.get(None)
        count = slot.count_usage if slot is not None else None
    if count is None or (usage is not None and has_counts(usage)):
        return
    characters = sum(map(measure_event, events))
    if characters or is_left:
        count(estimate_usage(adapter, request, characters))


def estimate_usage(adapter: Adapter, request: ChatRequest, characters: int) -> Usage:
    """Return about what a request used; `characters` is how many were streamed."""
    if isinstance(adapter, WindowedAdapter):
        with suppress(CopilotError):
            request = adapter.window.fit(request)
    endpoint = adapter.endpoint(request)
    sent = sum(map(_measure_message, request.messages))
    if request.actions:
        sent += len(encode_body(select_tools(request.actions)))
    most = find_profile(endpoint.model).context_tokens  # what is longer was shortened, or refused
    return Usage(
        model=endpoint.model,
        provider=endpoint.provider,
        input_tokens=min(sent // CHARACTERS_PER_TOKEN, most),
        output_tokens=-(-characters // CHARACTERS_PER_TOKEN),
    )


def has_counts(usage: Usage) -> bool:
    """Return whether a provider has counted tokens: some say only why an answer ended."""
    return usage.input_tokens is not None or usage.output_tokens is not None


def measure_event(event: Event) -> int:
    """Return how many characters of an event the model has written."""
    match event:
        case TextMessageContent(content=text) | ReasoningContent(content=text):
            return len(text)
        case ActionExecutionArgs(delta=text) | ActionExecutionStart(name=text):
            return len(text)
        case _:
            return 0


def _measure_message(message: Message) -> int:
    """Return how many characters a message has, with those that its media stand for."""
    tokens = 0
    if isinstance(message, ImageMessage):
        tokens = IMAGE_TOKENS
    elif isinstance(message, TextMessage) and message.parts:
        media = (part for part in message.parts if isinstance(part, MediaPart))
        tokens = sum(map(estimate_tokens, media))
    return count_characters(message) + tokens * CHARACTERS_PER_TOKEN
