"""Embeddings of Amazon Titan and Cohere at Amazon Bedrock.

https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-titan-embed-text.html
https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-embed.html
"""

from collections.abc import Sequence
from typing import Any, Unpack

from copilot_runtime.adapters.bedrock.auth import Authentication
from copilot_runtime.adapters.embeddings.http_embedder import (
    EmbedderOptions,
    Embeddings,
    HTTPEmbedder,
)
from copilot_runtime.adapters.http_adapter import ApiKey
from copilot_runtime.adapters.streaming import encode_body
from copilot_runtime.base.jsonvalue import JsonObject, add_counts, as_count, as_list, as_object

_MOST_TEXTS = 96
_MOST_CHARACTERS = 2048
"""Maximum length of a text for the third generation of Cohere's models."""


class BedrockEmbedder(HTTPEmbedder):
    """Embeds with a model of Amazon Titan or of Cohere at Bedrock.

    Titan takes one text in a request, Cohere 96.

    Args:
        name: The model's id, or that of an inference profile, such as `cohere.embed-v4:0`.
        dimensions: The length of a vector, if the model lets one choose it.
        region: The region; by default `AWS_REGION`, or that of the profile.
        api_key: A key of Bedrock; by default `AWS_BEARER_TOKEN_BEDROCK`, else requests are signed.
        access_key: An access key, with `secret_key` and, if it is temporary, `session_token`.
        session: A session of `boto3` or `botocore`, which has credentials.
        base_url: The address; by default, that of the region.
        options: Those of `EmbedderOptions`.
    """

    def __init__(
        self,
        name: str = "amazon.titan-embed-text-v2:0",
        *,
        dimensions: int | None = None,
        region: str | None = None,
        api_key: ApiKey | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        session_token: str | None = None,
        session: Any = None,
        base_url: str | None = None,
        **options: Unpack[EmbedderOptions],
    ) -> None:
        self._is_cohere = "cohere." in name
        self._is_third = "embed-english-v3" in name or "embed-multilingual-v3" in name
        options["batch_size"] = min(
            options.get("batch_size", _MOST_TEXTS), _MOST_TEXTS if self._is_cohere else 1
        )
        options.setdefault("requests_at_once", 4 if self._is_cohere else 16)
        options.setdefault("max_tokens", 0 if self._is_cohere else 8192)
        super().__init__(
            name, provider="bedrock", service="Bedrock", dimensions=dimensions, **options
        )
        self._auth = Authentication(
            region=region,
            api_key=api_key,
            access_key=access_key,
            secret_key=secret_key,
            session_token=session_token,
            session=session,
            base_url=base_url,
        )

    async def _request(self, texts: Sequence[str], *, is_query: bool) -> Embeddings:
        body = self._cohere(texts, is_query) if self._is_cohere else self._titan(texts[0])
        url, data = self._auth.build_url(self.name, "invoke"), encode_body(body)
        headers, secret = await self._auth.authenticate(url, data, self.name)
        answer, received = await self._post(url, data, headers, secret)
        fields = as_object(answer)
        tokens = as_count(received.get("x-amzn-bedrock-input-token-count"))
        if tokens is None:
            tokens = add_counts(fields, "inputTextTokenCount") or 0
        if not self._is_cohere:
            return Embeddings([as_list(fields.get("embedding"))], tokens)
        found = fields.get("embeddings")  # by type, as was asked for
        vectors = found.get("float") if isinstance(found, dict) else found
        return Embeddings(as_list(vectors), tokens)

    def _titan(self, text: str) -> JsonObject:
        body: JsonObject = {"inputText": text}
        if self.dimensions:
            body["dimensions"] = self.dimensions
        return body

    def _cohere(self, texts: Sequence[str], is_query: bool) -> JsonObject:
        body: JsonObject = {
            "texts": [text[:_MOST_CHARACTERS] if self._is_third else text for text in texts],
            "input_type": "search_query" if is_query else "search_document",
            "embedding_types": ["float"],
            "truncate": "END" if self._is_third else "RIGHT",
        }
        if self.dimensions:
            body["output_dimension"] = self.dimensions
        return body
