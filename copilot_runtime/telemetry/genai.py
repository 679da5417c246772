"""Spans of runs, model requests, tool calls and searches, by OpenTelemetry's GenAI conventions.

Each function starts a child span and takes plain values. The caller ends the span in `finally`.
If the parent is not recording, the functions return `NO_SPAN`.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import product
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from copilot_runtime.base.jsonvalue import as_object, as_optional_text
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
"""The conventions' provider names by adapter name. Other providers keep their own name."""

_ADAPTERS = {provider: name for name, provider in reversed(PROVIDERS.items())}

MAX_NAME = 500
"""Maximum length of a name or id from a client, which may not be validated yet."""

_FINISH_REASONS = {"refusal": "content_filter"}
"""The conventions' finish reasons, where they differ from `Usage.stop_reason`."""


_NO_AGENTS = frozenset((semconv.PLAN, semconv.INVOKE_WORKFLOW, semconv.EXECUTE_TASK))
"""Operations that request models but are no agents: a plan sums its own token usage."""
_OF_AGENT = frozenset(
    {
        *(semconv.REQUEST_MAX_TOKENS, semconv.REQUEST_TEMPERATURE, semconv.REQUEST_TOP_P),
        *(semconv.REQUEST_FREQUENCY_PENALTY, semconv.REQUEST_PRESENCE_PENALTY),
        *(semconv.REQUEST_STOP_SEQUENCES, semconv.REQUEST_SEED, semconv.REQUEST_CHOICE_COUNT),
        *(semconv.OUTPUT_TYPE, semconv.RESPONSE_FINISH_REASONS),
    }
)
"""Attributes of model requests that are copied to the span of their agent, by each request."""


OUTCOMES = ("finished", "failed", "stopped", "refused", "interrupted")
"""The values of `copilot.run.outcome`."""


class TokenUsage(Protocol):
    """The token counts of a model call, as `copilot_runtime.api.events.Usage` has them."""

    @property
    def model(self) -> str: ...
    @property
    def input_tokens(self) -> int | None: ...
    @property
    def output_tokens(self) -> int | None: ...
    @property
    def cached_tokens(self) -> int | None: ...
    @property
    def cache_write_tokens(self) -> int | None: ...
    @property
    def reasoning_tokens(self) -> int | None: ...
    @property
    def stop_reason(self) -> str | None: ...


def count_from_zero(telemetry: Telemetry, agents: Iterable[str]) -> None:
    """Initialise the counters of runs and ratings with 0.

    Prometheus computes no increase for a series that first appears with the value 1.
    """
    for agent, outcome in product(agents, OUTCOMES):
        attributes = {semconv.AGENT_NAME: agent, semconv.RUN_OUTCOME: outcome}
        telemetry.record(semconv.RUN_COUNT, 0, attributes)
    for rating in ("up", "down"):
        telemetry.record(semconv.FEEDBACK_COUNT, 0, {semconv.FEEDBACK_RATING: rating})


def start_run_span(
    telemetry: Telemetry,
    *,
    agent: str,
    thread_id: str,
    run_id: str,
    protocol: str,
    request_type: str = "",
    user: str | None = None,
    url: str = "",
    provider: str = "",
    parent: Span | SpanContext | None = None,
) -> Span:
    """Start the span of a run: `invoke_agent {agent}`. Without a `parent`, it starts a trace.

    `user` is the authenticated user; `url` and `provider` describe an agent in another process.
    """
    agent = agent[:MAX_NAME]
    attributes: dict[str, Any] = {
        semconv.OPERATION_NAME: semconv.INVOKE_AGENT,
        semconv.AGENT_NAME: agent,
        semconv.CONVERSATION_ID: thread_id[:MAX_NAME],
        semconv.RUN_ID: run_id[:MAX_NAME],
        semconv.RUN_PROTOCOL: protocol,
    }
    if request_type:
        attributes[semconv.REQUEST_TYPE] = request_type
    if user is not None:
        attributes[semconv.USER_NAME] = user
    if url:
        attributes |= _describe_place(url, provider)
    return telemetry.start_span(
        f"{semconv.INVOKE_AGENT} {agent}",
        kind="client" if url else "internal",
        parent=parent,
        attributes=attributes,
    )


