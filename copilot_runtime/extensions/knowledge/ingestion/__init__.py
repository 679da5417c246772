"""Files into resources: only what changed is read, and what vanished is removed."""

from copilot_runtime.extensions.knowledge.ingestion.chunks import Chunk, Place
from copilot_runtime.extensions.knowledge.ingestion.documents import Document, read_document
from copilot_runtime.extensions.knowledge.ingestion.lock import IngestionBusy
from copilot_runtime.extensions.knowledge.ingestion.pipeline import (
    COPILOT_LD_FORM,
    Ingestion,
    ItemForm,
    Provenance,
)
from copilot_runtime.extensions.knowledge.ingestion.processor import Processor, ProcessReport
from copilot_runtime.extensions.knowledge.ingestion.report import (
    IngestProgress,
    IngestReport,
    ProgressHook,
    SourceStatus,
)
from copilot_runtime.extensions.knowledge.ingestion.sandbox import UnreadableDocument

__all__ = [
    "COPILOT_LD_FORM",
    "Chunk",
    "Document",
    "IngestProgress",
    "IngestReport",
    "Ingestion",
    "IngestionBusy",
    "ItemForm",
    "Place",
    "ProcessReport",
    "Processor",
    "ProgressHook",
    "Provenance",
    "SourceStatus",
    "UnreadableDocument",
    "read_document",
]
