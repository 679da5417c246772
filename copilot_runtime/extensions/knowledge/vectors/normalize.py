"""Vectors of length 1, whose products are cosines."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.knowledge.vectors.quantized import Floats

Vector = Sequence[float] | NDArray[np.floating[Any]]


def normalize(vectors: Sequence[Vector]) -> Floats:
    """Return vectors as rows of length 1; one of zeros stays as it is. Raises `Misuse`."""
    try:
        matrix: NDArray[Any] = np.array(vectors, np.float32)
    except (TypeError, ValueError) as error:
        raise Misuse(
            "Vectors are lists of numbers, all of one length.", hint=f"numpy says: {error}"
        ) from None
    if not matrix.size:
        return np.empty((0, 0), np.float32)
    if matrix.ndim != 2:
        raise Misuse(
            "Vectors are a list of lists of numbers.", hint="Put a single vector into a list."
        )
    if not np.isfinite(matrix).all():
        raise Misuse("A vector has a number that is none: infinite, or NaN.")
    for length in (_largest, _length):  # the squares of very large numbers would be infinite
        lengths = length(matrix)
        np.divide(matrix, lengths, out=matrix, where=lengths > 0)
    return matrix


def _largest(matrix: Floats) -> Floats:
    return np.abs(matrix).max(axis=1, keepdims=True)


def _length(matrix: Floats) -> Floats:
    return np.sqrt(np.einsum("ij,ij->i", matrix, matrix))[:, None]