def name_agent(span: Span, agent: str, *, url: str = "", provider: str = "") -> None:
    """Set the agent that answers a run, and its address: a hook may have chosen another one."""
    own = span.attributes
    if own.get(semconv.AGENT_NAME) == agent and not url and semconv.SERVER_ADDRESS not in own:
        return
    if not span.is_ended:
        agent = agent[:MAX_NAME]
        span.name = f"{semconv.INVOKE_AGENT} {agent}"
        span.kind = "client" if url else "internal"
        for name in (semconv.PROVIDER_NAME, semconv.SERVER_ADDRESS, semconv.SERVER_PORT):
            span.attributes.pop(name, None)
        span.set_attributes({semconv.AGENT_NAME: agent, **_describe_place(url, provider)})


def end_run_span(span: Span, outcome: str, error: BaseException | None = None) -> None:
    """End the span of a run. `outcome` is a value of `copilot.run.outcome`."""
    if span.is_ended:
        return
    if outcome != "finished" or semconv.RUN_OUTCOME not in span.attributes:
        span.attributes[semconv.RUN_OUTCOME] = outcome
    if error is not None:
        span.fail(error)
    elif outcome == "failed":
        span.fail(semconv.ERROR_TYPE_OTHER)
    span.end()


def note_interrupt(span: Span) -> None:
    """Set the outcome `interrupted` for a run that asks the user; a later failure replaces it."""
    span.set_attributes({semconv.RUN_OUTCOME: "interrupted"})


def start_agent_span(
    parent: Span, agent: str, *, description: str = "", url: str = "", provider: str = ""
) -> Span:
    """Start the span of a sub-agent: `invoke_agent {agent}`."""
    agent = agent[:MAX_NAME]
    return parent.start_child(
        f"{semconv.INVOKE_AGENT} {agent}",
        kind="client" if url else "internal",
        attributes={
            semconv.OPERATION_NAME: semconv.INVOKE_AGENT,
            semconv.AGENT_NAME: agent,
            semconv.AGENT_DESCRIPTION: description or None,
            semconv.CONVERSATION_ID: parent.attributes.get(semconv.CONVERSATION_ID),
            **_describe_place(url, provider),
        },
    )


def _describe_place(url: str, provider: object) -> dict[str, Any]:
    """Return the server and provider attributes of a remote agent; empty for a local one."""
    if not url:
        return {}
    # an agent of the application may have anything there
    name = provider if isinstance(provider, str) and provider else semconv.ERROR_TYPE_OTHER
    return {semconv.PROVIDER_NAME: name, **describe_server(url)}


def start_chat_span(
    parent: Span, *, provider: str, model: str, url: str = "", in_process: bool = False
) -> Span:
    """Start the span of a streamed request to a model: `chat {model}`.

    `provider` is the name of the adapter, and `url` the address of the service.
    """
    if not parent.is_recording:
        return NO_SPAN
    return parent.start_child(
        f"{semconv.CHAT} {model}".rstrip(),
        kind="internal" if in_process else "client",
        attributes={
            semconv.OPERATION_NAME: semconv.CHAT,
            semconv.REQUEST_STREAM: True,
            semconv.CONVERSATION_ID: parent.attributes.get(semconv.CONVERSATION_ID),
            **_describe_model(provider, model, url),
        },
    )


def set_endpoint(span: Span, provider: str, model: str, url: str) -> None:
    """Set the current provider, model and URL: a fallback adapter may switch to the next one."""
    if span.is_ended:
        return
    span.name = f"{semconv.CHAT} {model}".rstrip()
    for name in (semconv.REQUEST_MODEL, semconv.SERVER_ADDRESS, semconv.SERVER_PORT):
        span.attributes.pop(name, None)
    span.set_attributes(_describe_model(provider, model, url))


