"""Attribute names of other dialects, mapped to the conventions: read, never written.

OpenInference, OpenLLMetry, Vercel's AI SDK, VS Code, and older and newer conventions. Beside
`semconv`, only this module spells out attribute names.
"""

from collections.abc import Mapping
from typing import Any

from copilot_runtime.telemetry import semconv

ALIASES: Mapping[str, tuple[str, ...]] = {
    semconv.USAGE_INPUT_TOKENS: (
        "gen_ai.usage.prompt_tokens",
        "llm.token_count.prompt",
        "llm.usage.prompt_tokens",
        "ai.usage.promptTokens",
        "ai.usage.inputTokens",
        "prompt_tokens",
    ),
    semconv.USAGE_OUTPUT_TOKENS: (
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
        "llm.usage.completion_tokens",
        "ai.usage.completionTokens",
        "ai.usage.outputTokens",
        "completion_tokens",
    ),
    semconv.USAGE_CACHE_READ_TOKENS: (
        "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read",
        "ai.usage.cachedInputTokens",
    ),
    semconv.USAGE_CACHE_WRITE_TOKENS: (
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "llm.token_count.prompt_details.cache_write",
    ),
    semconv.USAGE_REASONING_TOKENS: (
        "gen_ai.usage.reasoning_tokens",
        "llm.token_count.completion_details.reasoning",
        "ai.usage.reasoningTokens",
    ),
    semconv.PROVIDER_NAME: ("gen_ai.system", "llm.provider", "llm.system"),
    semconv.REQUEST_MODEL: ("llm.model_name", "llm.request.model", "ai.model.id"),
    semconv.RESPONSE_MODEL: ("llm.response.model", "ai.response.model"),
    semconv.CONVERSATION_ID: (
        "copilot_chat.chat_session_id",
        "copilot_chat.session_id",
        "session.id",
    ),
    semconv.AGENT_NAME: ("agent.name",),
    semconv.TOOL_NAME: ("tool.name", "ai.toolCall.name"),
    semconv.TOOL_CALL_ID: ("tool_call.id", "ai.toolCall.id"),
    semconv.RETRIEVAL_TOP_K: ("gen_ai.request.top_k",),
}
"""Aliases of an attribute; the first one that a span has is used."""

_OPERATIONS: Mapping[str, Mapping[str, str]] = {
    "openinference.span.kind": {
        "LLM": semconv.CHAT,
        "AGENT": semconv.INVOKE_AGENT,
        "TOOL": semconv.EXECUTE_TOOL,
        "RETRIEVER": semconv.RETRIEVAL,
        "EMBEDDING": semconv.EMBEDDINGS,
    },
    "traceloop.span.kind": {
        "agent": semconv.INVOKE_AGENT,
        "tool": semconv.EXECUTE_TOOL,
        "workflow": semconv.INVOKE_WORKFLOW,
    },
    "llm.request.type": {"chat": semconv.CHAT, "completion": semconv.TEXT_COMPLETION},
}
"""Operations by the attribute values that other dialects use for them."""

FACTS = frozenset((*(name for names in ALIASES.values() for name in names), *_OPERATIONS))
"""All attribute names that are read."""


_SPECIAL = ("gen_ai.", "llm.", "openinference.", "traceloop.", "ai.", "langsmith.", "langfuse.")
"""Prefixes of attribute names that only spans of models and agents have."""


def tells_of_models(attributes: Mapping[str, Any]) -> bool:
    """Return True if attributes in any dialect describe a model or an agent."""
    return any(name.startswith(_SPECIAL) for name in attributes)


def translate_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes, with aliases also added under the names of the conventions."""
    found = dict(attributes)
    for name, words in _OPERATIONS.items():
        if semconv.OPERATION_NAME not in found and (word := words.get(str(found.get(name)))):
            found[semconv.OPERATION_NAME] = word
    is_retrieval = found.get(semconv.OPERATION_NAME) == semconv.RETRIEVAL
    for name, others in ALIASES.items():
        if name in found or (name == semconv.RETRIEVAL_TOP_K and not is_retrieval):
            continue
        value = next((found[other] for other in others if found.get(other) is not None), None)
        if value is not None:
            found[name] = value
    return found
