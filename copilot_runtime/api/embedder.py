"""One model of embeddings."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal

    import numpy as np
    from numpy.typing import NDArray


class Embedder(ABC):
    """A model of embeddings."""

    max_tokens: int = 0
    """How many tokens of a text it reads, and no more than that is sent; 0 if that is unknown."""
    tokens: int = 0
    """How many tokens have been embedded so far, as the provider counts them; 0 if it does not."""
    query_tokens: int = 0
    """How many of them were those of questions."""

    @property
    @abstractmethod
    def model(self) -> str:
        """Provider, model and size in one word: vectors of two models are never compared."""

    @abstractmethod
    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """Return one vector of length 1 for each text, as rows.

        Raises `CopilotError` if the provider fails after its retries.
        """

    async def embed_queries(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """Return vectors of what is looked for, which some models embed otherwise than texts."""
        return await self.embed(texts)

    async def check_key(self) -> None:  # noqa: B027
        """Raise `ConfigurationFailed` if there must be a key and is none."""

    async def price(self, tokens: int) -> "Decimal | None":  # noqa: ARG002
        """Return what so many tokens cost in US dollars; None if that is not known."""
        return None

    async def aclose(self) -> None:  # noqa: B027
        """Let go of connections."""
