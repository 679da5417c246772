"""What turns texts into vectors."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Embedder(ABC):
    """A model of embeddings."""

    @property
    @abstractmethod
    def model(self) -> str:
        """Provider, model and size in one word: vectors of two models are never compared."""

    @abstractmethod
    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """Return one vector of length 1 for each text, as rows.

        Raises `CopilotError` if the provider fails after its retries.
        """

    async def aclose(self) -> None:  # noqa: B027
        """Let go of connections."""
