"""The limits of the engine."""

from dataclasses import dataclass
from pathlib import Path

from copilot_runtime.base.errors import ConfigurationFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Limits of the engine, and the folder of its files."""

    folder: Path
    """Folder for copies and saved data sets, written by this engine only."""
    memory_limit: str = "512MB"
    """Memory limit of all concurrent queries together, in DuckDB's notation."""
    threads: int = 2
    query_timeout: float = 30.0
    """Time limit of a query in seconds, excluding its wait for a slot."""
    max_rows: int = 500_000
    """Maximum number of rows of any query, whatever its own limit."""
    max_cell: int = 65_536
    """Maximum characters of one text value; a longer one is cut and ends in `…`."""
    max_bytes: int = 8 * 1024 * 1024
    """Approximate limit on the text bytes of one result; beyond it, the result is truncated."""
    max_file: int = 1024 * 1024 * 1024
    """Maximum size of a saved data set, in bytes."""
    concurrency: int = 8
    """Maximum number of concurrent queries; others wait."""

    def __post_init__(self) -> None:
        for name in ("threads", "query_timeout", "max_rows", "max_cell", "concurrency"):
            if getattr(self, name) <= 0:
                raise ConfigurationFailed(
                    f"The engine's {name} is {getattr(self, name)!r}.", hint="Give more than 0."
                )
