"""What answers without a key: rules in the clothes of a model. No part of what you copy."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall

HELP = 'I am no language model. Say: "Plan the fjord and the opera", or "Book a room".'


async def pretend(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:  # noqa: ARG001
    """Answer what was said last."""
    parts = [part for one in messages if isinstance(one, ModelRequest) for part in one.parts]
    last = [part for part in parts if isinstance(part, (ToolReturnPart, UserPromptPart))][-1]
    said = str(last.content).strip(" .?")
    if isinstance(last, UserPromptPart) and (call := _call(said)):
        name, arguments = call
        id = f"call-{len(messages)}"
        yield {0: DeltaToolCall(name=name, json_args=json.dumps(arguments), tool_call_id=id)}
        return
    for word in re.findall(r"\S+\s*", f"{said}." if isinstance(last, ToolReturnPart) else HELP):
        yield word


def _call(said: str) -> tuple[str, Any] | None:
    if found := re.match(r"plan (.+)", said, re.I):
        return "add_stops", {"stops": re.split(r", | and ", found[1])}
    if found := re.match(r"book (.+)", said, re.I):
        return "book", {"what": found[1]}
    if found := re.search(r"weather in (\w+)", said, re.I):
        return "showWeather", {"city": found[1]}
    if found := re.match(r'show .*?"?(\w+)"?$', said, re.I):
        return "showDestination", {"city": found[1]}
    return None
