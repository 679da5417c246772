"""The base class of embedders over HTTP: batches, connections, errors and prices."""

import asyncio
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from copilot_runtime.adapters.budget import count_request
from copilot_runtime.adapters.errors import Service, read_response_error
from copilot_runtime.adapters.history import CHARACTERS_PER_TOKEN
from copilot_runtime.adapters.streaming import encode_body
from copilot_runtime.api.adapter import Embedder
from copilot_runtime.api.events import Usage
from copilot_runtime.api.run_input import check_budget
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.jsontext import loads
from copilot_runtime.http.client import Upstream
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.genai import describe_server, start_embeddings_span
from copilot_runtime.telemetry.span import find_current_span, trace_block

Vectors = NDArray[np.float32]


class EmbedderOptions(TypedDict, total=False):
    """The keyword arguments that all embedders over HTTP take. Times are in seconds."""

    headers: Mapping[str, str] | None
    """Sent with each request, in place of the embedder's own of the same names."""
    batch_size: int
    """Maximum number of texts in one request."""
    requests_at_once: int
    """Maximum number of concurrent requests of one call; 4 by default."""
    max_tokens: int
    """Tokens to which texts are truncated; by default, the known limit of the model."""
    connect_timeout: float
    """The timeout for a connection; 10 by default."""
    idle_timeout: float
    """The longest silence of the provider; 60 by default."""
    max_retries: int
    """How often a failed request is retried; 5 by default. A `Retry-After` of up to thirty seconds
    is honoured, otherwise the backoff grows from half a second to eight."""


@dataclass(frozen=True, slots=True)
class Embeddings:
    """The embeddings of the texts of one request, and their token count."""

    vectors: Sequence[Sequence[float] | Vectors]
    tokens: int = 0
    model: str = ""
    """The model, as the provider calls it."""


