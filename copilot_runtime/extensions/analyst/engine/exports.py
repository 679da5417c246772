"""Tables of other databases on their way here: as files that DuckDB reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from copilot_runtime.extensions.analyst.engine.datasets import quote_name, quote_text

EMPTY = "\\N"
"""What stands for NULL in the files: in quotes, it is a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportColumn:
    """A column of an exported table: `select` is for PostgreSQL, `convert` for DuckDB."""

    name: str
    select: str
    convert: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A table of PostgreSQL in a file."""

    table: str
    file: Path
    columns: Sequence[ExportColumn]

    def build_select(self) -> str:
        """Return SQL of DuckDB that reads the file, with the types of the table."""
        names = ", ".join(f"'c{number}': 'VARCHAR'" for number in range(len(self.columns)))
        chosen = ", ".join(
            f"{column.convert.format(f'c{number}')} AS {quote_name(column.name)}"
            for number, column in enumerate(self.columns)
        )
        return (
            f"SELECT {chosen} FROM read_csv({quote_text(str(self.file))}, header=false, "
            f"auto_detect=false, delim=',', quote='\"', escape='\"', columns={{{names}}}, "
            f"nullstr={quote_text(EMPTY)}, allow_quoted_nulls=false, max_line_size=268435456)"
        )
