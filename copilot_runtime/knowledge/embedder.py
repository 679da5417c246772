"""The interface of models of embeddings, which stands with the others."""

from copilot_runtime.interfaces import Embedder

__all__ = ["Embedder"]
