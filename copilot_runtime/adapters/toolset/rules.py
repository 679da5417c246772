"""The rules of providers for tools: a table for the code, the tests and the documents.

All of them refuse a whole request for one tool that breaks a rule. What holds for all is not in the
table: a name of at most 64 letters, digits, `_` and `-`; parameters that are an object, without
combinators at the root; valid JSON Schema 2020-12; and `items` in every array.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRules:
    """The rules of one provider that are stricter than those for all."""

    max_tools: int | None = None
    """Maximum number of tools in a request."""
    max_description: int | None = None
    """Maximum length of a description, in characters."""
    key: str = ""
    """The pattern of the names of parameters; empty: any name."""
    inlines: bool = False
    """Whether references are resolved, because `$defs` and `$ref` are not understood."""
    root: frozenset[str] | None = None
    """The only keywords at the root; `None`: all."""
    keywords: frozenset[str] | None = None
    """The only keywords; others are told in the description. `None`: all."""
    sources: tuple[str, ...] = ()
    """The documents of the provider, or reports where it has none."""


_ANTHROPIC_KEY = r"[a-zA-Z0-9_.-]{1,64}"

COMMON = ToolRules(key=_ANTHROPIC_KEY)
"""The rules for a service without an entry, which may pass tools on to any provider."""

_OPENAI = ToolRules(
    max_tools=128,
    max_description=1_024,
    sources=(
        "https://platform.openai.com/docs/api-reference/chat/create#chat-create-tools",
        "https://platform.openai.com/docs/guides/structured-outputs#supported-schemas",
        "https://github.com/getsentry/sentry-mcp/issues/106",
        "https://github.com/zed-industries/zed/issues/42393",
    ),
)
_BEDROCK = ToolRules(
    key=_ANTHROPIC_KEY,
    inlines=True,
    root=frozenset({"type", "properties", "required"}),
    sources=(
        "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolSpecification.html",
        "https://docs.aws.amazon.com/nova/latest/userguide/prompting-tool-troubleshooting.html",
    ),
)
_GOOGLE = ToolRules(
    max_tools=512,
    key=r"[a-zA-Z_][a-zA-Z0-9_]{0,63}",
    inlines=True,
    keywords=frozenset(
        {
            *("type", "format", "title", "description", "enum", "items", "prefixItems"),
            *("minItems", "maxItems", "minimum", "maximum", "anyOf", "properties"),
            *("additionalProperties", "required"),
        }
    ),
    sources=(
        "https://ai.google.dev/api/caching#FunctionDeclaration",
        "https://ai.google.dev/gemini-api/docs/structured-output#json_schema_support",
        "https://github.com/google-gemini/gemini-cli/issues/19083",
        "https://github.com/vercel/ai/pull/19000",
    ),
)

TOOL_RULES: Mapping[str, ToolRules] = {
    "openai": _OPENAI,
    "openai_responses": _OPENAI,
    "openai_assistants": _OPENAI,
    "azure": _OPENAI,
    "anthropic": ToolRules(
        key=_ANTHROPIC_KEY,
        sources=(
            "https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview",
            "https://github.com/beautyfree/appstore-connect-mcp/issues/2",
            "https://github.com/dearlordylord/huly-mcp/issues/66",
        ),
    ),
    "google": _GOOGLE,
    "vertex": _GOOGLE,
    "bedrock": _BEDROCK,
    "groq": ToolRules(
        max_tools=128,
        key=_ANTHROPIC_KEY,
        sources=("https://console.groq.com/docs/api-reference#chat-create",),
    ),
    "deepseek": ToolRules(
        max_tools=128,
        key=_ANTHROPIC_KEY,
        sources=("https://api-docs.deepseek.com/api/create-chat-completion",),
    ),
}
"""Adapter, or provider of a chat model of LangChain → its rules."""
