"""Creates spans for agents of OpenAI's Agents SDK, by the hooks that the SDK calls in a run.

The SDK's own traces are sent to OpenAI and are disabled by default; they are not needed here.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from time import time_ns
from typing import Any, cast

from agents import RunHooks

from copilot_runtime.adapters.pricing import price_usage
from copilot_runtime.api.events import Usage
from copilot_runtime.api.run_input import CURRENT_RUN, wait_for_storage
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.content import MAX_CHARACTERS, parse_json, render_text, truncate
from copilot_runtime.telemetry.genai import (
    end_chat_span,
    find_adapter_name,
    start_agent_span,
    start_chat_span,
    start_tool_span,
)
from copilot_runtime.telemetry.span import Span

_PROVIDER = "openai"
_SDK_MODELS = "agents.models."
"""The module of the SDK's models for OpenAI's API and compatible servers."""


class StorageHooks(RunHooks[Any]):
    """Delays the agent's own tools until their call is stored (durable before visible)."""

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """Wait until the call is stored. Raises the store's error, which ends the run."""
        del context, agent, tool
        await wait_for_storage()


class SpanHooks(StorageHooks):
    """Creates spans below that of one run: for model requests, tools, and other agents.

    An agent to which another one hands off has a span of its own. The model requests of an agent
    that is called as a tool are part of the tool's span: the SDK calls no hooks for them.
    """

    def __init__(self, span: Span, model: Any = None) -> None:
        self._run = span
        self._model = model
        """The model of the run, which overrides those of agents."""
        self._agent: Any = None
        self._agent_span = span
        self._chat: Span | None = None
        self._first_item_time = 0
        self._tools: dict[str, Span] = {}

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        """Begin the span of an agent that took over; the first one has the span of the run."""
        del context
        before, self._agent = self._agent, agent
        if before is None or before.name == agent.name:
            return
        self._end_agent()
        about = agent.handoff_description or ""
        self._agent_span = start_agent_span(self._run, agent.name, description=about)

    async def on_llm_start(
        self, context: Any, agent: Any, system_prompt: str | None, input_items: Sequence[Any]
    ) -> None:
        """Begin the span of a request to a model."""
        del context
        self._end_chat(is_complete=False)  # it was sent again
        self._first_item_time = 0
        provider, model, url = _describe_model(self._model or agent.model)
        span = start_chat_span(self._agent_span, provider=provider, model=model, url=url)
        if span.keeps_content:
            instructions = [{"type": "text", "content": system_prompt}] if system_prompt else None
            span.set_content(
                {
                    semconv.SYSTEM_INSTRUCTIONS: truncate(instructions, MAX_CHARACTERS),
                    semconv.INPUT_MESSAGES: render_items(input_items),
                }
            )
        self._chat = span

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        """End the span of a request, with its usage."""
        del context, agent
        if (span := self._chat) is None:
            return
        model = str(span.attributes.get(semconv.REQUEST_MODEL) or "")
        usage = _read_usage(response, model)
        if span.keeps_content:
            span.set_content({semconv.OUTPUT_MESSAGES: render_items(response.output)})
        span.set_attributes(
            {
                semconv.RESPONSE_ID: response.response_id,
                semconv.COST_DOLLARS: price_usage(usage, find_adapter_name(span)),
            }
        )
        self._end_chat(usage)

    def note_item(self) -> None:
        """Record the time of the first item of a response."""
        self._first_item_time = self._first_item_time or time_ns()

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """Begin the span of a call of a tool of the agent's own."""
        await super().on_tool_start(context, agent, tool)
        id = getattr(context, "tool_call_id", None)
        span = start_tool_span(
            self._agent_span,
            tool.name,
            call_id=id or "",
            description=getattr(tool, "description", None) or "",
            location="agent",
        )
        if span.keeps_content:
            arguments = getattr(context, "tool_arguments", None)
            content = render_text(arguments) if isinstance(arguments, str) else None
            span.set_content({semconv.TOOL_CALL_ARGUMENTS: content})
        self._tools[id or tool.name] = span

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        """End the span of a call of a tool."""
        del agent
        span = self._tools.pop(getattr(context, "tool_call_id", None) or tool.name, None)
        if span is not None:
            if span.keeps_content:
                span.set_content({semconv.TOOL_CALL_RESULT: render_text(str(result))})
            span.end()

    def close(self, error: Exception | None = None) -> None:
        """End the open spans, with the exception that ended the run, or as aborted."""
        for span in self._tools.values():
            if error is not None:
                span.fail(error)
            span.end()
        self._tools.clear()
        self._end_chat(error=error, is_complete=False)
        self._end_agent(error)

    def _end_chat(
        self,
        usage: Usage | None = None,
        *,
        error: Exception | None = None,
        is_complete: bool = True,
    ) -> None:
        span, self._chat = self._chat, None
        if span is not None:
            end_chat_span(
                span,
                self._agent_span,
                usage,
                self._first_item_time,
                error=error,
                is_complete=is_complete,
            )

    def _end_agent(self, error: Exception | None = None) -> None:
        span, self._agent_span = self._agent_span, self._run
        if span is not self._run:
            if error is not None:
                span.fail(error)
            span.end()


