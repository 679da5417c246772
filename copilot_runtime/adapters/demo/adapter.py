"""The model to try everything with: no network, no key, rules instead of intelligence."""

import asyncio
import re
from collections.abc import AsyncGenerator
from typing import assert_never
from uuid import uuid4

from copilot_runtime.adapters.demo.rules import Call, Fail, Part, Say, Think, answer
from copilot_runtime.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionStart,
    ReasoningContent,
    ReasoningEnd,
    ReasoningStart,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.interfaces import ChatRequest, Events
from copilot_runtime.messages import TextMessage

_PIECE = re.compile(r"\s*\S+(?:\s+$)?")


class DemoAdapter:
    """Answers from rules, and says so. `pace` is the pause before each word, in seconds."""

    def __init__(self, *, pace: float = 0.03) -> None:
        self._pace = pace

    async def stream(self, request: ChatRequest) -> Events:
        """Answer the last message of `request`, word by word."""
        spoken = 0
        turn = _new_id()
        for part in answer(request):
            if isinstance(part, Fail):
                raise part.error
            async for event in self._speak(part, turn):
                spoken += isinstance(event, TextMessageContent)
                yield event
        heard = sum(len(m.content.split()) for m in request.messages if isinstance(m, TextMessage))
        yield Usage(model="demo", provider="demo", input_tokens=heard, output_tokens=spoken)

    async def _speak(self, part: Part, turn: str) -> Events:
        new = _new_id()
        match part:
            case Say():
                yield TextMessageStart(message_id=new)
                async for word in self._words(part.text):
                    yield TextMessageContent(message_id=new, content=word)
                if not part.broken_off:
                    yield TextMessageEnd(message_id=new)
            case Think():
                yield ReasoningStart(message_id=new)
                async for word in self._words(part.text):
                    yield ReasoningContent(message_id=new, content=word)
                yield ReasoningEnd(message_id=new)
            case Call():
                yield ActionExecutionStart(call_id=new, name=part.name, parent_id=turn)
                async for word in self._words(part.arguments):
                    yield ActionExecutionArgs(call_id=new, delta=word)
                yield ActionExecutionEnd(call_id=new)
            case Fail():
                raise part.error
            case _:
                assert_never(part)

    async def _words(self, text: str) -> AsyncGenerator[str, None]:
        for word in _PIECE.findall(text):
            await asyncio.sleep(self._pace)
            yield word


def _new_id() -> str:
    return f"demo-{uuid4()}"
