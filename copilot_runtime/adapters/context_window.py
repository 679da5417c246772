"""The context windows of models: by family, configured or looked up, and requests trimmed to them.

No provider's tokenizer is available offline, so texts are measured in characters: initially three
per token, which is cautious for European languages. The count of input tokens in each response then
calibrates that ratio, for this model and the languages of its users.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

from copilot_runtime.adapters.history import CHARACTERS_PER_TOKEN
from copilot_runtime.adapters.media.results import has_files, split_results
from copilot_runtime.api.action import Action
from copilot_runtime.api.adapter import Adapter, ChatRequest, MessageWindow, ModelEndpoint
from copilot_runtime.api.events import Events, Usage
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    Message,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.telemetry import semconv


@dataclass(frozen=True, slots=True)
class Profile:
    """The properties of a model that limit its requests. The context window is in tokens."""

    context_tokens: int = 128_000
    developer_role: bool = False
    """The model takes instructions from `developer`, the newer name of `system`."""
    reasons: bool = False
    """The model reasons before it answers, and can summarise its reasoning."""
    unsupported: Mapping[str, str] = field(default_factory=dict[str, str])
    """Parameter that the model does not support → the reason."""


_SAMPLES_BY_ITSELF = dict.fromkeys(
    ("temperature", "top_p", "frequency_penalty", "presence_penalty"),
    "This model thinks, and chooses its words by itself.",
)
_TAKES_NO_STOP = {"stop": "This model thinks, and takes no stop words."}
_DOES_NOT_THINK = {"reasoning_effort": "This model does not think before it answers."}


def _chats(context_tokens: int = 128_000) -> Profile:
    return Profile(context_tokens, developer_role=True, unsupported=_DOES_NOT_THINK)


def _reasons(context_tokens: int = 200_000) -> Profile:
    lacking = {**_SAMPLES_BY_ITSELF, **_TAKES_NO_STOP}
    return Profile(context_tokens, developer_role=True, reasons=True, unsupported=lacking)


_K = 1_000
UNKNOWN = Profile()
PROFILES = {
    "chatgpt-": _chats(),
    "claude-": Profile(200 * _K),
    "codestral": Profile(256 * _K),
    "command-r": Profile(128 * _K),
    "deepseek-": Profile(128 * _K),
    "gemini-": Profile(1_048_576),
    "gemini-1.5-pro": Profile(2_097_152),
    "gemma": Profile(8_192),
    "gemma-3": Profile(128 * _K),
    "gemma3": Profile(128 * _K),
    "gpt-": Profile(developer_role=True),
    "gpt-3.5-turbo": _chats(16_385),
    "gpt-3.5-turbo-instruct": _chats(4_096),
    "gpt-4": _chats(8_192),
    "gpt-4-0125": _chats(),
    "gpt-4-1106": _chats(),
    "gpt-4-32k": _chats(32_768),
    "gpt-4-turbo": _chats(),
    "gpt-4-vision": _chats(),
    "gpt-4.1": _chats(1_047_576),
    "gpt-4.5": _chats(),
    "gpt-4o": _chats(),
    "gpt-5": _reasons(272 * _K),
    "gpt-5-chat": _chats(),
    "gpt-5.": Profile(272 * _K, developer_role=True, reasons=True),
    "gpt-6": Profile(272 * _K, developer_role=True, reasons=True),
    "gpt-oss": Profile(131_072),
    "llama": Profile(8_192),
    "llama-3.1": Profile(131_072),
    "llama-3.2": Profile(131_072),
    "llama-3.3": Profile(131_072),
    "llama-4": Profile(131_072),
    "llama3.1": Profile(131_072),
    "llama3.2": Profile(131_072),
    "llama3.3": Profile(131_072),
    "mistral-large": Profile(128 * _K),
    "mixtral": Profile(32_768),
    "o1": _reasons(),
    "o1-mini": _reasons(128 * _K),
    "o1-preview": _reasons(128 * _K),
    "o3": _reasons(),
    "o4": _reasons(),
    "qwen": Profile(32_768),
    "qwen3": Profile(131_072),
}


@lru_cache(maxsize=256)  # a client may name a model in each request
def find_profile(model: str) -> Profile:
    """Return the profile of a model's family, or `UNKNOWN`; `vendor/model` counts as `model`."""
    name = model.rpartition("/")[2].lower()
    starts = [start for start in PROFILES if name.startswith(start)]
    return PROFILES[max(starts, key=len)] if starts else UNKNOWN


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
        tokens = self.context_tokens or self.usual or find_profile(model).context_tokens
        if not (self.context_tokens or _is_short(request.messages)):
            tokens = await _look_up(self.provider, model) or tokens
        tokens -= min(request.parameters.max_tokens or 0, tokens // 2)
        measured = self._measured.get(model, CHARACTERS_PER_TOKEN)
        return int(tokens * measured / CHARACTERS_PER_TOKEN)

    def calibrate(self, model: str, request: ChatRequest, sent: bytes, usage: Usage) -> None:
        """Calibrate the estimate by the count of input tokens, unless the request had media."""
        tokens = usage.input_tokens or 0
        if tokens < _LEAST_COUNT or any(map(has_files, split_results(request.messages))):
            return
        ratio = len(sent.decode(errors="replace")) / tokens * _CAUTION
        ratio = min(max(ratio, _FEWEST), _MOST)
        self._measured[model] = (self._measured.get(model, ratio) + ratio) / 2
        if len(self._measured) > 256:  # a client may name a model in each request
            self._measured.pop(next(iter(self._measured)))


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
        if type(message) is TextMessage and not message.parts:  # nearly all
            left -= len(message.content)
        elif has_files(message):
            return False
        else:
            left -= count_characters(message)
        if left < 0:
            return False
    return True


class WrapperAdapter(Adapter):
    """The base class of an adapter around another one."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.introduction = adapter.introduction

    def check(self, run: RunInput) -> None:
        self.adapter.check(run)

    async def check_key(self) -> None:
        await self.adapter.check_key()

    def endpoint(self, request: ChatRequest) -> ModelEndpoint:
        return self.adapter.endpoint(request)

    def suggest(self, actions: Sequence[Action]) -> Sequence[str]:
        return self.adapter.suggest(actions)

    def find_failing_checks(self) -> Sequence[str]:
        return self.adapter.find_failing_checks()

    async def aclose(self) -> None:
        await self.adapter.aclose()


class WindowedAdapter(WrapperAdapter):
    """Wraps an adapter: a message window trims its requests."""

    def __init__(self, adapter: Adapter, window: MessageWindow) -> None:
        super().__init__(adapter)
        self.window = window

    def stream(self, request: ChatRequest) -> Events:
        """Trim the request and yield the events of the adapter. Raises the errors of both."""
        fitted = self.window.fit(request)
        if fitted is not request:
            request.span.set_attributes({semconv.CONVERSATION_COMPACTED: True})
        return self.adapter.stream(fitted)
