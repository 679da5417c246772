"""Embeddings of Gemini, by its own API or at Vertex AI.

https://ai.google.dev/api/embeddings
https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/text-embeddings-api
"""

from collections.abc import Sequence
from typing import Any, Unpack

from copilot_runtime.adapters.embeddings.http_embedder import (
    EmbedderOptions,
    Embeddings,
    HTTPEmbedder,
)
from copilot_runtime.adapters.google.auth import Authentication
from copilot_runtime.adapters.http_adapter import ApiKey
from copilot_runtime.base.jsonvalue import JsonObject, add_counts, as_object, as_objects, get_object

_DOCUMENT, _QUERY = "RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY"
_MOST_TOKENS = {"gemini-embedding-001": 2048, "gemini-embedding-2": 8192}
_MOST_TEXTS = 100


class GoogleEmbedder(HTTPEmbedder):
    """Embeds with a model of Google, with different task types for queries and documents.

    Args:
        name: The model's name.
        dimensions: The length of a vector; by default, that of the model.
        api_key: The key; by default `GOOGLE_API_KEY` or `GEMINI_API_KEY`.
        base_url: The address, with its version; by default, Google's.
        vertex: Whether to use Vertex AI with a key (express mode).
        project: The project at Vertex AI, which takes a token in place of a key.
        location: The region at Vertex AI; by default `GOOGLE_CLOUD_LOCATION`, or `global`.
        token: A token for Vertex AI, or a function that returns it.
        credentials: Credentials of `google-auth`; by default, those of the application.
        options: Those of `EmbedderOptions`.
    """

    def __init__(
        self,
        name: str = "gemini-embedding-001",
        *,
        dimensions: int | None = None,
        api_key: ApiKey | None = None,
        base_url: str | None = None,
        vertex: bool = False,
        project: str | None = None,
        location: str | None = None,
        token: ApiKey | None = None,
        credentials: Any = None,
        **options: Unpack[EmbedderOptions],
    ) -> None:
        self._auth = Authentication(
            api_key,
            base_url,
            vertex=vertex,
            project=project,
            location=location,
            token=token,
            credentials=credentials,
        )
        # at Vertex AI, the models of Gemini take one text in a request
        options.setdefault("batch_size", 1 if self._auth.vertex else _MOST_TEXTS)
        options.setdefault("max_tokens", _MOST_TOKENS.get(name, 0))
        super().__init__(
            name, provider="google", service="Google", dimensions=dimensions, **options
        )

    async def check_key(self) -> None:
        await self._auth.check_key()

    async def _request(self, texts: Sequence[str], *, is_query: bool) -> Embeddings:
        # the second generation reads its task in the text, and refuses the field
        takes_task = "embedding-2" not in self.name
        task = (_QUERY if is_query else _DOCUMENT) if takes_task else ""
        if not takes_task:
            texts = [_name_task(text, is_query=is_query) for text in texts]
        headers, secret = await self._auth.authenticate()
        if self._auth.vertex:
            return await self._predict(texts, task, headers, secret)
        options: JsonObject = {"taskType": task} if task else {}
        if self.dimensions:
            options["outputDimensionality"] = self.dimensions
        model = self.name if "/" in self.name else f"models/{self.name}"
        requests = [
            {"model": model, "content": {"parts": [{"text": text}]}, **options} for text in texts
        ]
        url = self._auth.build_url(self.name, "batchEmbedContents")
        answer, _ = await self._post(url, {"requests": requests}, headers, secret)
        tokens = add_counts(get_object(answer, "usageMetadata"), "promptTokenCount")
        found = as_objects(as_object(answer).get("embeddings"))
        return Embeddings([item.get("values") or [] for item in found], tokens or 0)

    async def _predict(
        self, texts: Sequence[str], task: str, headers: dict[str, str], secret: str
    ) -> Embeddings:
        options: JsonObject = {"task_type": task} if task else {}
        body: JsonObject = {"instances": [{"content": text, **options} for text in texts]}
        if self.dimensions:
            body["parameters"] = {"outputDimensionality": self.dimensions}
        url = self._auth.build_url(self.name, "predict")
        answer, _ = await self._post(url, body, headers, secret)
        found = [
            get_object(item, "embeddings")
            for item in as_objects(as_object(answer).get("predictions"))
        ]
        counts = [add_counts(get_object(item, "statistics"), "token_count") or 0 for item in found]
        return Embeddings([item.get("values") or [] for item in found], sum(counts))


def _name_task(text: str, *, is_query: bool) -> str:
    return f"task: search result | query: {text}" if is_query else f"title: none | text: {text}"
