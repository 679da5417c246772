"""What this runtime offers, in the words of a remote endpoint."""

from collections.abc import Mapping, Sequence
from typing import Any

from copilot_runtime import __version__
from copilot_runtime.api.action import Action
from copilot_runtime.api.agent import Agent
from copilot_runtime.base.jsonvalue import JsonObject, as_object

_KIND = "crewai"
"""The kind of agents whose events a Node runtime passes on as they are, whoever made them."""

_KINDS = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}
_DEEPEST = 16


def info(actions: Sequence[Action], agents: Mapping[str, Agent]) -> JsonObject:
    """Return the body of `/info`."""
    return {
        "sdkVersion": __version__,
        "actions": [
            {
                "name": action.name,
                "description": action.description,
                "parameters": parameters_of(action.parameters),
            }
            for action in actions
        ],
        "agents": [
            {"name": name, "description": agent.description or "", "type": _KIND}
            for name, agent in agents.items()
        ],
    }


def parameters_of(schema: Mapping[str, Any]) -> list[JsonObject]:
    """Return the JSON schema of an object in CopilotKit's own notation, which says less.

    What it has no word for is a string. The arguments are held against the schema itself.
    """
    return _parameters(schema, schema.get("$defs"), 0)


def _parameters(schema: Mapping[str, Any], definitions: Any, depth: int) -> list[JsonObject]:
    properties, required = schema.get("properties"), schema.get("required")
    return [
        {
            "name": name,
            "required": isinstance(required, list) and name in required,
            **_describe(item, definitions, depth + 1),
        }
        for name, item in (properties.items() if isinstance(properties, dict) else ())
    ]


def _describe(item: Any, definitions: Any, depth: int) -> JsonObject:
    """Return type and description of one value."""
    found = _resolve(item, definitions)
    about = next(
        (d for it in (item, found) if isinstance(d := as_object(it).get("description"), str)), None
    )
    described = {} if about is None else {"description": about}
    if found.get("type") != "array":
        return {**_kind(found, definitions, depth), **described}
    inner = _kind(_resolve(found.get("items"), definitions), definitions, depth)
    return {**inner, "type": f"{inner['type']}[]", **described}


def _kind(schema: JsonObject, definitions: Any, depth: int) -> JsonObject:
    kind = schema.get("type")
    if kind == "object" or "properties" in schema:
        inner = _parameters(schema, definitions, depth) if depth < _DEEPEST else []
        return {"type": "object", **({"attributes": inner} if inner else {})}
    choices = schema.get("enum")
    if isinstance(choices, list) and all(isinstance(choice, str) for choice in choices):
        return {"type": "string", "enum": choices}
    return {"type": _KINDS.get(kind, "string") if isinstance(kind, str) else "string"}


def _resolve(item: Any, definitions: Any) -> JsonObject:
    """Return what a schema stands for: a definition, or the first choice that is not null."""
    for _ in range(_DEEPEST):
        if not isinstance(item, dict):
            return {}
        if isinstance(reference := item.get("$ref"), str):
            item = as_object(definitions).get(reference.rpartition("/")[2])
        elif isinstance(choices := item.get("anyOf") or item.get("oneOf"), list):
            item = next((one for one in choices if as_object(one).get("type") != "null"), {})
        elif isinstance(kinds := item.get("type"), list):
            item = {**item, "type": next((kind for kind in kinds if kind != "null"), None)}
        else:
            return item
    return {}
