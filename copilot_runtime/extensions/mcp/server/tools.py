"""What this runtime can do, as tools of an MCP server."""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from copilot_runtime.api.action import Action
from copilot_runtime.api.agent import Agent

if TYPE_CHECKING:
    from mcp_types import Tool

logger = logging.getLogger(__name__)

ASK = "ask_"
"""What stands before an agent's name in the name of its tool."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""The names that the protocol allows."""

_MESSAGE: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "message": {
            "type": "string",
            "description": "The question or the task. The agent knows nothing else of this chat.",
        }
    },
    "required": ["message"],
    "additionalProperties": False,
}


def build_tools(actions: Sequence[Action], agents: Mapping[str, Agent]) -> "list[Tool]":
    """Return a tool for each action and each agent, in the order of their names."""
    from mcp_types import Tool

    found: dict[str, Tool] = {}
    for action in actions:
        schema = {**action.parameters, "type": "object"}
        found[action.name] = Tool(
            name=action.name, description=action.description, input_schema=schema
        )
    for name, agent in agents.items():
        described = agent.description or f"Ask the agent {name}."
        tool = Tool(name=f"{ASK}{name}", description=described, input_schema={**_MESSAGE})
        found.setdefault(tool.name, tool)
    named = sorted(name for name in found if _NAME.fullmatch(name))
    for name in found.keys() - set(named):
        logger.warning("%r is no name for a tool of MCP; it is left out.", name)
    return [found[name] for name in named]
