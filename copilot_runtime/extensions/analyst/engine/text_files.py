"""Text files of any encoding, packed or not, as files in UTF-8 that DuckDB reads."""

from pathlib import Path
from typing import NamedTuple

import duckdb

from copilot_runtime.base.encodings import BLOCK, Encoding, Losses, detect_file_encoding
from copilot_runtime.base.layouts import Layout
from copilot_runtime.extensions.analyst.engine.datasets import quote_text
from copilot_runtime.extensions.analyst.engine.errors import DatasetRefused


class TextFile(NamedTuple):
    """A file in UTF-8 without a byte order mark."""

    path: Path
    note: str = ""
    """What is not certain about it, such as a guessed encoding, in sentences."""
    delimiter: str = ""
    """The delimiter of its columns, if it is known."""
    layout: Layout | None = None
    """How its lines are read, if that is known."""
    is_sheet: bool = False
    """`True` if it has the rows of a sheet, whose doubtful ones are noted."""


def decode_file(connection: duckdb.DuckDBPyConnection, file: Path, folder: Path) -> TextFile:
    """Return a file in UTF-8: itself, or a copy in the folder.

    Raises `DatasetRefused` if its encoding is unknown, `duckdb.Error` and `OSError`.
    """
    folder.mkdir(exist_ok=True)
    target = folder / f"{len(list(folder.iterdir()))}.txt"
    try:
        plain = file
        if file.suffix in (".gz", ".zst"):
            plain = target.with_suffix(".plain")
            _unpack(connection, file, plain)
        encoding = detect_file_encoding(plain)
        if encoding == Encoding("utf-8"):
            return TextFile(plain)
        losses = Losses()
        with (
            plain.open(encoding=encoding.codec, errors=encoding.errors, newline="") as source,
            target.open("w", encoding="utf-8", newline="") as out,
        ):
            while text := source.read(BLOCK):
                losses.add(text)
                out.write(text)
    except UnicodeError as error:
        raise DatasetRefused(
            f"The file {file.name!r} cannot be decoded: {error}",
            public=f"The data source {file.name!r} cannot be read: it is not UTF-8.",
        ) from error
    note = ""
    if encoding.is_guess:
        note = f"{file.name} is not UTF-8: it is read as {encoding.label}."
    elif losses.count:
        note = f"{file.name} is {losses.describe(encoding.codec)}."
    return TextFile(target, note)


def _unpack(connection: duckdb.DuckDBPyConnection, file: Path, target: Path) -> None:
    # without its size, a buffer is 16 of the longest lines
    sizes = "max_line_size=16777216, buffer_size=33554432"
    lines = f"delim='', quote='', escape='', columns={{'line': 'VARCHAR'}}, {sizes}"
    connection.execute(
        f"COPY (FROM read_csv({quote_text(str(file))}, auto_detect=false, header=false, {lines})) "
        f"TO {quote_text(str(target))} (header false, delimiter '', quote '', escape '')"
    )
