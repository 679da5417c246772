"""The progress and the report of an ingestion."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from copilot_runtime.base.jsonvalue import JsonObject


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """The progress of an ingestion."""

    stage: Literal["read", "store"]
    """Files are read first, and then resources are stored."""
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """The status of a file at its last attempt."""

    name: str
    state: Literal["taken in", "in part", "failed"]
    message: str = ""
    """The parts that could not be read, with the reason."""


ProgressHook = Callable[[IngestProgress], None]


@dataclass
class IngestReport:
    """The results of an ingestion: files and resources."""

    new: list[str] = field(default_factory=list[str])
    changed: list[str] = field(default_factory=list[str])
    unchanged: int = 0
    removed: list[str] = field(default_factory=list[str])
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """Errors by file. Earlier contributions of the file are kept."""
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    """Files in folders that no reader is for, such as pictures, and of which type they are; and
    symbolic links that lead out of the folder that was named."""
    unmatched: list[str] = field(default_factory=list[str])
    """Patterns that match no file."""
    warnings: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Parts of files that could not be read."""
    empty: list[str] = field(default_factory=list[str])
    """New or changed files without content."""
    resources: int = 0
    """Number of new and changed resources that were stored."""
    deleted: int = 0
    """Number of removed resources."""
    triples: int = 0
    """Number of triples in the stored resources."""
    seconds: float = 0.0

    def encode(self) -> JsonObject:
        """Return the JSON form."""
        return {
            "new": [*self.new],
            "changed": [*self.changed],
            "unchanged": self.unchanged,
            "removed": [*self.removed],
            "failed": {**self.failed},
            "skipped": {**self.skipped},
            "unmatched": [*self.unmatched],
            "warnings": {name: [*texts] for name, texts in self.warnings.items()},
            "empty": [*self.empty],
            "resources": self.resources,
            "deleted": self.deleted,
            "triples": self.triples,
            "seconds": round(self.seconds, 3),
        }
