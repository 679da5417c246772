"""Extract the text of an untrusted file."""

from dataclasses import dataclass

from copilot_runtime.base.concurrency import call
from copilot_runtime.extensions.knowledge.ingestion.chunks import Chunk
from copilot_runtime.extensions.knowledge.ingestion.documents import read_document
from copilot_runtime.extensions.knowledge.ingestion.sandbox import UnreadableDocument

_MOST_CHUNKS = 2000
"""Maximum number of chunks of a file: about 800,000 tokens."""


@dataclass(frozen=True, slots=True)
class Extract:
    """The text of a file as chunks."""

    chunks: list[Chunk]
    is_cut: bool = False
    """Whether the text was truncated."""


async def extract(data: bytes, name: str) -> Extract:
    """Return the text of a file. Raises `UnreadableDocument` or `LimitExceeded`.

    It is read in a process of its own, with limits of time and memory.
    """
    document = await call(read_document, data, name, sandboxed=True)
    if not document.chunks:
        raise UnreadableDocument("There is no text in the file.")
    return Extract(document.chunks[:_MOST_CHUNKS], len(document.chunks) > _MOST_CHUNKS)
