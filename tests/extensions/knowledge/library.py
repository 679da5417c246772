"""A small library that tests ask about: three pages, and an embedder that counts words."""

import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot_runtime.api import Embedder
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.storage import MemoryStorage

LIBRARY = "https://mill.example/id/library"
ADA = "https://mill.example/id/ada"

_SIZE = 512


class WordCounter(Embedder):
    """Texts are alike if they have words in common."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    @property
    def model(self) -> str:
        return "test-words-512"

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts += texts
        vectors = np.zeros((len(texts), _SIZE), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()):
                vector[zlib.crc32(word.encode()) % _SIZE] += 1
            vector /= np.linalg.norm(vector) or 1
        return vectors


def write_pages(folder: Path) -> Path:
    """Write the pages, and return their folder."""
    pages = folder / "pages"
    pages.mkdir()
    (pages / "library.html").write_text(
        f"""<!doctype html><title>The library</title>
        <main itemscope itemtype="https://schema.org/Library" itemid="{LIBRARY}">
          <h1 itemprop="name">Mill Library</h1>
          <p itemprop="description">The library opens at nine and closes at five.</p>
          <div itemprop="employee" itemscope itemtype="https://schema.org/Person" itemid="{ADA}">
            <b itemprop="name">Ada Byron</b>, <i itemprop="jobTitle">head librarian</i>
          </div>
        </main>""",
        encoding="utf-8",
    )
    (pages / "rules.md").write_text(
        "# House rules\n\nDogs wait outside. Books are lent for four weeks.\n", encoding="utf-8"
    )
    (pages / "secret.md").write_text(
        "# Secret\n\nThe safe opens with the number 4711.\n", encoding="utf-8"
    )
    return pages


def library(pages: Path, **more: Any) -> Knowledge:
    """Return knowledge of the pages, in memory."""
    fields: dict[str, Any] = {"embedder": WordCounter(), "sources": [pages], **more}
    return Knowledge(fields.pop("storage", None) or MemoryStorage(), **fields)


async def stocked(pages: Path, **more: Any) -> Knowledge:
    """Return knowledge of the pages that has taken them in."""
    knowledge = library(pages, **more)
    await knowledge.ingest()
    return knowledge
