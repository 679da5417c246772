"""Embeddings of a server of Hugging Face's Text Embeddings Inference.

https://huggingface.github.io/text-embeddings-inference/
"""

import os
from collections.abc import Sequence
from typing import Unpack

from copilot_runtime.adapters.embeddings.http_embedder import (
    EmbedderOptions,
    Embeddings,
    HTTPEmbedder,
)
from copilot_runtime.adapters.http_adapter import ApiKey, resolve_api_key
from copilot_runtime.base.jsonvalue import JsonObject, as_list
from copilot_runtime.http.errors import parse_url

_ADDRESS = "http://localhost:8080"
_MOST_TEXTS = 32
"""The default limit of texts in one request to a server."""


class TEIEmbedder(HTTPEmbedder):
    """Embeds with the model of a server of TEI, which counts no tokens.

    Args:
        base_url: The address; by default `EMBEDDING_BASE_URL`, or `http://localhost:8080`.
        name: The served model, by which a change of it is detected; by default, the address.
        api_key: The key, if the server requires one.
        truncate: Whether the server cuts texts that are too long; None leaves out the field.
        options: Those of `EmbedderOptions`.
    """

    def __init__(
        self,
        base_url: str = "",
        *,
        name: str = "",
        api_key: ApiKey | None = None,
        truncate: bool | None = True,
        **options: Unpack[EmbedderOptions],
    ) -> None:
        base_url = (base_url or os.environ.get("EMBEDDING_BASE_URL") or _ADDRESS).rstrip("/")
        parse_url(
            base_url,
            "base URL",
            f"It looks like {_ADDRESS} (EMBEDDING_BASE_URL or base_url).",
            has_authorization=bool(api_key),
        )
        options.setdefault("batch_size", _MOST_TEXTS)
        super().__init__(name or base_url, provider="tei", service="TEI", **options)
        self._url = f"{base_url}/embed"
        self._api_key = api_key
        self._truncate = truncate

    async def _request(self, texts: Sequence[str], *, is_query: bool) -> Embeddings:  # noqa: ARG002
        body: JsonObject = {"inputs": [*texts]}
        if self._truncate is not None:
            body["truncate"] = self._truncate
        key = await resolve_api_key(self._api_key, "TEI")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        answer, _ = await self._post(self._url, body, headers, key or None)
        return Embeddings(as_list(answer))
