"""Metrics derived from ended spans: durations, tokens, calls, costs and outcomes.

Spans are the only source of these values, so that traces and metrics never disagree.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from copilot_runtime.base.errors import AgentNotFound
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.metrics import Measurement
from copilot_runtime.telemetry.semconv import Dialect
from copilot_runtime.telemetry.span import Attributes, Span

CLIENT_OPERATIONS = frozenset(
    {
        *(semconv.EMBEDDINGS, semconv.RETRIEVAL, semconv.CREATE_AGENT, semconv.FETCH_RESPONSE),
        *(semconv.SEARCH_MEMORY, semconv.CREATE_MEMORY, semconv.UPDATE_MEMORY),
        *(semconv.UPSERT_MEMORY, semconv.DELETE_MEMORY),
        *(semconv.CREATE_MEMORY_STORE, semconv.DELETE_MEMORY_STORE),
    }
)
"""Operations that are measured as client operations, beside model requests."""
_DURATIONS: Mapping[str, str] = {
    semconv.EXECUTE_TOOL: semconv.EXECUTE_TOOL_DURATION,
}
"""Duration metrics of operations that have no other metric."""
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


def measure_span(span: Span, dialect: Dialect = "released") -> list[Measurement]:
    """Return the measurements of an ended span, with the metric names of a dialect."""
    attributes, seconds = span.attributes, span.duration
    operation: Any = attributes.get(semconv.OPERATION_NAME)
    measurements: list[Measurement] = []
    if type(operation) is not str:
        operation = ""
    if semconv.MCP_METHOD_NAME in attributes:
        if span.kind == "server":  # the action that it calls has a span of its own
            return [(semconv.MCP_SERVER_OPERATION_DURATION, seconds, attributes)]
        measurements.append((semconv.MCP_CLIENT_OPERATION_DURATION, seconds, attributes))
    if operation in semconv.INFERENCES:
        measurements += _measure_inference(attributes, seconds, dialect)
    elif operation == semconv.INVOKE_AGENT:
        measurements += _measure_agent(attributes, seconds)
    elif operation in CLIENT_OPERATIONS:
        measurements.append((semconv.OPERATION_DURATION, seconds, attributes))
        measurements += _measure_tokens(attributes)
    elif operation == semconv.INVOKE_WORKFLOW:
        measurements += _measure_workflow(attributes, seconds)
    elif operation == semconv.EXECUTE_TASK:
        measurements.append((semconv.TASK_COUNT, 1, attributes))
        measurements.append((semconv.TASK_DURATION, seconds, attributes))
    elif semconv.TOOL_WAITING in attributes:
        pass  # the browser has not returned a result yet
    elif (name := _DURATIONS.get(operation)) is not None:
        measurements.append((name, seconds, attributes))
    return measurements


def _measure_inference(
    attributes: Attributes, seconds: float, dialect: Dialect
) -> list[Measurement]:
    measurements: list[Measurement] = []
    first_chunk = attributes.get(semconv.RESPONSE_TIME_TO_FIRST_CHUNK)
    if dialect != "head":
        measurements.append((semconv.OPERATION_DURATION, seconds, attributes))
        if first_chunk is not None:
            measurements.append((semconv.TIME_TO_FIRST_CHUNK, first_chunk, attributes))
    if dialect != "released":
        measurements.append((semconv.INFERENCE_DURATION, seconds, attributes))
        if first_chunk is not None:
            measurements.append((semconv.INFERENCE_TIME_TO_FIRST_CHUNK, first_chunk, attributes))
    if (cost := attributes.get(semconv.COST_DOLLARS)) is not None:
        measurements.append((semconv.COST, cost, attributes))
    if dialect != "head":
        measurements += _measure_tokens(attributes)
    if dialect != "released":
        measurements += _count_tokens(attributes)
    return measurements


def _measure_tokens(attributes: Attributes) -> list[Measurement]:
    """Return token counts for the released histogram, with the token type as an attribute."""
    return [
        (semconv.TOKEN_USAGE, count, {**attributes, semconv.TOKEN_TYPE: kind})
        for name, kind in _USAGE.items()
        if (count := attributes.get(name)) is not None
    ]


def _count_tokens(attributes: Attributes) -> Iterator[Measurement]:
    """Yield token counts by type; the conventions require 0 if the provider gave no count.

    The modality is `unknown`: providers give it for parts of an answer only.
    """
    attributes = {**attributes, semconv.TOKEN_MODALITY: "unknown"}
    for name, kind in _USAGE_COUNTERS.items():
        count = attributes.get(name)
        if count is not None:
            yield semconv.INFERENCE_USAGE[kind], count, attributes
            if name in _TOKENS_OF_OPERATION:
                yield _TOKENS_OF_OPERATION[name], count, attributes
        elif name in _TOKENS_OF_OPERATION:
            yield semconv.INFERENCE_USAGE[kind], 0, attributes


def _measure_agent(attributes: Attributes, seconds: float) -> list[Measurement]:
    if attributes.get(semconv.ERROR_TYPE) == AgentNotFound.code:
        # clients may invent any number of names
        attributes = {**attributes, semconv.AGENT_NAME: semconv.ERROR_TYPE_OTHER}
    measurements: list[Measurement] = [(semconv.INVOKE_AGENT_DURATION, seconds, attributes)]
    turns = attributes.get(semconv.RUN_TURNS)
    tool_calls = attributes.get(semconv.RUN_TOOL_CALLS)
    if turns is not None:  # the model requests of a remote agent are unknown
        measurements.append((semconv.INVOKE_AGENT_INFERENCE_CALLS, turns, attributes))
    if turns is not None or tool_calls is not None:
        measurements.append((semconv.INVOKE_AGENT_TOOL_CALLS, tool_calls or 0, attributes))
    if semconv.RUN_OUTCOME in attributes:
        measurements.append((semconv.RUN_COUNT, 1, attributes))
    return measurements


def _measure_workflow(attributes: Attributes, seconds: float) -> list[Measurement]:
    measurements: list[Measurement] = [(semconv.INVOKE_WORKFLOW_DURATION, seconds, attributes)]
    if semconv.PLAN_OUTCOME in attributes:
        measurements.append((semconv.PLAN_COUNT, 1, attributes))
    if (duration := attributes.get(semconv.PLAN_SECONDS)) is not None:
        measurements.append((semconv.PLAN_DURATION, duration, attributes))
    if (waiting := attributes.get(semconv.TASK_WAITING)) is not None:
        measurements.append((semconv.PLAN_WAITING, waiting, attributes))
    return measurements
