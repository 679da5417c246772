"""Our adapters for every provider that aimock speaks for, each bound to its address."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from copilot_runtime.api import Adapter

KEY = "sk-mock"

Speaker = Callable[[str], Adapter]
"""Returns an adapter that asks the mock at this address."""


def _by(name: str, path: str, **options: Any) -> Speaker:
    """Return a speaker that makes an adapter by its name below `adapters`."""
    module, _, attribute = name.partition(":")

    def made(url: str) -> Adapter:
        make = getattr(import_module(f"copilot_runtime.adapters.{module}"), attribute)
        return make(base_url=f"{url}{path}", max_retries=0, **options)

    return made


SPEAKERS: Mapping[str, Speaker] = {
    "openai": _by("openai:OpenAIAdapter", "/v1", model="gpt-4o", api_key=KEY),
    "openai_responses": _by(
        "openai:OpenAIAdapter", "/v1", model="gpt-5", api="responses", api_key=KEY
    ),
    "azure": _by(
        "openai.presets:azure", "/openai", model="gpt-4o", api_version="2024-10-21", api_key=KEY
    ),
    "anthropic": _by("anthropic:AnthropicAdapter", "", model="claude-sonnet-4-5", api_key=KEY),
    "google": _by("google:GoogleAdapter", "/v1beta", model="gemini-2.5-flash", api_key=KEY),
    "vertex": _by(
        "google:GoogleAdapter",
        "/v1",
        model="gemini-2.5-flash",
        project="a-project",
        location="europe-west4",
        token="a-token",
    ),
    "bedrock": _by(
        "bedrock:BedrockAdapter", "", model="anthropic.claude-sonnet-4-5-20250929-v1:0", api_key=KEY
    ),
    "ollama": _by("openai.presets:ollama", "/v1", model="llama3.2"),
    "openrouter": _by("openai.presets:openrouter", "/api/v1", model="openai/gpt-4o", api_key=KEY),
}
