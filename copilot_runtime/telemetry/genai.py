"""Spans of what a runtime does, as the conventions for generative AI name and fill them.

Each function begins a span under another one, and takes plain values. Whoever begins a span ends
it in `finally`. Where nobody takes note, `NO_SPAN` is returned, and nothing is computed.
"""

from typing import Any
from urllib.parse import urlsplit

from copilot_runtime.events import Usage
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.context import SpanContext
from copilot_runtime.telemetry.span import NO_SPAN, Span
from copilot_runtime.telemetry.telemetry import Telemetry

PROVIDERS = {
    "openai": "openai",
    "openai_responses": "openai",
    "azure": "azure.ai.openai",
    "github": "azure.ai.inference",
    "anthropic": "anthropic",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "groq": "groq",
    "deepseek": "deepseek",
    "mistral": "mistral_ai",
    "perplexity": "perplexity",
    "xai": "x_ai",
    "cohere": "cohere",
    "moonshot": "moonshot_ai",
}
"""The names of providers in the conventions, by the names of our adapters. Others keep theirs."""

_ADAPTERS = {provider: name for name, provider in reversed(PROVIDERS.items())}

_FINISH_REASONS = {"refusal": "content_filter"}
"""The words of the conventions where ours differ."""


def start_run_span(
    telemetry: Telemetry,
    *,
    agent: str,
    thread_id: str,
    run_id: str,
    protocol: str,
    request_type: str = "",
    url: str = "",
    parent: Span | SpanContext | None = None,
) -> Span:
    """Begin the span of a run: `invoke_agent {agent}`. Without a `parent`, a trace begins here.

    `url` is the address of an agent that is in another process.
    """
    return telemetry.start_span(
        f"{semconv.INVOKE_AGENT} {agent}",
        kind="client" if url else "internal",
        parent=parent,
        attributes={
            semconv.OPERATION_NAME: semconv.INVOKE_AGENT,
            semconv.AGENT_NAME: agent,
            semconv.CONVERSATION_ID: thread_id,
            semconv.RUN_ID: run_id,
            semconv.RUN_PROTOCOL: protocol,
            semconv.REQUEST_TYPE: request_type or None,
            **describe_server(url),
        },
    )


def name_agent(span: Span, agent: str, url: str = "") -> None:
    """Set which agent answers a run, and where it is: a hook may have chosen another one."""
    if not span.is_ended:
        span.name = f"{semconv.INVOKE_AGENT} {agent}"
        span.kind = "client" if url else "internal"
        for name in (semconv.SERVER_ADDRESS, semconv.SERVER_PORT):
            span.attributes.pop(name, None)
        span.set_attributes({semconv.AGENT_NAME: agent, **describe_server(url)})


def end_run_span(span: Span, outcome: str, error: BaseException | None = None) -> None:
    """End the span of a run. `outcome` is a value of `copilot.run.outcome`."""
    if span.is_ended:
        return
    span.set_attributes({semconv.RUN_OUTCOME: outcome})
    if error is not None:
        span.fail(error)
    elif outcome == "failed":
        span.fail(semconv.ERROR_TYPE_OTHER)
    span.end()


def start_agent_span(parent: Span, agent: str, *, description: str = "", url: str = "") -> Span:
    """Begin the span of an agent that another one called: `invoke_agent {agent}`."""
    if not parent.is_recording:
        return NO_SPAN
    return parent.start_child(
        f"{semconv.INVOKE_AGENT} {agent}",
        kind="client" if url else "internal",
        attributes={
            semconv.OPERATION_NAME: semconv.INVOKE_AGENT,
            semconv.AGENT_NAME: agent,
            semconv.AGENT_DESCRIPTION: description or None,
            semconv.CONVERSATION_ID: parent.attributes.get(semconv.CONVERSATION_ID),
            **describe_server(url),
        },
    )


def start_chat_span(
    parent: Span, *, provider: str, model: str, url: str = "", in_process: bool = False
) -> Span:
    """Begin the span of a streamed request to a model: `chat {model}`.

    `provider` is the name of the adapter, and `url` the address of the service.
    """
    if not parent.is_recording:
        return NO_SPAN
    return parent.start_child(
        f"{semconv.CHAT} {model}" if model else semconv.CHAT,
        kind="internal" if in_process else "client",
        attributes={
            semconv.OPERATION_NAME: semconv.CHAT,
            semconv.PROVIDER_NAME: PROVIDERS.get(provider, provider or semconv.ERROR_TYPE_OTHER),
            semconv.REQUEST_MODEL: model or None,
            semconv.REQUEST_STREAM: True,
            semconv.CONVERSATION_ID: parent.attributes.get(semconv.CONVERSATION_ID),
            **describe_server(url),
        },
    )


