"""The span of a request to a model, with its parameters, content, usage and cost.

Reading the price data takes half a second. A background thread does so at the first request for a
cost; until then, spans have no cost, because no answer waits for it. Providers send their counts
with the last event of a response; for a request that ends earlier, its tokens are estimated: about
one for each `CHARACTERS_PER_TOKEN` characters that were sent or streamed.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from functools import cache
from importlib.util import find_spec
from operator import attrgetter
from time import time_ns

from copilot_runtime.adapters.attachments import IMAGE_TOKENS, estimate_tokens
from copilot_runtime.adapters.context_window import WindowedAdapter, count_characters, find_profile
from copilot_runtime.adapters.history import CHARACTERS_PER_TOKEN
from copilot_runtime.adapters.media.results import split_result
from copilot_runtime.adapters.message_content import render_answer, render_request
from copilot_runtime.adapters.pricing import are_prices_loaded, find_model_facts, load_prices_now
from copilot_runtime.adapters.streaming import encode_body
from copilot_runtime.adapters.tools import select_tools
from copilot_runtime.api.adapter import Adapter, ChatRequest
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionStart,
    Event,
    Events,
    ReasoningContent,
    TextMessageContent,
    Usage,
)
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ImageMessage,
    MediaPart,
    Message,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.api.run_input import CURRENT_RUN, Parameters
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.dataclass_copy import copy_with
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.content import render_tools
from copilot_runtime.telemetry.genai import end_chat_span, find_adapter_name, start_chat_span
from copilot_runtime.telemetry.span import NO_SPAN, Span

CountUsage = Callable[[Usage], None]

_get_parameters = attrgetter(
    *("temperature", "max_tokens", "top_p", "seed", "frequency_penalty", "presence_penalty"),
    *("stop", "reasoning_effort", "response_schema"),
)
_NO_PARAMETERS = _get_parameters(Parameters())
_VAGUE = ("", "langchain", "openai_responses")
"""Adapter names that do not identify the provider; the name in the span may."""


def start_chat(adapter: Adapter, request: ChatRequest, parent: Span) -> ChatRequest:
    """Start the span of a request with its parameters; return the request with the span."""
    endpoint, parameters = adapter.endpoint(request), request.parameters
    span = start_chat_span(
        parent,
        provider=endpoint.provider,
        model=endpoint.model,
        url=endpoint.url,
        in_process=endpoint.in_process,
    )
    values = _get_parameters(parameters)
    if values != _NO_PARAMETERS:
        temperature, max_tokens, top_p, seed, frequency, presence, stop, effort, schema = values
        span.set_attributes(
            {
                semconv.REQUEST_TEMPERATURE: temperature,
                semconv.REQUEST_MAX_TOKENS: max_tokens,
                semconv.REQUEST_TOP_P: top_p,
                semconv.REQUEST_SEED: seed,
                semconv.REQUEST_FREQUENCY_PENALTY: frequency,
                semconv.REQUEST_PRESENCE_PENALTY: presence,
                semconv.REQUEST_STOP_SEQUENCES: list(stop) if stop else None,
                semconv.REQUEST_REASONING_LEVEL: effort,
                semconv.OUTPUT_TYPE: "json" if schema else None,
            }
        )
    if span.keeps_content:
        _add_question(span, request)
    return copy_with(request, span=span)


def end_chat(
    request: ChatRequest,
    parent: Span,
    events: Sequence[Event],
    usage: Usage | None,
    first_event_time: int,
    error: BaseException | None = None,
    *,
    is_complete: bool = True,
) -> None:
    """End the span of a request, and add its tokens to those of `parent`, the agent's span."""
    span = request.span
    if span.is_ended:
        return
    is_complete = is_complete and error is None
    if span.keeps_content:
        _add_answer(span, events, usage, is_complete=is_complete)
    if usage is not None and span.kind != "internal":
        provider = find_adapter_name(span) if usage.provider in _VAGUE else usage.provider
        span.set_attributes({semconv.COST_DOLLARS: price_usage(usage, provider)})
    end_chat_span(span, parent, usage, first_event_time, error=error, is_complete=is_complete)


async def stream_chat(
    adapter: Adapter,
    request: ChatRequest,
    parent: Span,
    *,
    agent: Span = NO_SPAN,
    prompt: str = "",
    count: CountUsage | None = None,
) -> Events:
    """Yield the events of a model's response, with a span of the request below `parent`.

    The tokens are added to the span `agent`, or else to `parent`; `prompt` is the name of the
    prompt template, if there is one. `count` is called with an estimate (see `count_estimate`) if
    the provider sends no counts. Raises the adapter's errors.
    """
    if parent.is_recording:
        request = start_chat(adapter, request, parent)
        request.span.set_attributes({semconv.PROMPT_NAME: prompt or None})
    answer: list[Event] = []
    usage: Usage | None = None
    first, error, is_complete = 0, None, False
    try:
        async with aclosing(adapter.stream(request)) as events:
            async for event in events:
                first = first or time_ns()
                answer.append(event)
                if isinstance(event, Usage):
                    usage = event
                yield event
        is_complete = True
    except Exception as failure:
        error = failure
        raise
    finally:
        whose = agent if agent.is_recording else parent
        end_chat(request, whose, answer, usage, first, error, is_complete=is_complete)
        is_left = not is_complete and error is None
        count_estimate(adapter, request, answer, usage, is_left=is_left, count=count)


def _add_question(span: Span, request: ChatRequest) -> None:
    instructions, messages = render_request(request.messages)
    tools = [(one.name, one.description, one.parameters) for one in request.actions]
    span.set_content(
        {
            semconv.SYSTEM_INSTRUCTIONS: instructions or None,
            semconv.INPUT_MESSAGES: messages or None,
            semconv.TOOL_DEFINITIONS: render_tools(tools) if tools else None,
        }
    )


def _add_answer(
    span: Span, events: Sequence[Event], usage: Usage | None, *, is_complete: bool
) -> None:
    answer = [one for one in fold_messages(events) if not isinstance(one, ResultMessage)]
    reason: str | None = None
    if is_complete:
        reasons = span.attributes.get(semconv.RESPONSE_FINISH_REASONS) or [None]
        reason = (usage.stop_reason if usage else None) or reasons[0]
        has_calls = any(isinstance(one, ActionExecutionMessage) for one in answer)
        reason = reason or ("tool_calls" if has_calls else "stop")
    span.set_content({semconv.OUTPUT_MESSAGES: render_answer(answer, reason) or None})


def price_usage(usage: Usage, provider: str = "") -> float | None:
    """Return the cost of a response in US dollars; `None` without a price, or before loading.

    `provider` is the provider's name as in `ADAPTERS`; by default, that of the usage.
    """
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    if not are_prices_loaded():
        _begin_loading()
        return None
    price = find_model_facts(provider or usage.provider, usage.model).price(usage)
    return None if price is None else float(price)


@cache
def _begin_loading() -> None:
    if find_spec("genai_prices") is not None:
        threading.Thread(target=load_prices_now, name="prices", daemon=True).start()


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
    most = find_profile(endpoint.model).context_tokens  # longer input was truncated or refused
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
    if isinstance(message, ResultMessage):
        message = split_result(message)
    tokens = 0
    if isinstance(message, ImageMessage):
        tokens = IMAGE_TOKENS
    elif isinstance(message, TextMessage | ResultMessage) and message.parts:
        media = (part for part in message.parts if isinstance(part, MediaPart))
        tokens = sum(map(estimate_tokens, media))
    return count_characters(message) + tokens * CHARACTERS_PER_TOKEN
