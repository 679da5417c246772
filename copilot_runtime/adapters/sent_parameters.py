"""Which settings of the model a request really had: found in its body, whatever provider it is for.

A client's wishes do not tell that: an adapter has defaults, and leaves out what a model does not
take.
"""

from collections.abc import Mapping
from typing import Any

from copilot_runtime.base.jsonvalue import JsonObject, as_object
from copilot_runtime.telemetry import semconv

_NUMBERS: Mapping[str, tuple[type[int] | type[float], tuple[str, ...]]] = {
    semconv.REQUEST_TEMPERATURE: (float, ("temperature",)),
    semconv.REQUEST_TOP_P: (float, ("top_p", "topP")),
    semconv.REQUEST_TOP_K: (int, ("top_k", "topK")),
    semconv.REQUEST_MAX_TOKENS: (
        int,
        (
            *("max_tokens", "max_completion_tokens", "max_output_tokens"),
            *("maxTokens", "maxOutputTokens"),
        ),
    ),
    semconv.REQUEST_SEED: (int, ("seed", "random_seed")),
    semconv.REQUEST_FREQUENCY_PENALTY: (float, ("frequency_penalty", "frequencyPenalty")),
    semconv.REQUEST_PRESENCE_PENALTY: (float, ("presence_penalty", "presencePenalty")),
    semconv.REQUEST_CHOICE_COUNT: (int, ("n", "candidateCount")),
}
"""Attribute → its type, and the names of the field in the bodies of all providers."""
_STOPS = ("stop", "stop_sequences", "stopSequences")
_CONFIGS = ("generationConfig", "inferenceConfig")
"""Where Gemini and Bedrock have the settings."""
_EFFORTS = (
    ("reasoning_effort",),
    ("reasoning", "effort"),
    ("output_config", "effort"),
    ("thinkingConfig", "thinkingLevel"),
)


def describe_body(body: JsonObject) -> dict[str, Any]:
    """Return the attributes of the settings in the body of a request to a model."""
    fields = {**body}
    for name in _CONFIGS:
        fields |= as_object(body.get(name))
    found: dict[str, Any] = {}
    for attribute, (convert, names) in _NUMBERS.items():
        for name in names:
            value = fields.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                found[attribute] = convert(value)
    if found.get(semconv.REQUEST_CHOICE_COUNT) == 1:
        del found[semconv.REQUEST_CHOICE_COUNT]
    for name in _STOPS:
        if stops := fields.get(name):
            found[semconv.REQUEST_STOP_SEQUENCES] = [stops] if isinstance(stops, str) else [*stops]
    for path in _EFFORTS:
        if effort := _find_text(fields, path):
            found[semconv.REQUEST_REASONING_LEVEL] = effort
    if previous := _find_text(fields, ("previous_response_id",)):
        found[semconv.REQUEST_PREVIOUS_RESPONSE_ID] = previous
    return found


def _find_text(value: Any, path: tuple[str, ...]) -> str:
    for name in path:
        value = as_object(value).get(name)
    return value if isinstance(value, str) else ""