class HTTPEmbedder(Embedder):
    """An embedder that sends texts to its provider in batches.

    `provider` is its name in `ADAPTERS`, `service` its name in error messages. A subclass
    implements `_request`.
    """

    def __init__(
        self,
        name: str,
        *,
        provider: str,
        service: str,
        dimensions: int | None = None,
        headers: Mapping[str, str] | None = None,
        batch_size: int = 128,
        requests_at_once: int = 4,
        max_tokens: int = 0,
        connect_timeout: float = 10.0,
        idle_timeout: float = 60.0,
        max_retries: int = 5,
    ) -> None:
        if not name:
            raise ConfigurationFailed(
                f"No model of {service} is named.", hint=f"Write {provider}:<model>."
            )
        if batch_size < 1 or requests_at_once < 1:
            raise ConfigurationFailed("batch_size and requests_at_once are 1 at least.")
        self.name = name
        self.dimensions = dimensions
        self.max_tokens = max_tokens
        self._provider = provider
        self._service = service
        self._batch_size = batch_size
        self._requests_at_once = requests_at_once
        self._headers = {
            "content-type": "application/json",
            "accept": "application/json",
            "user-agent": "copilot-runtime",
            **{name.lower(): value for name, value in (headers or {}).items()},
        }
        self._upstream = Upstream(
            service,
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
            max_retries=max_retries,
        )

    @property
    def model(self) -> str:
        size = f":{self.dimensions}" if self.dimensions else ""
        return f"{self._provider}:{self.name}{size}"

    async def embed(self, texts: Sequence[str]) -> Vectors:
        return await self._embed(texts, is_query=False)

    async def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return await self._embed(texts, is_query=True)

    async def check_budget(self) -> None:
        await check_budget()

    async def price(self, tokens: int) -> Decimal | None:
        try:
            from copilot_runtime.adapters.pricing import find_price

            return await find_price(self._build_usage(tokens))
        except ModuleNotFoundError:  # the extra `prices` is not installed
            return None

    async def aclose(self) -> None:
        await self._upstream.aclose()

    def _build_usage(self, tokens: int) -> Usage:
        return Usage(model=self.name, provider=self._provider, input_tokens=tokens, output_tokens=0)

    def _estimate_usage(self, texts: Sequence[str]) -> Usage:
        return self._build_usage(sum(map(len, texts)) // CHARACTERS_PER_TOKEN)

    async def _embed(self, texts: Sequence[str], *, is_query: bool) -> Vectors:
        if not texts:
            return np.empty((0, 0), np.float32)
        # all batches together count as one request
        async with count_request(self._estimate_usage(texts)) as usages:
            return await self._embed_batches(texts, usages, is_query=is_query)

    async def _embed_batches(
        self, texts: Sequence[str], usages: list[Usage], *, is_query: bool
    ) -> Vectors:
        """Return the vectors of texts, and add the usage of each batch that was sent.

        One without the provider's count, or that was cancelled, has used what was to be expected;
        one that failed has used nothing.
        """
        slots = asyncio.Semaphore(self._requests_at_once)

        async def embed(batch: Sequence[str]) -> Vectors:
            async with slots:
                return await self._embed_batch(batch, usages, is_query=is_query)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(embed(texts[start : start + self._batch_size]))
                    for start in range(0, len(texts), self._batch_size)
                ]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return np.concatenate([task.result() for task in tasks])

    async def _embed_batch(
        self, texts: Sequence[str], usages: list[Usage], *, is_query: bool
    ) -> Vectors:
        parent = find_current_span()
        model = "" if "://" in self.name else self.name  # a server may be named by its address
        with trace_block(
            start_embeddings_span(parent, provider=self._provider, model=model)
        ) as span:
            try:
                found = await self._request(texts, is_query=is_query)
            except asyncio.CancelledError:
                usages.append(self._estimate_usage(texts))
                raise
            counted = self._build_usage(found.tokens)
            usages.append(counted if found.tokens else self._estimate_usage(texts))
            vectors = self._read_vectors(found, texts, is_query=is_query)
            if span.is_recording:
                span.set_attributes(
                    {
                        semconv.USAGE_INPUT_TOKENS: found.tokens or None,
                        semconv.EMBEDDINGS_DIMENSION_COUNT: vectors.shape[1],
                        semconv.RESPONSE_MODEL: found.model or None,
                    }
                )
            return vectors

    def _read_vectors(self, found: Embeddings, texts: Sequence[str], *, is_query: bool) -> Vectors:
        try:
            vectors = np.array(found.vectors, np.float32)
        except (TypeError, ValueError) as error:
            raise self._service_of().format_error(f"Its vectors are invalid: {error}") from None
        is_matrix = vectors.ndim == 2 and len(vectors) == len(texts) and vectors.size > 0
        if not is_matrix or not np.isfinite(vectors).all():
            raise self._service_of().format_error(
                f"{len(texts)} texts were sent, and vectors of the shape {vectors.shape} came back."
            )
        self.tokens += found.tokens
        self.query_tokens += found.tokens if is_query else 0
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.divide(vectors, lengths, out=vectors, where=lengths > 0)

    @abstractmethod
    async def _request(self, texts: Sequence[str], *, is_query: bool) -> Embeddings:
        """Return the embeddings of a few texts. Raises `CopilotError`."""

    async def _post(
        self,
        url: str,
        body: Any,
        headers: Mapping[str, str],
        secret: str | None,
    ) -> tuple[Any, Mapping[str, str]]:
        """Return the JSON of an answer and its headers. Raises `CopilotError` for any but 200."""
        service = self._service_of(secret)
        if (span := find_current_span()).is_recording:
            span.set_attributes(describe_server(url))
        data = body if isinstance(body, bytes) else encode_body(body)
        async with self._upstream.post(url, data, {**self._headers, **headers}) as reply:
            text = await reply.text()
            reply.finished = True
        if reply.status != 200:
            raise read_response_error(service, reply.status, text, reply.headers)
        try:
            return loads(text), reply.headers
        except ValueError:
            raise service.body_error(text) from None

    def _service_of(self, secret: str | None = None) -> Service:
        return Service(self._service, self.name, secret, "embeddings")
