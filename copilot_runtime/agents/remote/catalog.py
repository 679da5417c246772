"""What a remote endpoint says that it offers: actions with parameters, and agents of some type."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from copilot_runtime.errors import CopilotError

logger = logging.getLogger(__name__)

MOST = 128
"""Actions, and agents, of one endpoint that count: providers take no more."""

LONGEST_DESCRIPTION = 4000

_Named = tuple[str, dict[str, Any]]

_NUMBERS = {"number": "number", "integer": "integer", "boolean": "boolean"}


@dataclass(frozen=True, slots=True)
class OfferedAction:
    """An action of the endpoint; `parameters` is the JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OfferedAgent:
    """An agent of the endpoint; `kind` is `langgraph`, `crewai`, or what else it says."""

    name: str
    description: str
    kind: str


@dataclass(frozen=True, slots=True)
class Offer:
    """What an endpoint has, as far as it is known; `failure` is why nobody could ask it now."""

    actions: tuple[OfferedAction, ...] = ()
    agents: tuple[OfferedAgent, ...] = ()
    failure: CopilotError | None = None


def read_offer(body: Any) -> Offer:
    """Read the answer to `/info`. Raises `ValueError` for what is none.

    An action or an agent without a name is left out, and so is what is too much for a model.
    """
    if not isinstance(body, dict) or not ("actions" in body or "agents" in body):
        raise ValueError("It has neither actions nor agents.")
    return Offer(
        actions=tuple(
            OfferedAction(name, _description(item), schema_of(item.get("parameters")))
            for name, item in _first(body.get("actions"), "actions")
        ),
        agents=tuple(
            OfferedAgent(name, _description(item), _text(item, "type"))
            for name, item in _first(body.get("agents"), "agents")
        ),
    )


def schema_of(parameters: Any) -> dict[str, Any]:
    """Return the JSON schema for parameters in CopilotKit's own notation.

    A server that sends a JSON schema already is understood, too.
    """
    if isinstance(parameters, dict):
        known = {"properties": {}, **parameters, "type": "object"}
        return known if isinstance(known["properties"], dict) else {**known, "properties": {}}
    named = _named(parameters, "parameters")
    return {
        "type": "object",
        "properties": {name: _schema(item) for name, item in named},
        "required": [name for name, item in named if item.get("required") is not False],
    }


def _schema(item: Mapping[str, Any]) -> dict[str, Any]:
    kind, described = _text(item, "type"), _text(item, "description")
    about = {"description": described} if described else {}
    if kind.endswith("[]"):
        return {"type": "array", "items": _plain(kind[:-2], item), **about}
    return {**_plain(kind, item), **about}


def _plain(kind: str, item: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "object":
        inner = item.get("attributes")
        return schema_of(inner) if inner else {"type": "object"}
    if kind in _NUMBERS:
        return {"type": _NUMBERS[kind]}
    choices = item.get("enum")
    return {"type": "string", **({"enum": choices} if isinstance(choices, list) else {})}


def _first(items: Any, what: str) -> list[_Named]:
    found = _named(items, what)
    if len(found) > MOST:
        logger.warning(
            "A remote endpoint offers %d %s; the first %d count.", len(found), what, MOST
        )
    return found[:MOST]


def _named(items: Any, what: str) -> list[_Named]:
    listed: list[Any] = items if isinstance(items, list) else []
    found: list[_Named] = []
    for item in listed:
        name = item.get("name") if isinstance(item, dict) else None
        if isinstance(name, str) and name:
            found.append((name, item))
    if unnamed := len(listed) - len(found):
        logger.warning("A remote endpoint offers %d %s without a name, left out.", unnamed, what)
    return found


def _description(item: Mapping[str, Any]) -> str:
    return _text(item, "description")[:LONGEST_DESCRIPTION]


def _text(item: Mapping[str, Any], key: str) -> str:
    value = item.get(key)
    return value if isinstance(value, str) else ""