def set_endpoint(span: Span, provider: str, model: str, url: str) -> None:
    """Set who is asked now: an adapter that is several may go on to the next."""
    if span.is_ended:
        return
    span.name = f"{semconv.CHAT} {model}" if model else semconv.CHAT
    for name in (semconv.REQUEST_MODEL, semconv.SERVER_ADDRESS, semconv.SERVER_PORT):
        span.attributes.pop(name, None)
    span.set_attributes(
        {
            semconv.PROVIDER_NAME: PROVIDERS.get(provider, provider or semconv.ERROR_TYPE_OTHER),
            semconv.REQUEST_MODEL: model or None,
            **describe_server(url),
        }
    )


def find_adapter_name(span: Span) -> str:
    """Return who is asked, as `ADAPTERS` calls it."""
    provider = str(span.attributes.get(semconv.PROVIDER_NAME, ""))
    return _ADAPTERS.get(provider) or provider


def describe_response(span: Span, response_id: str, model: str, stop_reason: str | None) -> None:
    """Set what a response has told. `stop_reason` is a word of `Usage.stop_reason`."""
    span.set_attributes(
        {
            semconv.RESPONSE_ID: response_id or None,
            semconv.RESPONSE_MODEL: model or None,
            semconv.RESPONSE_FINISH_REASONS: _list_reasons(stop_reason),
        }
    )


def end_chat_span(
    span: Span,
    parent: Span,
    usage: Usage | None,
    first_event_time: int,
    *,
    error: BaseException | None = None,
    is_complete: bool = True,
) -> None:
    """End the span of a request to a model, and add what it took to the agent's, its parent.

    `first_event_time` is in nanoseconds since 1970, 0 if there was no event. An answer that is not
    complete was left by its reader.
    """
    if first_event_time:
        seconds = (first_event_time - span.start_time) / 1e9
        span.set_attributes({semconv.RESPONSE_TIME_TO_FIRST_CHUNK: seconds})
    if usage is not None:
        set_usage(span, usage)
    if error is not None or not is_complete:
        span.set_attributes({semconv.RESPONSE_FINISH_REASONS: ["error"]})
    if error is not None:
        span.fail(error)
    _add_to_agent(parent, span, usage)
    span.end()


def _add_to_agent(agent: Span, span: Span, usage: Usage | None) -> None:
    """Add a request to a model to what its agent took, for a quick look at the whole."""
    own = agent.attributes
    sums: dict[str, Any] = {semconv.RUN_TURNS: own.get(semconv.RUN_TURNS, 0) + 1}
    if usage is not None:
        for name, count in (
            (semconv.USAGE_INPUT_TOKENS, usage.input_tokens),
            (semconv.USAGE_OUTPUT_TOKENS, usage.output_tokens),
        ):
            if count is not None:
                sums[name] = own.get(name, 0) + count
    if (model := span.attributes.get(semconv.REQUEST_MODEL)) is not None:
        sums[semconv.REQUEST_MODEL] = model
    sums[semconv.RESPONSE_FINISH_REASONS] = span.attributes.get(semconv.RESPONSE_FINISH_REASONS)
    agent.set_attributes(sums)


def set_usage(span: Span, usage: Usage) -> None:
    """Set what the provider said at the end of an answer: tokens, model and reason."""
    span.set_attributes(
        {
            semconv.RESPONSE_MODEL: usage.model or None,
            semconv.USAGE_INPUT_TOKENS: usage.input_tokens,
            semconv.USAGE_OUTPUT_TOKENS: usage.output_tokens,
            semconv.USAGE_CACHE_READ_TOKENS: usage.cached_tokens,
            semconv.USAGE_CACHE_WRITE_TOKENS: usage.cache_write_tokens,
            semconv.USAGE_REASONING_TOKENS: usage.reasoning_tokens,
            semconv.RESPONSE_FINISH_REASONS: _list_reasons(usage.stop_reason),
        }
    )


def _list_reasons(stop_reason: str | None) -> list[str] | None:
    return [_FINISH_REASONS.get(stop_reason, stop_reason)] if stop_reason else None


