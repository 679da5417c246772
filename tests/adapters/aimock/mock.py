"""The mock of npm, `@copilotkit/aimock`, as a process of its own, and our adapters that ask it."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from copilot_runtime.api import Adapter
from tests.conformance.v2.node import install
from tests.processes import running

HERE = Path(__file__).parent
PROGRAM = HERE / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"


@contextmanager
def mocking() -> Generator[str, None, None]:
    """Start the mock with our conversations and yield its address; it refuses all others."""
    install(HERE)
    conversations = HERE / "conversations.json"
    command = ["node", PROGRAM, "--port", "0", "--fixtures", conversations, "--strict"]
    with running([*command, "--chunk-size", "7"]) as program:
        yield program.until(r"listening on (http://127\.0\.0\.1:\d+)")[1]


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
