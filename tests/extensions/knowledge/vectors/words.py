"""An embedder for tests: the letters of a text, so that a test knows what is like what."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from copilot_runtime.api import Embedder
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.resources import Resource

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class LetterEmbedder(Embedder):
    """Counts letters. It remembers what it was given, and may fail."""

    def __init__(self, model: str = "letters", fail: Exception | None = None) -> None:
        self._model = model
        self.fail = fail
        self.calls: list[list[str]] = []
        self.questions: list[list[str]] = []
        self.is_closed = False

    @property
    def model(self) -> str:
        return self._model

    @property
    def texts(self) -> list[str]:
        return [text for call in self.calls for text in call]

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.calls.append([*texts])
        if self.fail:
            raise self.fail
        self.tokens += sum(len(text) for text in texts)
        return self.count(texts)

    async def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.questions.append([*texts])
        tokens = sum(len(text) for text in texts)
        self.tokens += tokens
        self.query_tokens += tokens
        return self.count(texts)

    async def aclose(self) -> None:
        self.is_closed = True

    @staticmethod
    def count(texts: Sequence[str]) -> NDArray[np.float32]:
        counts = [[text.count(letter) for letter in LETTERS] for text in texts]
        return np.array(counts, np.float32)


def message(name: str, tokens: int | None = None, *, type: str = "common.Message") -> Identifier:
    return Identifier(type, name, tokens=tokens)


def resource(name: str, content: str) -> Resource:
    return Resource(message(name), content)
