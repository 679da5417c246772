"""Incremental ingestion of files as resources."""

from copilot_runtime.extensions.knowledge.ingestion.chunks import Chunk, ChunkPosition
from copilot_runtime.extensions.knowledge.ingestion.documents import Document, read_document
from copilot_runtime.extensions.knowledge.ingestion.journal import (
    IngestionBusy,
    IngestProgress,
    IngestReport,
    ProgressHook,
    SourceStatus,
)
from copilot_runtime.extensions.knowledge.ingestion.pipeline import Ingestion, Provenance
from copilot_runtime.extensions.knowledge.ingestion.processor import (
    COPILOT_LD_FORM,
    ItemForm,
    Processor,
    ProcessReport,
)
from copilot_runtime.extensions.knowledge.ingestion.sandbox import UnreadableDocument
from copilot_runtime.extensions.knowledge.ingestion.watcher import SourceWatcher

__all__ = [
    "COPILOT_LD_FORM",
    "Chunk",
    "ChunkPosition",
    "Document",
    "IngestProgress",
    "IngestReport",
    "Ingestion",
    "IngestionBusy",
    "ItemForm",
    "ProcessReport",
    "Processor",
    "ProgressHook",
    "Provenance",
    "SourceStatus",
    "SourceWatcher",
    "UnreadableDocument",
    "read_document",
]
