"""What the npm client sends: its documents, and variables as react-core fills them."""

import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "conformance" / "v1" / "client-documents"
CHAT = (FOLDER / "generateCopilotResponse.graphql").read_text()
AGENTS = (FOLDER / "availableAgents.graphql").read_text()
STATE = (FOLDER / "loadAgentState.graphql").read_text()

PLAIN = re.sub(r" @(defer|stream)", "", CHAT)
"""The chat without incremental delivery."""

WHEN = "2026-01-01T00:00:00.000Z"


def user(content: str = "Hi", id: str = "user-1") -> dict[str, Any]:
    """Return a message of the person."""
    return {"id": id, "createdAt": WHEN, "textMessage": {"role": "user", "content": content}}


def browser_action(name: str = "setColor") -> dict[str, Any]:
    """Return an action the browser offers."""
    schema = '{"type":"object","properties":{"color":{"type":"string"}},"required":["color"]}'
    return {"name": name, "description": "", "jsonSchema": schema, "available": "enabled"}


def data(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the input of a chat turn."""
    return {
        "frontend": {"actions": [], "url": "http://localhost:3000/"},
        "threadId": "thread-1",
        "runId": None,
        "extensions": {},
        "metaEvents": [],
        "messages": list(messages) or [user()],
        "metadata": {"requestType": "Chat"},
        "agentStates": [],
        "forwardedParameters": {},
        "context": [],
        **more,
    }


def chat(*messages: dict[str, Any], query: str = CHAT, **more: Any) -> dict[str, Any]:
    """Return the body of a chat turn."""
    return {
        "operationName": "generateCopilotResponse",
        "query": query,
        "variables": {"data": data(*messages, **more), "properties": {}},
    }


def acting(query: str = CHAT, **more: Any) -> dict[str, Any]:
    """Return the body of a chat turn of a page that offers the action setColor."""
    frontend = {"actions": [browser_action()], "url": "http://localhost:3000/"}
    return chat(query=query, frontend=frontend, **more)
