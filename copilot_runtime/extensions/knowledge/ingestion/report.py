"""What an ingestion did."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from copilot_runtime.base.jsonvalue import JsonObject


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """How far an ingestion is."""

    stage: Literal["read", "store"]
    """Files are read first, and then resources are stored."""
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """A file, and what became of it when it was last tried."""

    name: str
    state: Literal["taken in", "in part", "failed"]
    message: str = ""
    """What could not be read, and why."""


ProgressHook = Callable[[IngestProgress], None]


@dataclass
class IngestReport:
    """Files and resources, and what became of them."""

    new: list[str] = field(default_factory=list[str])
    changed: list[str] = field(default_factory=list[str])
    unchanged: int = 0
    removed: list[str] = field(default_factory=list[str])
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """Why, by file. What was taken in of it earlier stays."""
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    """Files in folders that no reader is for, such as pictures, and of which type they are; and
    symbolic links that lead out of the folder that was named."""
    unmatched: list[str] = field(default_factory=list[str])
    """Patterns that fit no file."""
    warnings: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Parts of files that could not be read."""
    empty: list[str] = field(default_factory=list[str])
    """Files, new or changed, in which nothing was found to take in."""
    resources: int = 0
    """How many were stored: new ones, and those that changed."""
    deleted: int = 0
    """How many were removed."""
    triples: int = 0
    """In the resources that were stored."""
    seconds: float = 0.0

    def encode(self) -> JsonObject:
        """Return it as JSON."""
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
