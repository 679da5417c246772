"""What a span that has ended adds to the metrics: durations, tokens, calls, costs, outcomes.

Spans are the only source of these values, so that a trace and a metric never disagree.
"""

from collections.abc import Callable
from typing import Any

from copilot_runtime.errors import AgentNotFound
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.semconv import Dialect
from copilot_runtime.telemetry.span import Attributes, Span

Record = Callable[[str, float, Attributes], None]
"""Takes the name of an instrument of `semconv.METRICS`, a value, and attributes to choose from."""

INFERENCES = frozenset({semconv.CHAT, semconv.TEXT_COMPLETION, semconv.GENERATE_CONTENT})
_CLIENT_OPERATIONS = frozenset(
    {
        *(semconv.EMBEDDINGS, semconv.RETRIEVAL, semconv.CREATE_AGENT, semconv.FETCH_RESPONSE),
        *(semconv.SEARCH_MEMORY, semconv.CREATE_MEMORY, semconv.UPDATE_MEMORY),
        *(semconv.UPSERT_MEMORY, semconv.DELETE_MEMORY),
        *(semconv.CREATE_MEMORY_STORE, semconv.DELETE_MEMORY_STORE),
    }
)
_USAGE = {
    semconv.USAGE_INPUT_TOKENS: "input",
    semconv.USAGE_OUTPUT_TOKENS: "output",
}
_USAGE_COUNTERS = {
    semconv.USAGE_INPUT_TOKENS: "input_tokens",
    semconv.USAGE_OUTPUT_TOKENS: "output_tokens",
    semconv.USAGE_CACHE_READ_TOKENS: "cache_read.input_tokens",
    semconv.USAGE_CACHE_WRITE_TOKENS: "cache_write.input_tokens",
    semconv.USAGE_REASONING_TOKENS: "reasoning.output_tokens",
}
_TOKENS_OF_OPERATION = {
    semconv.USAGE_INPUT_TOKENS: semconv.INFERENCE_INPUT_TOKENS,
    semconv.USAGE_OUTPUT_TOKENS: semconv.INFERENCE_OUTPUT_TOKENS,
}


def measure_span(span: Span, record: Record, dialect: Dialect = "released") -> None:
    """Record what a span that has ended says, by the names of a dialect."""
    operation = span.operation
    if semconv.MCP_METHOD_NAME in span.attributes:
        is_server = span.kind == "server"
        _measure_mcp(span, record, is_server=is_server)
        if is_server:  # the action that it calls has a span of its own
            return
    if operation in INFERENCES:
        _measure_inference(span, record, dialect)
    elif operation == semconv.EXECUTE_TOOL:
        record(semconv.EXECUTE_TOOL_DURATION, span.duration, span.attributes)
    elif operation == semconv.INVOKE_AGENT:
        _measure_agent(span, record)
    elif operation == semconv.INVOKE_WORKFLOW:
        record(semconv.INVOKE_WORKFLOW_DURATION, span.duration, span.attributes)
    elif operation in _CLIENT_OPERATIONS:
        record(semconv.OPERATION_DURATION, span.duration, span.attributes)
        _measure_tokens(span, record)


def _measure_inference(span: Span, record: Record, dialect: Dialect) -> None:
    attributes = span.attributes
    first_chunk = _number(attributes.get(semconv.RESPONSE_TIME_TO_FIRST_CHUNK))
    if dialect != "head":
        record(semconv.OPERATION_DURATION, span.duration, attributes)
        if first_chunk is not None:
            record(semconv.TIME_TO_FIRST_CHUNK, first_chunk, attributes)
        _measure_tokens(span, record)
    if dialect != "released":
        record(semconv.INFERENCE_DURATION, span.duration, attributes)
        if first_chunk is not None:
            record(semconv.INFERENCE_TIME_TO_FIRST_CHUNK, first_chunk, attributes)
        _count_tokens(span, record)
    cost = _number(attributes.get(semconv.COST_DOLLARS))
    if cost is not None:
        record(semconv.COST, cost, attributes)


def _measure_tokens(span: Span, record: Record) -> None:
    """Record the tokens of a request as one histogram, with their type as an attribute."""
    for name, kind in _USAGE.items():
        if (count := _number(span.attributes.get(name))) is not None:
            record(semconv.TOKEN_USAGE, count, {**span.attributes, semconv.TOKEN_TYPE: kind})


def _count_tokens(span: Span, record: Record) -> None:
    """Count tokens by their kind: 0 where a provider said nothing, as the conventions want it.

    Their modality is unknown: providers say it of parts of an answer only.
    """
    attributes = {**span.attributes, semconv.TOKEN_MODALITY: "unknown"}
    for name, kind in _USAGE_COUNTERS.items():
        count = _number(attributes.get(name))
        if count is None and name in _TOKENS_OF_OPERATION:
            record(semconv.INFERENCE_USAGE[kind], 0, attributes)
        elif count is not None:
            record(semconv.INFERENCE_USAGE[kind], count, attributes)
            if name in _TOKENS_OF_OPERATION:
                record(_TOKENS_OF_OPERATION[name], count, attributes)


def _measure_agent(span: Span, record: Record) -> None:
    attributes = span.attributes
    if attributes.get(semconv.ERROR_TYPE) == AgentNotFound.code:
        # whoever asks may invent any number of names
        attributes = {**attributes, semconv.AGENT_NAME: semconv.ERROR_TYPE_OTHER}
    record(semconv.INVOKE_AGENT_DURATION, span.duration, attributes)
    turns = _number(attributes.get(semconv.RUN_TURNS))
    tool_calls = _number(attributes.get(semconv.RUN_TOOL_CALLS))
    if turns is not None:  # what a remote agent asks of models is not known
        record(semconv.INVOKE_AGENT_INFERENCE_CALLS, turns, attributes)
    if turns is not None or tool_calls is not None:
        record(semconv.INVOKE_AGENT_TOOL_CALLS, tool_calls or 0, attributes)
    if semconv.RUN_OUTCOME in attributes:
        record(semconv.RUN_COUNT, 1, attributes)


def _measure_mcp(span: Span, record: Record, *, is_server: bool) -> None:
    name = (
        semconv.MCP_SERVER_OPERATION_DURATION
        if is_server
        else semconv.MCP_CLIENT_OPERATION_DURATION
    )
    record(name, span.duration, span.attributes)


def _number(value: Any) -> float | None:
    """Return a number, or None for what another process may have written there instead."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value
