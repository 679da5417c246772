"""Text files of any encoding, packed or not, as files in UTF-8 that DuckDB reads."""

import gzip
import os
import shutil
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import duckdb

from copilot_runtime.base.encodings import (
    BLOCK,
    NO_TEXT,
    Encoding,
    LineDecoder,
    Losses,
    detect_file_encoding,
    find_wide_codec,
)
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
    note = ""
    try:
        plain = file
        if file.suffix in (".gz", ".zst"):
            plain = target.with_suffix(".plain")
            (_unpack_gzip if file.suffix == ".gz" else partial(_unpack, connection))(file, plain)
        if end := _measure_end(plain):
            note = f"The last {end:,} bytes of {file.name} are no text, and are left out."
            plain = shutil.copyfile(plain, target.with_suffix(".cut"))
            os.truncate(plain, plain.stat().st_size - end)
        encoding = detect_file_encoding(plain)
        if encoding == Encoding("utf-8"):
            return TextFile(plain, note)
        losses = Losses()
        decoder = LineDecoder(encoding.codec)
        with target.open("w", encoding="utf-8", newline="") as out:
            for text in _read_texts(plain, encoding, decoder):
                losses.add(text)
                out.write(text)
    except UnicodeError as error:
        raise DatasetRefused(
            f"The file {file.name!r} cannot be decoded: {error}",
            public=f"The data source {file.name!r} cannot be read: it is not UTF-8.",
        ) from error
    label = decoder.encoding.label if encoding.is_guess else encoding.codec
    label = losses.describe(label) if losses.count else label
    if encoding.is_guess:
        note = f"{file.name} is not UTF-8: it is read as {label}. {note}"
    elif losses.count:
        note = f"{file.name} is {label}. {note}"
    return TextFile(target, note.strip())


def _measure_end(path: Path) -> int:
    """Return the number of bytes behind the end of a text of less than two for each character."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - BLOCK))
        tail = file.read()
        file.seek(0)
        end = len(tail) - len(tail.rstrip(NO_TEXT))
        return 0 if not end or find_wide_codec(file.read(BLOCK)) else end


def _read_texts(path: Path, encoding: Encoding, decoder: LineDecoder) -> Iterator[str]:
    if encoding.is_guess:
        with path.open("rb") as lines:
            yield from map(decoder.decode, lines)
        return
    with path.open(encoding=encoding.codec, errors=encoding.errors, newline="") as source:
        while text := source.read(BLOCK):
            yield text


def _unpack_gzip(file: Path, target: Path) -> None:
    try:
        with gzip.open(file) as source, target.open("wb") as out:
            shutil.copyfileobj(source, out, BLOCK)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise DatasetRefused(
            f"The data source {file.name!r} cannot be read: it is no gzip file, or cut off."
        ) from None


def _unpack(connection: duckdb.DuckDBPyConnection, file: Path, target: Path) -> None:
    # without its size, a buffer is 16 of the longest lines
    sizes = "max_line_size=16777216, buffer_size=33554432"
    lines = f"delim='', quote='', escape='', columns={{'line': 'VARCHAR'}}, {sizes}"
    connection.execute(
        f"COPY (FROM read_csv({quote_text(str(file))}, auto_detect=false, header=false, {lines})) "
        f"TO {quote_text(str(target))} (header false, delimiter '', quote '', escape '')"
    )
