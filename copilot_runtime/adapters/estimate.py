"""Estimates the tokens of a request that was stopped or failed before the provider counted them.

Providers send their counts with the last event of a response. A request that ends earlier has used
tokens, too: about one for each `CHARACTERS_PER_TOKEN` characters that were sent or streamed.
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
    """Count an estimate for a request that has ended without the provider's counts.

    A request that fails or ends before the first output has used no tokens. With `is_left`, the
    reader did not wait for the end, so the input counts in any case.

    Args:
        adapter: The adapter that sent the request.
        request: The request.
        events: The streamed events.
        usage: The provider's counts, if it sent any.
        is_left: Whether the answer was stopped, or its reader disconnected.
        count: Called with the estimate; None: the counter of the current run, if it has one.
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
    """Return an estimate of a request's usage; `characters` is the length of the output."""
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
    """Return whether a usage has token counts: some providers send the stop reason only."""
    return usage.input_tokens is not None or usage.output_tokens is not None


def measure_event(event: Event) -> int:
    """Return the number of characters in an event that the model has generated."""
    match event:
        case TextMessageContent(content=text) | ReasoningContent(content=text):
            return len(text)
        case ActionExecutionArgs(delta=text) | ActionExecutionStart(name=text):
            return len(text)
        case _:
            return 0


def _measure_message(message: Message) -> int:
    """Return the number of characters of a message, with an equivalent for its media."""
    tokens = 0
    if isinstance(message, ImageMessage):
        tokens = IMAGE_TOKENS
    elif isinstance(message, TextMessage) and message.parts:
        media = (part for part in message.parts if isinstance(part, MediaPart))
        tokens = sum(map(estimate_tokens, media))
    return count_characters(message) + tokens * CHARACTERS_PER_TOKEN
