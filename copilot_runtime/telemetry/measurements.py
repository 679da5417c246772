"""Measurements: the values of an ended span for the instruments of `semconv.METRICS`.

Spans are the only source of the values of runs, so that traces and metrics never disagree.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from copilot_runtime.base.errors import AgentNotFound
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.semconv import Dialect
from copilot_runtime.telemetry.span import Attributes, Span

Source = str | int | None
"""The source of a value: an attribute's name, or a constant; None for the span's duration."""
Measurement = tuple[str, Source, Attributes]
"""The name of an instrument, the source of its value, and the attributes to choose from."""

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


def list_measurements(span: Span, dialect: Dialect = "released") -> list[Measurement]:
    """Return the measurements of an ended span, with the metric names of a dialect.

    They depend on its kind, the names of its attributes, and the values of those that metrics use.
    """
    attributes = span.attributes
    operation: Any = attributes.get(semconv.OPERATION_NAME)
    measurements: list[Measurement] = []
    if type(operation) is not str:
        operation = ""
    if semconv.MCP_METHOD_NAME in attributes:
        if span.kind == "server":  # the action that it calls has a span of its own
            return [(semconv.MCP_SERVER_OPERATION_DURATION, None, attributes)]
        measurements.append((semconv.MCP_CLIENT_OPERATION_DURATION, None, attributes))
    if operation in semconv.INFERENCES:
        measurements += _measure_inference(attributes, dialect)
    elif operation == semconv.INVOKE_AGENT:
        measurements += _measure_agent(attributes)
    elif operation in CLIENT_OPERATIONS:
        measurements.append((semconv.OPERATION_DURATION, None, attributes))
        measurements += _measure_tokens(attributes)
    elif operation == semconv.INVOKE_WORKFLOW:
        measurements += _measure_workflow(attributes)
    elif operation == semconv.EXECUTE_TASK:
        measurements.append((semconv.TASK_COUNT, 1, attributes))
        measurements.append((semconv.TASK_DURATION, None, attributes))
    elif semconv.TOOL_WAITING in attributes:
        pass  # the browser has not returned a result yet
    elif (name := _DURATIONS.get(operation)) is not None:
        measurements.append((name, None, attributes))
    return measurements


def _measure_inference(attributes: Attributes, dialect: Dialect) -> list[Measurement]:
    measurements: list[Measurement] = []
    first_chunk = semconv.RESPONSE_TIME_TO_FIRST_CHUNK
    if dialect != "head":
        measurements.append((semconv.OPERATION_DURATION, None, attributes))
        if first_chunk in attributes:
            measurements.append((semconv.TIME_TO_FIRST_CHUNK, first_chunk, attributes))
    if dialect != "released":
        measurements.append((semconv.INFERENCE_DURATION, None, attributes))
        if first_chunk in attributes:
            measurements.append((semconv.INFERENCE_TIME_TO_FIRST_CHUNK, first_chunk, attributes))
    if semconv.COST_DOLLARS in attributes:
        measurements.append((semconv.COST, semconv.COST_DOLLARS, attributes))
    if dialect != "head":
        measurements += _measure_tokens(attributes)
    if dialect != "released":
        measurements += _count_tokens(attributes)
    return measurements


def _measure_tokens(attributes: Attributes) -> list[Measurement]:
    """Return token counts for the released histogram, with the token type as an attribute."""
    return [
        (semconv.TOKEN_USAGE, name, {**attributes, semconv.TOKEN_TYPE: kind})
        for name, kind in _USAGE.items()
        if name in attributes
    ]


def _count_tokens(attributes: Attributes) -> Iterator[Measurement]:
    """Yield token counts by type; the conventions require 0 if the provider gave no count.

    The modality is `unknown`: providers give it for parts of an answer only.
    """
    attributes = {**attributes, semconv.TOKEN_MODALITY: "unknown"}
    for name, kind in _USAGE_COUNTERS.items():
        if name in attributes:
            yield semconv.INFERENCE_USAGE[kind], name, attributes
            if name in _TOKENS_OF_OPERATION:
                yield _TOKENS_OF_OPERATION[name], name, attributes
        elif name in _TOKENS_OF_OPERATION:
            yield semconv.INFERENCE_USAGE[kind], 0, attributes


def _measure_agent(attributes: Attributes) -> list[Measurement]:
    if attributes.get(semconv.ERROR_TYPE) == AgentNotFound.code:
        # clients may invent any number of names
        attributes = {**attributes, semconv.AGENT_NAME: semconv.ERROR_TYPE_OTHER}
    measurements: list[Measurement] = [(semconv.INVOKE_AGENT_DURATION, None, attributes)]
    turns, tool_calls = semconv.RUN_TURNS, semconv.RUN_TOOL_CALLS
    if turns in attributes:  # the model requests of a remote agent are unknown
        measurements.append((semconv.INVOKE_AGENT_INFERENCE_CALLS, turns, attributes))
    if turns in attributes or tool_calls in attributes:
        count = tool_calls if tool_calls in attributes else 0
        measurements.append((semconv.INVOKE_AGENT_TOOL_CALLS, count, attributes))
    if semconv.RUN_OUTCOME in attributes:
        measurements.append((semconv.RUN_COUNT, 1, attributes))
    return measurements


def _measure_workflow(attributes: Attributes) -> list[Measurement]:
    measurements: list[Measurement] = [(semconv.INVOKE_WORKFLOW_DURATION, None, attributes)]
    if semconv.PLAN_OUTCOME in attributes:
        measurements.append((semconv.PLAN_COUNT, 1, attributes))
    if semconv.PLAN_SECONDS in attributes:
        measurements.append((semconv.PLAN_DURATION, semconv.PLAN_SECONDS, attributes))
    if semconv.TASK_WAITING in attributes:
        measurements.append((semconv.PLAN_WAITING, semconv.TASK_WAITING, attributes))
    return measurements