@contextmanager
def trace_run(span: Span, model: Any = None) -> Generator[SpanHooks | None]:
    """Yield the hooks of a run, or `None` without recording; end their spans on exit.

    Inside, events of the agent's tools create no spans, because the hooks do so.
    """
    if not span.is_recording:
        yield None
        return
    hooks, slot = SpanHooks(span, model), CURRENT_RUN.get(None)
    if slot is not None:
        slot.traces_tools = True
    try:
        yield hooks
    except Exception as error:
        hooks.close(error)
        raise
    finally:
        hooks.close()
        if slot is not None:
            slot.traces_tools = False


def render_items(items: Sequence[Any]) -> list[dict[str, Any]] | None:
    """Return items of the Responses API as messages of the conventions."""
    messages = [_render_item(_to_mapping(item)) for item in items]
    return truncate(messages, MAX_CHARACTERS) or None


def _to_mapping(item: Any) -> Mapping[str, Any]:
    if isinstance(item, Mapping):
        return cast("Mapping[str, Any]", item)
    return item.model_dump(mode="json") if hasattr(item, "model_dump") else {"content": str(item)}


def _render_item(item: Mapping[str, Any]) -> dict[str, Any]:
    role: str = item.get("role") or "assistant"
    match item.get("type") or "message":
        case "message":
            return {"role": role, "parts": _render_content(item.get("content"))}
        case "function_call":
            arguments = parse_json(str(item.get("arguments") or ""))
            call = {"type": "tool_call", "id": item.get("call_id"), "name": item.get("name")}
            return {"role": role, "parts": [{**call, "arguments": arguments}]}
        case "function_call_output":
            output = item.get("output")
            response = parse_json(output) if isinstance(output, str) else output
            part = {"type": "tool_call_response", "id": item.get("call_id"), "response": response}
            return {"role": "tool", "parts": [part]}
        case "reasoning":
            parts = _render_content(item.get("summary"))
            return {"role": role, "parts": [{**part, "type": "reasoning"} for part in parts]}
        case other:
            return {"role": role, "parts": [{"type": str(other)}]}


def _render_content(content: Any) -> list[dict[str, Any]]:
    """Return the texts of a message; of other parts, their kind."""
    if isinstance(content, str):
        return [{"type": "text", "content": content}]
    parts: list[dict[str, Any]] = []
    for part in map(_to_mapping, content or ()):
        text = part.get("text") or part.get("refusal")
        named = {"type": str(part.get("type") or "unknown")}
        parts.append({"type": "text", "content": text} if isinstance(text, str) else named)
    return parts


def _describe_model(model: Any) -> tuple[str, str, str]:
    """Return the provider, name and address of a model; empty strings if they are unknown."""
    if model is None or isinstance(model, str):
        return _PROVIDER, model or "", ""
    name = getattr(model, "model", None)
    is_openai = type(model).__module__.startswith(_SDK_MODELS)
    client = getattr(model, "_client", None)  # no public attribute has it
    return (
        _PROVIDER if is_openai else type(model).__name__,
        name if isinstance(name, str) else "",
        str(getattr(client, "base_url", "")),
    )


def _read_usage(response: Any, model: str) -> Usage:
    usage = response.usage
    has_calls = any(getattr(item, "type", "") == "function_call" for item in response.output)
    has_counts = bool(usage.input_tokens or usage.output_tokens)
    return Usage(
        model=model,
        input_tokens=usage.input_tokens if has_counts else None,
        output_tokens=usage.output_tokens if has_counts else None,
        cached_tokens=usage.input_tokens_details.cached_tokens or None,
        reasoning_tokens=usage.output_tokens_details.reasoning_tokens or None,
        provider=_PROVIDER,
        stop_reason="tool_calls" if has_calls else "stop",
    )
