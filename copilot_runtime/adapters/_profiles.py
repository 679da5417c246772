"""Facts per family of models. The longest beginning of a model's name that is listed counts."""

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Profile:
    """What an adapter must know of a model before it asks."""

    context_tokens: int = 128_000
    developer_role: bool = False
    """The model takes instructions from `developer`, the newer name of `system`."""


_K = 1_000
UNKNOWN = Profile()
PROFILES = {
    "chatgpt-": Profile(developer_role=True),
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
    "gpt-3.5-turbo": Profile(16_385, developer_role=True),
    "gpt-3.5-turbo-instruct": Profile(4_096, developer_role=True),
    "gpt-4": Profile(8_192, developer_role=True),
    "gpt-4-0125": Profile(developer_role=True),
    "gpt-4-1106": Profile(developer_role=True),
    "gpt-4-32k": Profile(32_768, developer_role=True),
    "gpt-4-turbo": Profile(developer_role=True),
    "gpt-4-vision": Profile(developer_role=True),
    "gpt-4.1": Profile(1_047_576, developer_role=True),
    "gpt-4.5": Profile(developer_role=True),
    "gpt-4o": Profile(developer_role=True),
    "gpt-5": Profile(272 * _K, developer_role=True),
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
    "o1": Profile(200 * _K, developer_role=True),
    "o1-mini": Profile(developer_role=True),
    "o1-preview": Profile(developer_role=True),
    "o3": Profile(200 * _K, developer_role=True),
    "o4": Profile(200 * _K, developer_role=True),
    "qwen": Profile(32_768),
    "qwen3": Profile(131_072),
}


@lru_cache(maxsize=256)  # a client may name a model in each request
def profile_of(model: str) -> Profile:
    """Return what is known of a model; `vendor/model` counts as `model`."""
    name = model.rpartition("/")[2].lower()
    known = [start for start in PROFILES if name.startswith(start)]
    return PROFILES[max(known, key=len)] if known else UNKNOWN
