"""The catalog of a remote endpoint: actions with their parameters, and agents with their type."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import as_list, get_text

logger = logging.getLogger(__name__)

MAX_ENTRIES = 128
"""Largest number of actions, and of agents, of one endpoint: providers accept no more."""

MAX_DESCRIPTION_LENGTH = 4000

_Entry = tuple[str, dict[str, Any]]

_NUMBERS = {"number": "number", "integer": "integer", "boolean": "boolean"}


@dataclass(frozen=True, slots=True)
class CatalogAction:
    """An action of the endpoint; `parameters` is the JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CatalogAgent:
    """An agent of the endpoint; `kind` is `langgraph`, `crewai`, or another type."""

    name: str
    description: str
    kind: str


@dataclass(frozen=True, slots=True)
class Catalog:
    """The actions and agents of an endpoint; `failure` is set if the latest fetch failed."""

    actions: tuple[CatalogAction, ...] = ()
    agents: tuple[CatalogAgent, ...] = ()
    failure: CopilotError | None = None


def parse_catalog(body: Any) -> Catalog:
    """Return the catalog in the body of a response to `/info`. Raises `ValueError`.

    An action or an agent without a name is left out, and so are those above `MAX_ENTRIES`.
    """
    if not isinstance(body, dict) or not ("actions" in body or "agents" in body):
        raise ValueError("It has neither actions nor agents.")
    return Catalog(
        actions=tuple(
            CatalogAction(name, _description(item), build_schema(item.get("parameters")))
            for name, item in _limit_entries(body.get("actions"), "actions")
        ),
        agents=tuple(
            CatalogAgent(name, _description(item), get_text(item, "type"))
            for name, item in _limit_entries(body.get("agents"), "agents")
        ),
    )


def build_schema(parameters: Any) -> dict[str, Any]:
    """Return the JSON schema for parameters in CopilotKit's own notation.

    A JSON schema is returned as it is.
    """
    if isinstance(parameters, dict):
        schema = {"properties": {}, **parameters, "type": "object"}
        return schema if isinstance(schema["properties"], dict) else {**schema, "properties": {}}
    entries = _parse_entries(parameters, "parameters")
    return {
        "type": "object",
        "properties": {name: _build_parameter_schema(item) for name, item in entries},
        "required": [name for name, item in entries if item.get("required") is not False],
    }


def _build_parameter_schema(item: Mapping[str, Any]) -> dict[str, Any]:
    kind, description = get_text(item, "type"), get_text(item, "description")
    about = {"description": description} if description else {}
    if kind.endswith("[]"):
        return {"type": "array", "items": _build_plain_schema(kind[:-2], item), **about}
    return {**_build_plain_schema(kind, item), **about}


def _build_plain_schema(kind: str, item: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "object":
        inner = item.get("attributes")
        return build_schema(inner) if inner else {"type": "object"}
    if kind in _NUMBERS:
        return {"type": _NUMBERS[kind]}
    choices = item.get("enum")
    return {"type": "string", **({"enum": choices} if isinstance(choices, list) else {})}


def _limit_entries(items: Any, what: str) -> list[_Entry]:
    entries = _parse_entries(items, what)
    if len(entries) > MAX_ENTRIES:
        logger.warning(
            "A remote endpoint offers %d %s; the first %d count.", len(entries), what, MAX_ENTRIES
        )
    return entries[:MAX_ENTRIES]


def _parse_entries(items: Any, what: str) -> list[_Entry]:
    candidates = as_list(items)
    entries: list[_Entry] = []
    for item in candidates:
        name = item.get("name") if isinstance(item, dict) else None
        if isinstance(name, str) and name:
            entries.append((name, item))
    if nameless := len(candidates) - len(entries):
        logger.warning("A remote endpoint offers %d %s without a name, left out.", nameless, what)
    return entries


def _description(item: Mapping[str, Any]) -> str:
    return get_text(item, "description")[:MAX_DESCRIPTION_LENGTH]