def _describe_model(provider: str, model: str, url: str) -> dict[str, Any]:
    name = PROVIDERS.get(provider, provider or semconv.ERROR_TYPE_OTHER)
    attributes: dict[str, Any] = {semconv.PROVIDER_NAME: name}
    if model:
        attributes[semconv.REQUEST_MODEL] = model
    attributes.update(describe_server(url))
    return attributes


def find_adapter_name(span: Span) -> str:
    """Return the adapter name of the span's provider, as in `ADAPTERS`."""
    provider = str(span.attributes.get(semconv.PROVIDER_NAME, ""))
    return _ADAPTERS.get(provider) or provider


def describe_response(span: Span, response_id: str, model: str, stop_reason: str | None) -> None:
    """Set the response's id, model and finish reason, a value of `Usage.stop_reason`."""
    if span.is_ended:
        return
    own = span.attributes
    if response_id:
        own[semconv.RESPONSE_ID] = response_id
    if model:
        own[semconv.RESPONSE_MODEL] = model
    if stop_reason:
        own[semconv.RESPONSE_FINISH_REASONS] = _list_reasons(stop_reason)


def describe_openai(
    span: Span, response: object, api: Literal["chat_completions", "responses"]
) -> None:
    """Set OpenAI's own response attributes; do nothing for other providers with its API."""
    if span.attributes.get(semconv.PROVIDER_NAME) == PROVIDERS["openai"]:
        found = as_object(response)  # a server may send anything
        fingerprint = as_optional_text(found.get("system_fingerprint"))
        span.set_attributes(
            {
                semconv.OPENAI_API_TYPE: api,
                semconv.OPENAI_RESPONSE_SERVICE_TIER: as_optional_text(found.get("service_tier")),
                semconv.OPENAI_RESPONSE_SYSTEM_FINGERPRINT: fingerprint,
            }
        )


def end_chat_span(
    span: Span,
    parent: Span,
    usage: TokenUsage | None,
    first_event_time: int,
    *,
    error: BaseException | None = None,
    is_complete: bool = True,
) -> None:
    """End the span of a model request, and add its usage to the span of the agent, `parent`.

    `first_event_time` is in nanoseconds since 1970, 0 if there was no event. `is_complete` is
    False if the consumer closed the stream before its end.
    """
    if first_event_time and not span.is_ended:
        seconds = (first_event_time - span.start_time) / 1e9
        span.attributes[semconv.RESPONSE_TIME_TO_FIRST_CHUNK] = seconds
    if usage is not None:
        set_usage(span, usage)
    if error is not None or not is_complete:
        span.set_attributes({semconv.RESPONSE_FINISH_REASONS: ["error"]})
    if error is not None:
        span.fail(error)
    _add_to_agent(parent, span)
    span.end()


def _add_to_agent(agent: Span, span: Span) -> None:
    """Add a model request to the totals of its agent's span: turns and tokens."""
    if agent.is_ended or agent.operation in _NO_AGENTS:
        return
    own, of = agent.attributes, span.attributes
    turns = own[semconv.RUN_TURNS] = own.get(semconv.RUN_TURNS, 0) + 1
    for name in (semconv.USAGE_INPUT_TOKENS, semconv.USAGE_OUTPUT_TOKENS):
        if name in of:
            own[name] = own.get(name, 0) + of[name]
    model = of.get(semconv.REQUEST_MODEL)
    if turns == 1 and model is not None:
        own[semconv.REQUEST_MODEL] = model
    elif turns > 1 and own.get(semconv.REQUEST_MODEL) != model:  # an agent of several has none
        own.pop(semconv.REQUEST_MODEL, None)
    for name in _OF_AGENT.intersection(of):
        own[name] = of[name]


