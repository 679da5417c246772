"""The span of a request to a model, with its parameters, content, usage and cost.

Reading the price data takes half a second. A background thread does so at the first request for a
cost; until then, spans have no cost, because no answer waits for it.
"""

from collections.abc import Sequence
from contextlib import aclosing
from operator import attrgetter
from time import time_ns

from copilot_runtime.adapters.budget import stream_within
from copilot_runtime.adapters.message_content import render_answer, render_request
from copilot_runtime.adapters.pricing import begin_loading, finish_loading, price_usage
from copilot_runtime.api.adapter import Adapter, ChatRequest
from copilot_runtime.api.budget import Budget
from copilot_runtime.api.events import Event, Events, Usage
from copilot_runtime.api.messages import ActionExecutionMessage, ResultMessage
from copilot_runtime.api.run_input import Parameters, find_budget
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.dataclass_copy import copy_with
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.content import render_tools
from copilot_runtime.telemetry.genai import end_chat_span, find_adapter_name, start_chat_span
from copilot_runtime.telemetry.span import NO_SPAN, Span

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
    if not endpoint.in_process:
        begin_loading()  # so that the prices are there when the answer ends
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
    if usage is not None and (span.kind != "internal" or usage.dollars is not None):
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
    budget: Budget | None = None,
) -> Events:
    """Yield the events of a model's response, with a span of the request below `parent`.

    The tokens are added to the span `agent`, or else to `parent`; `prompt` is the name of the
    prompt template, if there is one. `budget` is by default that of the current run. Raises the
    adapter's errors, and that of a limit that is reached.
    """
    budget = budget or find_budget()
    if parent.is_recording:
        request = start_chat(adapter, request, parent)
        request.span.set_attributes({semconv.PROMPT_NAME: prompt or None})
    answer: list[Event] = []
    usage: Usage | None = None
    first, error, is_complete = 0, None, False
    try:
        async with aclosing(stream_within(budget, adapter, request)) as events:
            async for event in events:
                first = first or time_ns()
                answer.append(event)
                if isinstance(event, Usage):
                    usage = event
                yield event
        await finish_loading(request.span)
        is_complete = True
    except Exception as failure:
        error = failure
        raise
    finally:
        whose = agent if agent.is_recording else parent
        end_chat(request, whose, answer, usage, first, error, is_complete=is_complete)


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
