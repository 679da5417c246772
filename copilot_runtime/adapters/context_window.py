"""The context window of a model, configured or looked up, and a calibrated estimate of tokens.

No provider's tokenizer is available offline, so texts are measured in characters: initially three
per token, which is cautious for European languages. The count of input tokens in each response then
calibrates that ratio, for this model and the languages of its users.
"""

import asyncio
from collections.abc import Iterable
from functools import partial

from copilot_runtime.adapters.history import CHARACTERS_PER_TOKEN
from copilot_runtime.adapters.profiles import find_profile
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.events import Usage
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ImageMessage,
    Message,
    ResultMessage,
    TextMessage,
)

_SURELY_FITS = 8_000
"""Length of a conversation, in characters, below which the model's window is not looked up."""

_CAUTION = 0.9
_LEAST_COUNT = 500
_FEWEST, _MOST = 0.5, 4.0


class ContextWindow:
    """The context windows of a provider's models, in tokens.

    Args:
        provider: The provider's name in `ADAPTERS`.
        context_tokens: The window of all its models; None: looked up by the model's name.
        usual: The window of models that the look-up does not find.
    """

    def __init__(
        self, provider: str, context_tokens: int | None = None, *, usual: int | None = None
    ) -> None:
        self.provider = provider
        self.context_tokens = context_tokens
        self.usual = usual
        self._measured: dict[str, float] = {}

    async def tokens_for(self, model: str, request: ChatRequest) -> int:
        """Return the maximum size of this request, in tokens of `CHARACTERS_PER_TOKEN` characters.

        The limit of the answer (`max_tokens`), if there is one, is subtracted.
        """
        tokens = self.context_tokens or await self._find_tokens(model, request)
        tokens -= min(request.parameters.max_tokens or 0, tokens // 2)
        measured = self._measured.get(model, CHARACTERS_PER_TOKEN)
        return int(tokens * measured / CHARACTERS_PER_TOKEN)

    def calibrate(self, model: str, request: ChatRequest, sent: bytes, usage: Usage) -> None:
        """Calibrate the estimate by the count of input tokens, unless the request had media."""
        tokens = usage.input_tokens or 0
        if tokens < _LEAST_COUNT or any(map(_has_media, request.messages)):
            return
        ratio = len(sent.decode(errors="replace")) / tokens * _CAUTION
        ratio = min(max(ratio, _FEWEST), _MOST)
        self._measured[model] = (self._measured.get(model, ratio) + ratio) / 2
        if len(self._measured) > 256:  # a client may name a model in each request
            self._measured.pop(next(iter(self._measured)))

    async def _find_tokens(self, model: str, request: ChatRequest) -> int:
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


def count_characters(message: Message) -> int:
    """Return the number of characters of a message's text, arguments or result."""
    match message:
        case TextMessage(content=text):
            return len(text)
        case ActionExecutionMessage(arguments=text) | ResultMessage(result=text):
            return len(text)
        case _:
            return 0


def _is_short(messages: Iterable[Message]) -> bool:
    left = _SURELY_FITS
    for message in messages:
        left -= count_characters(message)
        if left < 0 or _has_media(message):
            return False
    return True


def _has_media(message: Message) -> bool:
    return isinstance(message, ImageMessage) or bool(
        isinstance(message, TextMessage) and message.parts
    )
