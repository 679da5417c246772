"""The demo model: it needs neither network nor key, and answers by fixed rules."""

import asyncio
import re
from typing import assert_never

from copilot_runtime.adapters.assembly import Assembly
from copilot_runtime.adapters.demo.rules import build_answer
from copilot_runtime.api.adapter import Adapter, ChatRequest, ModelEndpoint
from copilot_runtime.api.events import Events, Usage
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import CopilotError

_WORD = re.compile(r"\s*\S+(?:\s+$)?")


class DemoAdapter(Adapter):
    """Answers by fixed rules, and says that it is no language model.

    Args:
        pace: The pause before each word, in seconds.
    """

    suggestions = (
        "What time is it in Paris?",
        "Think about the sea",
        'Set the state to {"mood": "calm"}',
        "Tell me a long story",
        "Show me an error",
    )

    def __init__(self, *, pace: float = 0.03) -> None:
        self._pace = pace

    async def stream(self, request: ChatRequest) -> Events:
        """Answer the last message of `request`, word by word.

        Raises:
            Misuse: The client requires an action that it does not offer.
            CopilotError: The last message requests an error.
        """
        assembly = Assembly(request)
        words = 0
        for index, part in enumerate(build_answer(request)):
            if isinstance(part, CopilotError):
                raise part
            for word in _WORD.findall(part.text):
                await asyncio.sleep(self._pace)
                assembly.events = []
                match part.kind:
                    case "text":
                        words += 1
                        assembly.text(word)
                    case "reasoning":
                        assembly.reasoning(word)
                    case "call":
                        assembly.call(index, "", part.action, word)
                    case _:
                        assert_never(part.kind)
                for event in assembly.events:
                    yield event
        assembly.events = []
        assembly.end()
        for event in assembly.events:
            yield event
        prompt = sum(len(m.content.split()) for m in request.messages if isinstance(m, TextMessage))
        yield Usage(model="demo", provider="demo", input_tokens=prompt, output_tokens=words)

    def endpoint(self, request: ChatRequest) -> ModelEndpoint:
        """Return `demo` as the provider and the model."""
        del request
        return ModelEndpoint("demo", "demo", in_process=True)