def set_usage(span: Span, usage: TokenUsage) -> None:
    """Set the provider's final usage on a span: token counts, model and finish reason."""
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
) -> Span:
    """Start the span of a tool call: `execute_tool {name}`."""
    if not parent.is_recording:
        return NO_SPAN
    name, of = name[:MAX_NAME], parent.attributes
    if parent.operation == semconv.INVOKE_AGENT:
        parent.set_attributes({semconv.RUN_TOOL_CALLS: of.get(semconv.RUN_TOOL_CALLS, 0) + 1})
    return parent.start_child(
        f"{semconv.EXECUTE_TOOL} {name}",
        attributes={
            semconv.OPERATION_NAME: semconv.EXECUTE_TOOL,
            semconv.TOOL_NAME: name,
            semconv.TOOL_TYPE: "function",
            semconv.TOOL_CALL_ID: call_id[:MAX_NAME] or None,
            semconv.TOOL_DESCRIPTION: description or None,
            semconv.TOOL_LOCATION: location,
            semconv.AGENT_NAME: of.get(semconv.AGENT_NAME),
            semconv.CONVERSATION_ID: of.get(semconv.CONVERSATION_ID),
        },
    )


def start_hook_span(
    parent: Span, hook: str, function: str, *, start_time: int | None = None
) -> Span:
    """Start the span of an application hook: `execute_hook {hook}`."""
    return parent.start_child(
        f"{semconv.EXECUTE_HOOK} {hook}",
        start_time=start_time,
        attributes={
            semconv.OPERATION_NAME: semconv.EXECUTE_HOOK,
            semconv.HOOK_TYPE: hook,
            semconv.HOOK_NAME: function,
            # until the run ends, its own span is not stored: this one identifies the run
            semconv.AGENT_NAME: parent.attributes.get(semconv.AGENT_NAME),
            semconv.CONVERSATION_ID: parent.attributes.get(semconv.CONVERSATION_ID),
        },
    )


def start_retrieval_span(parent: Span, source: str = "", *, top_k: int | None = None) -> Span:
    """Start the span of a search for passages: `retrieval {source}`."""
    return parent.start_child(
        f"{semconv.RETRIEVAL} {source}".rstrip(),
        attributes={
            semconv.OPERATION_NAME: semconv.RETRIEVAL,
            semconv.DATA_SOURCE_ID: source or None,
            semconv.RETRIEVAL_TOP_K: top_k,
        },
    )


def start_embeddings_span(
    parent: Span,
    *,
    provider: str,
    model: str,
    in_process: bool = False,
    dimensions: int | None = None,
) -> Span:
    """Start the span of an embeddings request: `embeddings {model}`.

    `dimensions` is the length of a vector, if it is known in advance.
    """
    return parent.start_child(
        f"{semconv.EMBEDDINGS} {model}".rstrip(),
        kind="internal" if in_process else "client",
        attributes={
            semconv.OPERATION_NAME: semconv.EMBEDDINGS,
            semconv.EMBEDDINGS_DIMENSION_COUNT: dimensions,
            **_describe_model(provider, model, ""),
        },
    )


def start_memory_span(parent: Span, operation: str, store: str = "") -> Span:
    """Start the span of a memory operation, such as `search_memory`."""
    return parent.start_child(
        operation,
        attributes={
            semconv.OPERATION_NAME: operation,
            semconv.MEMORY_STORE_ID: store or None,
        },
    )


def describe_server(url: str) -> Mapping[str, Any]:
    """Return `server.address` and `server.port` of a URL; empty if it has no host."""
    try:
        return _describe_server(url) if url else {}
    except (ValueError, TypeError, AttributeError):  # an agent of the application may say anything
        return {}


@lru_cache(maxsize=256)
def _describe_server(url: str) -> Mapping[str, Any]:
    parts = urlsplit(url)
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    if not parts.hostname:
        return {}
    return {semconv.SERVER_ADDRESS: parts.hostname, semconv.SERVER_PORT: port}
