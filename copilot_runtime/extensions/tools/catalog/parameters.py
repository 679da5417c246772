"""Builds the schema of a tool's parameters for the model."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.jsonvalue import JsonObject, as_list, as_object
from copilot_runtime.extensions.tools.catalog.endpoints import Operation

if TYPE_CHECKING:
    from copilot_runtime.extensions.tools.catalog.definition import ToolDefinition

MAX_SCHEMA = 64 * 1024
"""Maximum size of a schema, in bytes: it is sent with each model request."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Parameter names that all model providers accept."""

_NULLABLE = {"default", "const"}
"""Keywords of JSON schema that may be null."""


def build_parameters(tool: "ToolDefinition", operation: Operation) -> JsonObject:
    """Return the schema for the model: the endpoint's, with the descriptions of the file.

    Fixed and hidden parameters are removed. Raises `ConfigurationFailed` if the schema is too
    large.
    """
    schema = merge_parameters(operation.parameters, tool.parameters)
    unseen = {*tool.arguments, *tool.hidden}
    properties = {
        name: value
        for name, value in as_object(schema.get("properties")).items()
        if name not in unseen
    }
    required = [name for name in as_list(schema.pop("required", None)) if name not in unseen]
    schema |= {"properties": properties, **({"required": required} if required else {})}
    try:
        size = len(orjson.dumps(schema))
    except TypeError as error:  # integers above 64 bits, or too deep nesting
        raise ConfigurationFailed("The schema of its parameters cannot be sent.") from error
    if size > MAX_SCHEMA:
        raise ConfigurationFailed(
            f"The schema of its parameters has {size} bytes; at most {MAX_SCHEMA} are sent."
        )
    return schema


def merge_parameters(schema: Mapping[str, Any], parameters: Mapping[str, Any]) -> JsonObject:
    """Return an endpoint's schema, overridden by the parameters of a file.

    A string is the description of an existing parameter.
    """
    if is_whole_schema(parameters):
        return {**parameters}
    properties = {**as_object(schema.get("properties"))}
    required = [*as_list(schema.get("required"))]
    for name, value in parameters.items():
        if name not in properties:
            continue
        own = {"description": value} if isinstance(value, str) else {**as_object(value)}
        needed = own.pop("required", name in required)
        required = [each for each in required if each != name] + ([name] if needed else [])
        properties[name] = {**as_object(properties[name]), **own}
    return {**schema, "type": "object", "properties": properties, "required": required}


def read_parameters(parameters: Mapping[str, Any]) -> JsonObject:
    """Return the schema defined by a file, for an endpoint without its own.

    A parameter is required unless it has a default or says `required: false`.
    """
    if is_whole_schema(parameters):
        return {**parameters}
    properties: JsonObject = {}
    required: list[str] = []
    for name, value in parameters.items():
        if isinstance(value, str):
            properties[name] = {"type": "string", "description": value}
            required.append(name)
        else:
            own = {**as_object(value)}
            if own.pop("required", "default" not in own):
                required.append(name)
            properties[name] = own
    return {"type": "object", "properties": properties, "required": required}


def find_mistakes(parameters: Mapping[str, Any]) -> Iterator[tuple[Sequence[str], str]]:
    """Yield errors in the parameters of a file, each with its path.

    YAML parses an unquoted text with a comma in braces as several keys without values.
    """
    is_whole = is_whole_schema(parameters)
    named = as_object(parameters["properties"]) if is_whole else parameters
    steps = ("properties",) if is_whole else ()
    for name, value in named.items():
        fault = _find_fault(name, value)
        if fault is not None:
            hint = _suggest_quotes(named, name) if value is None else ""
            yield (*steps, name), f"The parameter {name!r} {fault}{hint}"
        schema = as_object(value)
        for key in schema:
            if schema[key] is None and key not in _NULLABLE:
                hint = _suggest_quotes(schema, key)
                yield (
                    (*steps, name, key),
                    f"The parameter {name!r} has {key!r} without a value.{hint}",
                )


def _find_fault(name: Any, value: Any) -> str | None:
    if not _NAME.fullmatch(str(name)):
        return "has a name that no model takes: letters, digits, _ . and -, at most 64."
    if value is None:
        return "has no description: write one, or a JSON schema."
    if not isinstance(value, str | dict):
        return f"is {value!r}: write a description, or a JSON schema."
    return None


def _suggest_quotes(members: Mapping[str, Any], name: str) -> str:
    """Return a hint if a mapping's key may be the remainder of an unquoted text."""
    names = [*members]
    rest: list[str] = []
    for each in reversed(names[: names.index(name) + 1]):
        rest.insert(0, str(each))
        if members[each] is not None:
            break
    else:
        return ""
    text = members[rest[0]]
    if not isinstance(text, str):
        return ""
    quoted = json.dumps(", ".join([text, *rest[1:]]), ensure_ascii=False)
    return f" A text with a comma stands in quotes: {{{rest[0]}: {quoted}}}."


def is_whole_schema(parameters: Mapping[str, Any]) -> bool:
    """Return whether a mapping is an object schema, rather than parameters by name."""
    return parameters.get("type") == "object" and isinstance(parameters.get("properties"), Mapping)
