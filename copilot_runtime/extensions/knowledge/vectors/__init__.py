"""The vector index: exact search, prefiltered by 8-bit quantised vectors."""

from importlib.util import find_spec

from copilot_runtime.base.errors import MissingPackage

if find_spec("numpy") is None:
    raise MissingPackage("The vector index", "numpy", "knowledge")

from copilot_runtime.extensions.knowledge.vectors.index import VectorIndex, VectorItem
from copilot_runtime.extensions.knowledge.vectors.update import EmbeddingReport

__all__ = ["EmbeddingReport", "VectorIndex", "VectorItem"]
