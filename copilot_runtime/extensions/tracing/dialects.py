"""Attributes that other programs write: their names in the conventions, content, and secrets.

OpenInference, OpenLLMetry, Vercel's AI SDK, VS Code, and older and newer conventions are read, and
never written. Beside `semconv`, only this module spells out attribute names. The author of other
names is unknown. So a text counts as content, unless its attribute name is known to hold none: a
name of the conventions, or one that ends like an id.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from copilot_runtime.base.secrets import REDACTOR
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


_SECRETS = re.compile(
    r"(^|[^a-z])(pass(word|wd|phrase)|secrets?|credentials?|authorization|cookies?|bearer"
    r"|(auth|access|refresh|id|session|api|bearer|csrf)?[._-]?token"
    r"|(api|access|private|secret|signing)[._-]?key)$",
    re.IGNORECASE,
)
"""Endings of attribute names that hold secrets."""
_NAMESPACES = (
    *("service.", "telemetry.", "deployment.", "cloud.", "container.", "faas.", "host.", "k8s."),
    *("os.", "device.", "browser.", "process.runtime.", "thread.", "code.", "otel.", "openai."),
    *("server.", "client.", "peer.", "network.", "net.", "rpc.", "user_agent.", "tls.", "dns."),
)
"""Prefixes of the conventions' names that hold no content."""
_NAMES = frozenset(
    (
        *(semconv.ERROR_TYPE, semconv.EXCEPTION_TYPE, "exception.escaped", "log.iostream"),
        "log.file.name",
        *("process.executable.name", "url.scheme", "url.domain", "url.full", "url.original"),
        *("url.path", "url.template", "http.method", "http.request.method", "http.route"),
        *("http.scheme", "http.flavor", "http.host", "http.url", "http.target", "http.user_agent"),
        *("db.system", "db.name", "db.operation", "db.sql.table", "messaging.system"),
        *("messaging.operation.name", "messaging.destination.name", "graphql.operation.name"),
        *FACTS,
    )
)
"""Further names that hold no content, of the conventions and the dialects that we read."""
_SHAPES = frozenset(
    ("id", "ids", "uuid", "kind", "type", "types", "code", "codes", "version", "model", "status")
)
"""Endings of other names that hold no content, if the text is a single word."""
_LONGEST_WORD = 200
_CONTENT_WORDS = frozenset(
    (
        *("argument", "arguments", "args", "body", "content", "contents", "document", "documents"),
        *("header", "headers", "input", "inputs", "kwargs", "messages", "metadata", "output"),
        *("outputs", "parameter", "parameters", "param", "params", "prompt", "prompts"),
        *("properties", "stacktrace", "variables"),
    )
)
"""Name parts that mark content in any position: parts of a message are named after it."""
_BORDER = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")
_URLS = frozenset(("url.full", "url.original", "http.url", "http.target"))
_URL_SECRETS = re.compile(r"(?<=//)[^/?#@]*@|[?#].*", re.DOTALL)


def has_content(name: str, value: Any) -> bool:
    """Return True if an attribute of a third-party span may hold content.

    Numbers never do. Query texts count as content, because they may include values.
    """
    if semconv.is_content(name):
        return True
    if value is None or isinstance(value, bool | int | float):
        return False
    if name in semconv.ATTRIBUTES:
        return name == semconv.DB_QUERY_TEXT
    match value:
        case Mapping():
            members = cast("Mapping[Any, Any]", value)
            return any(has_content(str(key), member) for key, member in members.items())
        case list() | tuple():
            return any(has_content(name, item) for item in cast("Sequence[Any]", value))
        case str():
            return not _is_fact(name, value)
        case _:
            return True


def _is_fact(name: str, text: str) -> bool:
    """Return True if a text holds no content, judged by its attribute name."""
    if name in _NAMES or semconv.is_identity(name):
        return True
    words = [word.lower() for word in _BORDER.split(name) if word]
    if not words or is_secret(name) or not _CONTENT_WORDS.isdisjoint(words):
        return False
    is_word = len(text) <= _LONGEST_WORD and len(text.split()) <= 1
    return name.startswith(_NAMESPACES) or (is_word and words[-1] in _SHAPES)


def is_secret(name: str) -> bool:
    """Return True if an attribute's name looks like a password, a key or a token."""
    return name not in semconv.ATTRIBUTES and _SECRETS.search(name) is not None


def drop_secrets(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes without known secrets, and texts whose names look like some."""
    return {
        name: _drop_inner_secrets(value)
        for name, value in attributes.items()
        if isinstance(value, bool | int | float) or not is_secret(name)
    }


def _drop_inner_secrets(value: Any) -> Any:
    match value:
        case Mapping():
            return drop_secrets(cast("Mapping[str, Any]", value))
        case list() | tuple():
            return [*map(_drop_inner_secrets, cast("Iterable[Any]", value))]
        case str():
            return REDACTOR.hide(value)
        case _:
            return value


def clean_value(name: str, value: Any) -> Any:
    """Return the value of an attribute; URLs are stripped by `strip_url`."""
    return strip_url(value) if name in _URLS and isinstance(value, str) else value


def strip_url(url: str) -> str:
    """Return a URL without its credentials, query and fragment."""
    return _URL_SECRETS.sub("", url)
