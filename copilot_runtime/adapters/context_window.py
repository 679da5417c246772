"""How much of a conversation a model takes: what is set, what is known of it, what it counted.

No provider's tokenizer is at hand offline, so texts are measured in characters: at first three to
a token, which is cautious for European languages. Each answer's own count of what went in then
says how many there really are, for this model and the languages spoken here.
"""

import asyncio
from collections.abc import Iterable
from functools import partial

from copilot_runtime.adapters.history import CHARACTERS_PER_TOKEN
from copilot_runtime.adapters.profiles import find_profile
from copilot_runtime.events import Usage
from copilot_runtime.interfaces import ChatRequest
from copilot_runtime.messages import (
    ActionExecutionMessage,
    ImageMessage,
    Message,
    ResultMessage,
    TextMessage,
)

_SURELY_FITS = 8_000
"""Characters of a conversation for which nobody need know the model's window."""

_CAUTION = 0.9
_LEAST_COUNT = 500
_FEWEST, _MOST = 0.5, 4.0


class ContextWindow:
    """The windows of a provider's models. `provider` is its name in `ADAPTERS`.

    `context_tokens` overrides what is known; `usual` is for models nobody knows.
    """

    def __init__(
        self, provider: str, context_tokens: int | None = None, *, usual: int | None = None
    ) -> None:
        self.provider = provider
        self.context_tokens = context_tokens
        self.usual = usual
        self._measured: dict[str, float] = {}

    async def tokens_for(self, model: str, request: ChatRequest) -> int:
        """Return how many tokens of `CHARACTERS_PER_TOKEN` characters this request may have.

        The part of the answer, if it is limited, is taken off.
        """
        tokens = self.context_tokens or await self._known(model, request)
        tokens -= min(request.parameters.max_tokens or 0, tokens // 2)
        measured = self._measured.get(model, CHARACTERS_PER_TOKEN)
        return int(tokens * measured / CHARACTERS_PER_TOKEN)

    def calibrate(self, model: str, request: ChatRequest, sent: bytes, usage: Usage) -> None:
        """Take the provider's count of what was sent, unless images and files were in it."""
        if usage.input_tokens < _LEAST_COUNT or any(map(_has_media, request.messages)):
            return
        ratio = len(sent.decode(errors="replace")) / usage.input_tokens * _CAUTION
        ratio = min(max(ratio, _FEWEST), _MOST)
        self._measured[model] = (self._measured.get(model, ratio) + ratio) / 2
        if len(self._measured) > 256:  # a client may name a model in each request
            self._measured.pop(next(iter(self._measured)))

    async def _known(self, model: str, request: ChatRequest) -> int:
        profile = find_profile(model).context_tokens
        if _is_short(request.messages):
            return self.usual or profile
        return await _look_up(self.provider, model) or self.usual or profile


async def _look_up(provider: str, model: str) -> int | None:
    try:
        from copilot_runtime.adapters.pricing import find_model_facts, load_prices

        await load_prices()
    except ModuleNotFoundError:  # without `genai-prices`, families of models must do
        return None
    return (await asyncio.to_thread(partial(find_model_facts, provider, model))).context_tokens


def _is_short(messages: Iterable[Message]) -> bool:
    left = _SURELY_FITS
    for message in messages:
        match message:
            case TextMessage() if not message.parts:
                left -= len(message.content)
            case ActionExecutionMessage():
                left -= len(message.arguments)
            case ResultMessage():
                left -= len(message.result)
            case _ if _has_media(message):
                return False
            case _:
                pass
        if left < 0:
            return False
    return True


def _has_media(message: Message) -> bool:
    return isinstance(message, ImageMessage) or bool(
        isinstance(message, TextMessage) and message.parts
    )
