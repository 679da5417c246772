"""Embeddings of OpenAI, and of every server with the same API.

https://platform.openai.com/docs/api-reference/embeddings
"""

from base64 import b64decode
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Unpack

import numpy as np

from copilot_runtime.adapters.embeddings.http_embedder import (
    EmbedderOptions,
    Embeddings,
    HTTPEmbedder,
    Vectors,
)
from copilot_runtime.adapters.http_adapter import ApiKey
from copilot_runtime.adapters.openai.auth import OpenAIAuth
from copilot_runtime.adapters.openai.presets import PRESETS
from copilot_runtime.adapters.openai.request import OPENAI, Preset
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    add_counts,
    as_object,
    as_objects,
    get_object,
    get_text,
)
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.span import find_current_span

_MODELS = {
    "github": "openai/text-embedding-3-small",
    "mistral": "mistral-embed",
    "ollama": "nomic-embed-text",
    "openai": "text-embedding-3-small",
}
"""The default model of each preset."""
_MOST_TOKENS = {"azure": 8191, "github": 8191, "mistral": 8192, "openai": 8191}


class OpenAIEmbedder(HTTPEmbedder):
    """Embeds with a model of OpenAI, or of any server with the same API.

    Args:
        name: The model's name; `text-embedding-3-small` by default.
        dimensions: The length of a vector, if the model lets one choose it.
        api_key: The key, or a function that returns it; by default `OPENAI_API_KEY`, or the
            variable of the preset.
        base_url: The address, with its version; by default `OPENAI_BASE_URL`, or the preset's.
        preset: The peculiarities of a service.
        options: Those of `EmbedderOptions`.

    Raises:
        ConfigurationFailed: No model is named where there must be one, or the URL is invalid.
    """

    def __init__(
        self,
        name: str = "",
        *,
        dimensions: int | None = None,
        api_key: ApiKey | None = None,
        base_url: str | None = None,
        preset: Preset = OPENAI,
        **options: Unpack[EmbedderOptions],
    ) -> None:
        options.setdefault("max_tokens", _MOST_TOKENS.get(preset.adapter, 0))
        super().__init__(
            name or _MODELS.get(preset.adapter, ""),
            provider=preset.adapter,
            service=preset.name,
            dimensions=dimensions,
            **options,
        )
        self._auth = OpenAIAuth(api_key, base_url, preset)
        self._url = self._auth.url("embeddings", self.name)
        self._is_at_home = preset.is_at(self._auth.base_url)

    async def check_key(self) -> None:
        await self._auth.authorize()

    async def _request(self, texts: Sequence[str], *, is_query: bool) -> Embeddings:  # noqa: ARG002
        body: JsonObject = {"model": self.name, "input": [*texts]}
        if self.dimensions:
            body["dimensions"] = self.dimensions
        if self._is_at_home and self._provider == OPENAI.adapter:
            body["encoding_format"] = "base64"  # a third of the bytes; others may not know it
            find_current_span().set_attributes({semconv.REQUEST_ENCODING_FORMATS: ["base64"]})
        authorization = await self._auth.authorize()
        answer, _ = await self._post(self._url, body, authorization.headers, authorization.secret)
        found = sorted(as_objects(as_object(answer).get("data")), key=_index)
        tokens = add_counts(get_object(answer, "usage"), "prompt_tokens")
        vectors = [_decode(item.get("embedding")) for item in found]
        return Embeddings(vectors, tokens or 0, get_text(as_object(answer), "model"))


def _index(item: JsonObject) -> int:
    index = item.get("index")
    return index if isinstance(index, int) else 0


def _decode(value: Any) -> Sequence[float] | Vectors:
    """Return a vector, or an empty list for an invalid value."""
    if isinstance(value, str):
        with suppress(ValueError):
            return np.frombuffer(b64decode(value), "<f4")
    return value if isinstance(value, list) else []


azure = partial(OpenAIEmbedder, preset=PRESETS["azure"])
github = partial(OpenAIEmbedder, preset=PRESETS["github"])
lmstudio = partial(OpenAIEmbedder, preset=PRESETS["lmstudio"])
mistral = partial(OpenAIEmbedder, preset=PRESETS["mistral"])
ollama = partial(OpenAIEmbedder, preset=PRESETS["ollama"])
together = partial(OpenAIEmbedder, preset=PRESETS["together"])
vllm = partial(OpenAIEmbedder, preset=PRESETS["vllm"])