def start_tool_span(
    parent: Span,
    name: str,
    *,
    call_id: str = "",
    description: str = "",
    location: str = "server",
    kind: str = "function",
    start_time: int | None = None,
) -> Span:
    """Begin the span of a call of a tool: `execute_tool {name}`."""
    if not parent.is_recording:
        return NO_SPAN
    of = parent.attributes
    if parent.operation == semconv.INVOKE_AGENT:
        parent.set_attributes({semconv.RUN_TOOL_CALLS: of.get(semconv.RUN_TOOL_CALLS, 0) + 1})
    return parent.start_child(
        f"{semconv.EXECUTE_TOOL} {name}",
        start_time=start_time,
        attributes={
            semconv.OPERATION_NAME: semconv.EXECUTE_TOOL,
            semconv.TOOL_NAME: name,
            semconv.TOOL_TYPE: kind,
            semconv.TOOL_CALL_ID: call_id or None,
            semconv.TOOL_DESCRIPTION: description or None,
            semconv.TOOL_LOCATION: location,
            semconv.AGENT_NAME: of.get(semconv.AGENT_NAME),
            semconv.CONVERSATION_ID: of.get(semconv.CONVERSATION_ID),
        },
    )


def start_hook_span(parent: Span, hook: str, function: str) -> Span:
    """Begin the span of a hook of the application: `execute_hook {hook}`."""
    if not parent.is_recording:
        return NO_SPAN
    return parent.start_child(
        f"{semconv.EXECUTE_HOOK} {hook}",
        attributes={
            semconv.OPERATION_NAME: semconv.EXECUTE_HOOK,
            semconv.HOOK_TYPE: hook,
            semconv.HOOK_NAME: function,
        },
    )


def start_retrieval_span(parent: Span, source: str = "", *, top_k: int | None = None) -> Span:
    """Begin the span of a search for passages: `retrieval {source}`."""
    if not parent.is_recording:
        return NO_SPAN
    return parent.start_child(
        f"{semconv.RETRIEVAL} {source}".rstrip(),
        attributes={
            semconv.OPERATION_NAME: semconv.RETRIEVAL,
            semconv.DATA_SOURCE_ID: source or None,
            semconv.RETRIEVAL_TOP_K: top_k,
        },
    )


def start_embeddings_span(
    parent: Span, *, provider: str, model: str, url: str = "", in_process: bool = False
) -> Span:
    """Begin the span of a request for vectors: `embeddings {model}`."""
    if not parent.is_recording:
        return NO_SPAN
    return parent.start_child(
        f"{semconv.EMBEDDINGS} {model}",
        kind="internal" if in_process else "client",
        attributes={
            semconv.OPERATION_NAME: semconv.EMBEDDINGS,
            semconv.PROVIDER_NAME: PROVIDERS.get(provider, provider),
            semconv.REQUEST_MODEL: model or None,
            **describe_server(url),
        },
    )


def start_memory_span(parent: Span, operation: str, store: str = "") -> Span:
    """Begin the span of something done with a memory, one of the memory operations."""
    if not parent.is_recording:
        return NO_SPAN
    return parent.start_child(
        operation,
        attributes={
            semconv.OPERATION_NAME: operation,
            semconv.MEMORY_STORE_ID: store or None,
        },
    )


def describe_mcp_call(server: str, url: str) -> dict[str, Any]:
    """Return what the span of a call of a tool says of its MCP server: it has no span beside it.

    `server` is its label, and `url` its address; a server without one is behind a pipe.
    """
    return {
        semconv.MCP_METHOD_NAME: "tools/call",
        semconv.TOOL_LOCATION: "mcp",
        semconv.TOOL_SERVER: server,
        semconv.NETWORK_TRANSPORT: "tcp" if url else "pipe",
        semconv.NETWORK_PROTOCOL_NAME: "http" if url else None,
        **describe_server(url),
    }


def describe_server(url: str) -> dict[str, Any]:
    """Return `server.address` and `server.port` of a URL; nothing for none."""
    if not url:
        return {}
    try:
        parts = urlsplit(url)
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except (ValueError, TypeError, AttributeError):  # an agent of the application may say anything
        return {}
    if not parts.hostname:
        return {}
    return {semconv.SERVER_ADDRESS: parts.hostname, semconv.SERVER_PORT: port}
