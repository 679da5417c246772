"""The interface of embedding models."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal

    import numpy as np
    from numpy.typing import NDArray


class Embedder(ABC):
    """An embedding model."""

    max_tokens: int = 0
    """Maximum input tokens; longer texts are truncated. 0 if unknown."""
    tokens: int = 0
    """Number of embedded tokens so far, as counted by the provider; 0 if it does not count."""
    query_tokens: int = 0
    """Number of embedded query tokens, included in `tokens`."""

    @property
    @abstractmethod
    def model(self) -> str:
        """The id of provider, model and dimensions; vectors of two models are never compared."""

    @abstractmethod
    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """Return one unit vector per text, as rows.

        Raises `CopilotError` if the provider fails after its retries.
        """

    async def embed_queries(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """Return the vectors of queries, which some models embed differently from texts."""
        return await self.embed(texts)

    async def check_key(self) -> None:  # noqa: B027
        """Raise `ConfigurationFailed` if a required API key is missing."""

    async def price(self, tokens: int) -> "Decimal | None":  # noqa: ARG002
        """Return the price of `tokens` tokens in US dollars, or None if unknown."""
        return None

    async def aclose(self) -> None:  # noqa: B027
        """Close the connections."""
