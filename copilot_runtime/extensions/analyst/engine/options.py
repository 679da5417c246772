"""The limits of the engine."""

from dataclasses import dataclass
from pathlib import Path

from copilot_runtime.base.errors import ConfigurationFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Limits of the engine, and where its files are."""

    folder: Path
    """Folder for copies and saved data sets, written by this engine only."""
    memory_limit: str = "512MB"
    """Memory limit of all concurrent queries together, in DuckDB's notation."""
    threads: int = 2
    query_timeout: float = 30.0
    """Seconds that a query may run, without its wait for a turn."""
    max_rows: int = 500_000
    """No query returns more, whatever its limit is."""
    max_cell: int = 65_536
    """Maximum characters of one text value; a longer one is cut and ends in `…`."""
    max_bytes: int = 8 * 1024 * 1024
    """Approximate limit on the text bytes of one result; beyond it, the result is truncated."""
    max_file: int = 1024 * 1024 * 1024
    """Bytes of a data set that a question saves."""
    concurrency: int = 8
    """Queries that run at one time; others wait."""

    def __post_init__(self) -> None:
        for name in ("threads", "query_timeout", "max_rows", "max_cell", "concurrency"):
            if getattr(self, name) <= 0:
                raise ConfigurationFailed(
                    f"The engine's {name} is {getattr(self, name)!r}.", hint="Give more than 0."
                )
