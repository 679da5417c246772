"""What answers without a key: rules in the clothes of a chat model. No part of what you copy."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

STORY = "".join(f"Day {day} was fine. " for day in range(1, 41))
HELP = 'I am no language model. Say: "Plan the fjord and the opera", or "Book a room".'


class Pretend(BaseChatModel):
    """Streams what `answer` says, word by word."""

    @property
    def _llm_type(self) -> str:
        return "pretend"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:  # noqa: ARG002
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:  # noqa: ARG002
        return ChatResult(generations=[ChatGeneration(message=answer(messages))])

    async def _astream(
        self,
        messages: list[BaseMessage],
        *args: Any,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> AsyncIterator[ChatGenerationChunk]:
        said = answer(messages)
        for word in re.findall(r"\S+\s*", str(said.content)):
            await asyncio.sleep(0.03)
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))
        for index, call in enumerate(said.tool_calls):
            arguments = json.dumps(call["args"])
            chunk: Any = {"name": call["name"], "args": arguments, "id": call["id"], "index": index}
            calls: Any = [{**chunk, "type": "tool_call_chunk"}]
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=calls))


def answer(messages: Sequence[BaseMessage]) -> AIMessage:
    """Answer what was said last."""
    last = messages[-1]
    said = str(last.content).strip(" .?")
    if isinstance(last, ToolMessage):
        return AIMessage(f"{said}.")
    if found := re.match(r"plan (.+)", said, re.I):
        return _call(messages, "add_stops", stops=re.split(r", | and ", found[1]))
    if found := re.match(r"book (.+)", said, re.I):
        return _call(messages, "book", what=found[1])
    if found := re.search(r"weather in (\w+)", said, re.I):
        return _call(messages, "showWeather", city=found[1])
    if found := re.match(r'show .*?"?(\w+)"?$', said, re.I):
        return _call(messages, "showDestination", city=found[1])
    return AIMessage(STORY if "story" in said else HELP)


def _call(messages: Sequence[BaseMessage], name: str, **arguments: Any) -> AIMessage:
    call = {"id": f"call-{len(messages)}", "name": name, "args": arguments}
    return AIMessage("", tool_calls=[{**call, "type": "tool_call"}])
