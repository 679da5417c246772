"""Why providers refuse a request for one of its tools, by their documents and by reports.

The fakes ask here before they answer. Written from the sources, not from our table: what both have
in common is what a test shows.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator, SchemaError

if TYPE_CHECKING:
    from tests.adapters.contract.fakes import Tool

_GEMINI = frozenset(
    {
        *("type", "format", "title", "description", "enum", "items", "prefixItems", "minItems"),
        *("maxItems", "minimum", "maximum", "anyOf", "oneOf", "properties", "required"),
        *("additionalProperties", "propertyOrdering"),
    }
)


def find_openai_fault(tools: "Sequence[Tool]") -> str | None:
    """https://github.com/langchain-ai/langchainjs/issues/9804, sentry-mcp#106, zed#42393."""
    if len(tools) > 128:
        return f"Invalid 'tools': array too long. Expected at most 128, got {len(tools)}."
    for tool in tools:
        where = f"Invalid schema for function '{tool.name}'"
        if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", tool.name):
            return f"Invalid function name {tool.name!r}."
        if len(tool.description) > 1024:
            return f"Invalid description of {tool.name!r}: string too long."
        schema = tool.parameters
        if schema.get("type") != "object" or "properties" not in schema:
            return f"{where}: object schema missing properties, got {schema!r}."
        if found := {"oneOf", "anyOf", "allOf", "enum", "not", "$ref"} & {*schema}:
            return f"{where}: schema must not have {sorted(found)} at the top level."
        for node in _walk(schema):
            kinds = node.get("type")
            is_array = "array" in (kinds if isinstance(kinds, list) else [kinds])
            if is_array and not isinstance(node.get("items"), dict):
                return f"{where}: array schema missing items."
            if re.search(r"\(\?<?[=!]|\\p", node.get("pattern", "")):  # cline/cline#14019
                return f"{where}: {node['pattern']!r} is not a 'regex'."
        if fault := _find_invalid(schema):
            return f"{where}: {fault}"
    return None


def find_anthropic_fault(tools: "Sequence[Tool]") -> str | None:
    """https://github.com/anthropics/claude-code/issues/586, appstore-connect-mcp#2."""
    for tool in tools:
        where = f"{tool.name}.input_schema"
        if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", tool.name):
            return f"{tool.name!r}: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
        if tool.parameters.get("type") != "object":
            return f"{where}.type: Input should be 'object'"
        if {"oneOf", "anyOf", "allOf"} & {*tool.parameters}:
            return f"{where}: input_schema does not support oneOf, allOf, or anyOf at the top level"
        for key in tool.parameters.get("properties", ()):
            if not re.fullmatch("[a-zA-Z0-9_.-]{1,64}", key):
                return f"{where}.properties: Property keys should match pattern, got {key!r}"
        if fault := _find_invalid(tool.parameters):
            return f"{where}: JSON schema is invalid. {fault}"
    return None


def find_google_fault(tools: "Sequence[Tool]") -> str | None:
    """https://ai.google.dev/api/caching#FunctionDeclaration, gemini-cli#19083, vercel/ai#19000."""
    if len(tools) > 512:
        return "tools[0].function_declarations: At most 512 function declarations can be specified."
    for tool in tools:
        if not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}", tool.name):
            return f"Invalid function name {tool.name!r}."
        if tool.parameters.get("type") != "object":
            return f"{tool.name}: parameters should be of type OBJECT"
        for key in tool.parameters.get("properties", ()):
            if not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]{0,63}", key):
                return f"{tool.name}: Invalid parameter name {key!r}"
        for node in _walk(tool.parameters):
            if fault := _find_gemini_fault(node):
                return f"{tool.name}: {fault}"
        if fault := _find_invalid(tool.parameters):
            return f"{tool.name}: {fault}"
    return None


def _find_gemini_fault(node: Mapping[str, Any]) -> str | None:
    if unknown := {*node} - _GEMINI:
        return f"Unknown name {sorted(unknown)}: Cannot find field."
    if not all(isinstance(one, str) for one in node.get("enum", ())):
        return "enum: only allowed for STRING type"
    if "" in node.get("enum", ()):  # sbroenne/mcp-server-excel#607
        return "enum[0]: cannot be empty"
    if "anyOf" in node and {*node} - {"anyOf", "title", "description"}:
        return "When using any_of, it must be the only field set."
    if {*node.get("required", ())} - {*node.get("properties", ())}:
        return "required: property is not defined"
    if node.get("type") == "array" and "items" not in node:
        return "items: missing field."
    return None


def find_bedrock_fault(tools: "Sequence[Tool]") -> str | None:
    """https://docs.aws.amazon.com/nova/latest/userguide/prompting-tool-troubleshooting.html."""
    for tool in tools:
        if more := {*tool.parameters} - {"type", "properties", "required"}:
            return f"{tool.name}: {sorted(more)} are not supported in the top-level object"
    return find_anthropic_fault(tools)


_FAULTS: "Mapping[str, Callable[[Sequence[Tool]], str | None]]" = {
    "anthropic": find_anthropic_fault,
    "bedrock": find_bedrock_fault,
    "google": find_google_fault,
    "langchain": find_anthropic_fault,
}


def find_fault(provider: str, tools: "Sequence[Tool]") -> str | None:
    """Return why a provider refuses these tools, or None."""
    return _FAULTS.get(provider, find_openai_fault)(tools)


def _find_invalid(schema: Any) -> str | None:
    return _find_invalid_json(json.dumps(schema))


@lru_cache
def _find_invalid_json(text: str) -> str | None:
    """Hundreds of tools have the same schema, and checking one takes a millisecond."""
    try:
        Draft202012Validator.check_schema(json.loads(text))
    except SchemaError as error:
        return f"It must match JSON Schema draft 2020-12: {error.message[:100]}"
    return None


def _walk(node: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and the schemas in it."""
    if not isinstance(node, dict):
        return
    yield node
    for key in ("properties", "$defs"):
        for one in node.get(key, {}).values():
            yield from _walk(one)
    for key in ("anyOf", "allOf", "oneOf", "prefixItems"):
        for one in node.get(key, ()):
            yield from _walk(one)
    for key in ("items", "additionalProperties"):
        yield from _walk(node.get(key))
