"""Documents as chunks of text with positions."""

from copilot_runtime.extensions.knowledge.ingestion.chunks import Chunk, ChunkPosition
from copilot_runtime.extensions.knowledge.ingestion.documents import (
    Document,
    detect_media_type,
    read_document,
)

__all__ = ["Chunk", "ChunkPosition", "Document", "detect_media_type", "read_document"]
