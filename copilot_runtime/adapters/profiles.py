"""Facts per family of models, looked up by the longest matching prefix of a model's name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Profile:
    """The properties of a model that decide what a request may contain. Windows are in tokens."""

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
