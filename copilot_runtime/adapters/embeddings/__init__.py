"""The table of embedders: provider name → import string."""

from typing import Any

from copilot_runtime.api.adapter import Embedder
from copilot_runtime.api.registry import Registry
from copilot_runtime.base.errors import ConfigurationFailed

_OPENAI = "copilot_runtime.adapters.embeddings.openai"

EMBEDDERS = {
    "auto": "copilot_runtime.adapters.embeddings.minilm:choose_embedder",
    "azure": f"{_OPENAI}:azure",
    "bedrock": "copilot_runtime.adapters.embeddings.bedrock:BedrockEmbedder",
    "github": f"{_OPENAI}:github",
    "google": "copilot_runtime.adapters.embeddings.google:GoogleEmbedder",
    "hashing": "copilot_runtime.adapters.embeddings.hashing:HashingEmbedder",
    "lmstudio": f"{_OPENAI}:lmstudio",
    "minilm": "copilot_runtime.adapters.embeddings.minilm:MiniLMEmbedder",
    "mistral": f"{_OPENAI}:mistral",
    "ollama": f"{_OPENAI}:ollama",
    "openai": f"{_OPENAI}:OpenAIEmbedder",
    "tei": "copilot_runtime.adapters.embeddings.tei:TEIEmbedder",
    "together": f"{_OPENAI}:together",
    "vllm": f"{_OPENAI}:vllm",
}


def create_embedder(name: str, **options: Any) -> Embedder:
    """Create the embedder of a name, such as `openai:text-embedding-3-small` or `hashing`.

    The text after the colon is the model, or the URL of a TEI server. `options` are the keyword
    arguments of the embedder. Installed packages add names by entry points in the group
    `copilot_runtime.embedders`. Raises `ConfigurationFailed`.
    """
    kind, _, model = name.partition(":")
    build = Registry("copilot_runtime.embedders", EMBEDDERS)[kind.strip()]
    try:
        embedder = build(model.strip(), **options) if model.strip() else build(**options)
    except TypeError as error:
        raise ConfigurationFailed(
            f"The embedder {kind!r} could not be made: {error}",
            hint="Look at the options of the embedder (embedder_options).",
        ) from error
    if not isinstance(embedder, Embedder):
        raise ConfigurationFailed(
            f"The factory of the embedder {kind!r} returned a {type(embedder).__name__}.",
            hint="It must be a subclass of copilot_runtime.api.Embedder.",
        )
    return embedder
